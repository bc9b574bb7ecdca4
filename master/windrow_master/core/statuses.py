"""The names in reports for the end of an attempt and the kind of an error.

Reference: docs/reference/azure-ml/parallel-job.md#statuses, #the-end-of-a-job, #mini-batch-tables. `LOAD_DONE`,
`LOAD_TIMEOUT`, `RUN_DONE`, `RUN_TIMEOUT` and `RUN_EXCEPTION` are the vendor's. The others follow their pattern, where
the vendor has no public name. The vendor's categories are not public either.
"""

from __future__ import annotations

from windrow_master.core.causes import DEPENDENCY_ERROR, TRAITS
from windrow_master.core.states import AttemptState, Cause, Phase

_STAGES = {Phase.FETCHING: "LOAD", Phase.LOADING: "LOAD", Phase.RUNNING: "RUN", Phase.RETURNING: "RETURN"}


def category_of(cause: int, phase: int = 0) -> str:
    """The kind of error of a cause; empty for no cause, and for cancelled attempts. `phase`: when it happened."""
    traits = TRAITS[Cause(cause)]
    return DEPENDENCY_ERROR if phase == Phase.FETCHING and traits.is_storages else traits.category


def had_worker(phase: int) -> bool:
    """Whether a worker may have had an attempt that ended in this phase. While its data is fetched, none has."""
    return phase != Phase.FETCHING


def process_of(phase: int, process_number: int) -> int | None:
    """The worker process that had a stored attempt; None if none had it, or nobody knows which."""
    return process_number if had_worker(phase) and process_number >= 0 else None


def status_of(state: int, cause: int, phase: int) -> str:
    """How an attempt ended. `phase`: what was being done then (states.Phase)."""
    if state == AttemptState.SUCCEEDED:
        return "RUN_DONE"
    if state == AttemptState.RUNNING:
        return "LEASED"
    known = Cause(cause)
    traits = TRAITS[known]
    if traits.has_stage:
        return f"{_STAGES.get(Phase(phase), 'RUN')}_{known.name}"
    return traits.status or known.name
