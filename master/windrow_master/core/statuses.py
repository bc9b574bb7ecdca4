"""The names in reports for the end of an attempt and the kind of an error.

Reference: docs/reference/azure-ml/parallel-job.md#statuses, #the-end-of-a-job, #mini-batch-tables. `LOAD_DONE`,
`LOAD_TIMEOUT`, `RUN_DONE`, `RUN_TIMEOUT` and `RUN_EXCEPTION` are the vendor's. The others follow their pattern, where
the vendor has no public name. The vendor's categories are not public either.
"""

from __future__ import annotations

from windrow_master.core.states import AttemptState, Cause, Phase

USER_ERROR = "UserError"
"""The entry script, its arguments, the input, or settings of the job."""
SYSTEM_ERROR = "SystemError"
"""Windrow itself, or a machine."""
DEPENDENCY_ERROR = "DependencyError"
"""Storage or network that the job needs."""

_USERS_CAUSES = frozenset(
    (
        Cause.EXCEPTION,
        Cause.TIMEOUT,
        Cause.BAD_RETURN,
        Cause.CRASH,
        Cause.OOM,
        Cause.INIT_FAILED,
        Cause.LOAD_FAILED,
        Cause.INPUT_CHANGED,
        Cause.MARKED,
    )
)

_STORAGE_CAUSES = frozenset((Cause.LOAD_FAILED, Cause.TIMEOUT))
"""Causes that are the storage's where they strike while the node fetches."""

_STAGES = {Phase.FETCHING: "LOAD", Phase.LOADING: "LOAD", Phase.RUNNING: "RUN", Phase.RETURNING: "RETURN"}

_STAGED = frozenset((Cause.TIMEOUT, Cause.CRASH, Cause.OOM))
"""Causes that may strike in each stage of an attempt."""

_NAMED = {
    Cause.EXCEPTION: "RUN_EXCEPTION",
    Cause.BAD_RETURN: "RUN_EXCEPTION",
    Cause.LOAD_FAILED: "LOAD_EXCEPTION",
    Cause.INPUT_CHANGED: "LOAD_EXCEPTION",
    Cause.INPUT_MISREAD: "LOAD_EXCEPTION",
    Cause.OUTPUT_FAILED: "RETURN_EXCEPTION",
}


def category_of(cause: int, phase: int = 0) -> str:
    """The kind of error of a cause; empty for no cause, and for cancelled attempts. `phase`: when it happened."""
    if cause in (Cause.NONE, Cause.CANCELLED):
        return ""
    if cause == Cause.OUTPUT_FAILED or (phase == Phase.FETCHING and cause in _STORAGE_CAUSES):
        return DEPENDENCY_ERROR
    return USER_ERROR if cause in _USERS_CAUSES else SYSTEM_ERROR


def had_worker(phase: int) -> bool:
    """Whether a worker may have had an attempt that ended in this phase. While its data is fetched, none has."""
    return phase != Phase.FETCHING


def status_of(state: int, cause: int, phase: int) -> str:
    """How an attempt ended. `phase`: what was being done then (states.Phase)."""
    if state == AttemptState.SUCCEEDED:
        return "RUN_DONE"
    if state == AttemptState.RUNNING:
        return "LEASED"
    known = Cause(cause)
    if known in _STAGED:
        return f"{_STAGES.get(Phase(phase), 'RUN')}_{known.name}"
    return _NAMED.get(known, known.name)
