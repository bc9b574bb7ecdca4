"""Data assets and models: their files, and what their names mean in a job file."""

from __future__ import annotations
