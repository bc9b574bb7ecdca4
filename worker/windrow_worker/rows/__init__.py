"""From what `run()` returns to the rows of the output."""

from __future__ import annotations
