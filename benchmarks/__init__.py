"""Measures what Windrow costs, beside what a user would otherwise pick: `python -m benchmarks` or `make bench`."""

from __future__ import annotations
