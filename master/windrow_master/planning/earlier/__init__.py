"""Mini-batches of an earlier job whose results are taken over."""

from __future__ import annotations
