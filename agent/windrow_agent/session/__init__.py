"""The way to the master: registration, the Work stream, heartbeats, large rows, logs, code."""

from __future__ import annotations
