"""Turns what `run()` returns into the rows of the output."""

from __future__ import annotations
