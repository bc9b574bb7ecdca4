"""The process that moves bytes between remote storage and this node, and the agent's end of it."""

from __future__ import annotations
