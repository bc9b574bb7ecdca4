"""Shared by all roles: archives, notes on disk, the log, numbers in words, users, the Python that runs scripts."""
