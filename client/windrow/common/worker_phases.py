"""What workers do, by name and in plain words. The names are those of `WorkerPhase` in the protocol."""

from __future__ import annotations

PHASE_NAMES = ("", "starting", "init", "idle", "loading", "running", "returning", "stopping", "fetching")
"""By their number in the protocol."""
PHASE_WORDS = {
    "starting": "starting Python and loading the script",
    "init": "init()",
    "loading": "loading data",
    "running": "run()",
    "returning": "writing rows",
    "stopping": "shutdown()",
}
"""Of workers that do something."""
