"""What an agent holds, and how much it should: pure decisions, without I/O, clock or randomness."""

from __future__ import annotations
