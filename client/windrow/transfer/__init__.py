"""Moves bytes between a client and a master: code and data up, outputs down."""
