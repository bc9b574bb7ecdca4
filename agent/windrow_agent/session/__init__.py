"""The session with the master: registration, the Work stream, heartbeats, logs."""

from __future__ import annotations
