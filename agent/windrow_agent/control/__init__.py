"""Carries out what the master says: takes, prepares and ends steps, takes leases, and reports the node's state."""

from __future__ import annotations
