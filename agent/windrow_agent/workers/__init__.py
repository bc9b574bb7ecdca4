"""Worker processes as the agent sees them: how they start, what passes between them and the agent, how they end."""

from __future__ import annotations
