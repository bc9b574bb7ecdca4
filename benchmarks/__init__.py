"""Measures what Windrow costs, beside the tools that a user would otherwise choose: `python -m benchmarks` or `make
bench`."""

from __future__ import annotations
