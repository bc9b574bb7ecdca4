"""One worker process as the agent sees it: how it starts, what passes between the two, and how it ends."""

from __future__ import annotations
