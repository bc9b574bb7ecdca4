"""What a planner keeps on disk: recipes and listing with their checkpoints and checksums, and the paths seen."""

from __future__ import annotations
