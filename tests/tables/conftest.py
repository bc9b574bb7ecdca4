"""Makes `planned_table` importable for the tests of this folder, and `planner_process` for both."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "planning")]
