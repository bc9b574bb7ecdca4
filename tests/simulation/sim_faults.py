"""Planted faults."""

from __future__ import annotations

FAULTS = {}
