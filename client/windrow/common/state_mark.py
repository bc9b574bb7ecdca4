"""How to recognize a state folder of Windrow, whatever its name: it belongs neither to a job's code nor to its data."""

# Only cheap modules: this is on the way to the first run().
from __future__ import annotations

STATE_MARK = "windrow.db"
"""The file that every one holds: the database of its master."""
