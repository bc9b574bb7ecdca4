"""What a planner keeps on disk: the journal with its checkpoints and checksums, and the paths that it has seen."""

from __future__ import annotations
