"""How an attempt ended, in plain words. The reports' files have the codes (docs/contracts.md, section 6)."""

from __future__ import annotations

DONE = "RUN_DONE"
_WHOLE = {DONE: "done", "LEASED": "running", "LOAD_FAILED": "loading failed", "BAD_RETURN": "bad return value"}
_STAGES = {"LOAD": " while loading", "RUN": " in run()", "RETURN": " while rows were written"}
_CAUSES = {"OOM": "out of memory", "NODE_LOST": "node lost", "CRASH": "worker died"}


def status_words(status: str) -> str:
    """Such as `exception in run()` for RUN_EXCEPTION."""
    if status in _WHOLE:
        return _WHOLE[status]
    stage, _, cause = status.partition("_")
    where = _STAGES.get(stage, "")
    if not where or not cause:
        where, cause = "", status
    return _CAUSES.get(cause, cause.lower().replace("_", " ")) + where
