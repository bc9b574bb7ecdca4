"""What each cause of failure means: one row for each cause, and nothing about a cause anywhere else in the master."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from windrow_master.core.states import Cause

USER_ERROR = "UserError"
"""The entry script, its arguments, the input, or settings of the job."""
SYSTEM_ERROR = "SystemError"
"""Windrow itself, or a machine."""
DEPENDENCY_ERROR = "DependencyError"
"""Storage or network that the job needs."""


class Budget(Enum):
    """Which tries a failure uses up."""

    MAX_RETRIES = "max_retries"
    """The job's `max_retries`, shared by all causes that name it."""
    CRASHES = "crashes"
    OOMS = "ooms"
    INPUT_CHANGES = "input_changes"
    """How many nodes found the input changed."""
    NODE_LOSSES = "node_losses"
    NO_SECOND_TRY = "no_second_try"
    NOBODY = "nobody"
    """The mini-batch may be tried again without limit."""


class CauseTraits(NamedTuple):
    """What the master knows about one cause."""

    budget: Budget
    category: str
    """The kind of error in reports, where it strikes a worker."""
    status: str = ""
    """The name in reports of an attempt that ended so; empty: the name of the cause."""
    has_stage: bool = False
    """It may strike in each stage of an attempt, and its status names the stage."""
    is_storages: bool = False
    """Where it strikes while the node fetches, the storage is at fault."""
    found_by_master: bool = False
    """Only the master finds it: an agent that reports it is not believed."""
    of_items: bool = False
    """The cause of items alone, never of an attempt: an agent that reports it for an attempt is not believed."""
    needs_worker: bool = False
    """It occurs only in a worker that was ready."""
    ends_process: bool = False
    """The worker process has ended with it."""
    loses_time: bool = False
    """Its worker's time counts as lost, not as retried: neither script nor input is at fault."""


TRAITS: dict[Cause, CauseTraits] = {
    Cause.NONE: CauseTraits(Budget.NOBODY, ""),
    Cause.EXCEPTION: CauseTraits(Budget.MAX_RETRIES, USER_ERROR, "RUN_EXCEPTION", needs_worker=True),
    Cause.TIMEOUT: CauseTraits(
        Budget.MAX_RETRIES, USER_ERROR, has_stage=True, is_storages=True, needs_worker=True, ends_process=True
    ),
    Cause.BAD_RETURN: CauseTraits(Budget.MAX_RETRIES, USER_ERROR, "RUN_EXCEPTION", needs_worker=True),
    Cause.CRASH: CauseTraits(Budget.CRASHES, USER_ERROR, has_stage=True, needs_worker=True, ends_process=True),
    Cause.OOM: CauseTraits(Budget.OOMS, USER_ERROR, has_stage=True, needs_worker=True, ends_process=True),
    Cause.INIT_FAILED: CauseTraits(Budget.NOBODY, USER_ERROR),
    Cause.LOAD_FAILED: CauseTraits(
        Budget.MAX_RETRIES, USER_ERROR, "LOAD_EXCEPTION", is_storages=True, needs_worker=True
    ),
    Cause.INPUT_CHANGED: CauseTraits(Budget.INPUT_CHANGES, USER_ERROR, "LOAD_EXCEPTION", needs_worker=True),
    Cause.NODE_FAULT: CauseTraits(Budget.NOBODY, SYSTEM_ERROR, loses_time=True),
    Cause.NODE_LOST: CauseTraits(
        Budget.NODE_LOSSES, SYSTEM_ERROR, found_by_master=True, ends_process=True, loses_time=True
    ),
    Cause.PREEMPTED: CauseTraits(Budget.NOBODY, SYSTEM_ERROR, loses_time=True),
    Cause.ROWS_LOST: CauseTraits(Budget.NOBODY, SYSTEM_ERROR, found_by_master=True, loses_time=True),
    Cause.CANCELLED: CauseTraits(Budget.NOBODY, "", loses_time=True),
    Cause.NODE_KILLER: CauseTraits(
        Budget.NO_SECOND_TRY, SYSTEM_ERROR, found_by_master=True, ends_process=True, loses_time=True
    ),
    Cause.OUTPUT_FAILED: CauseTraits(Budget.MAX_RETRIES, DEPENDENCY_ERROR, "RETURN_EXCEPTION", needs_worker=True),
    Cause.INPUT_MISREAD: CauseTraits(Budget.NO_SECOND_TRY, SYSTEM_ERROR, "LOAD_EXCEPTION", needs_worker=True),
    Cause.MARKED: CauseTraits(Budget.NOBODY, USER_ERROR, of_items=True),
}


def reported_cause(number: int) -> Cause:
    """The cause that an agent reports for an attempt. A cause that is unknown, that only the master finds, or that
    only items have, counts as an exception.
    """
    try:
        cause = Cause(number)
    except ValueError:
        return Cause.EXCEPTION
    traits = TRAITS[cause]
    return Cause.EXCEPTION if traits.found_by_master or traits.of_items else cause
