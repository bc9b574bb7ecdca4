"""How often a mini-batch may fail before it is given up: each cause uses up one budget (`causes`)."""

from __future__ import annotations

from windrow_master.core.causes import TRAITS, Budget
from windrow_master.core.mini_batches import Tries
from windrow_master.core.settings import CRASH_TRIES, INPUT_CHANGED_TRIES, NODE_LOSSES_UNTIL_FAILED, OOM_TRIES
from windrow_master.core.state import Step
from windrow_master.core.states import Cause


def uncount_failure(tries: Tries, cause: Cause) -> None:
    """Take back what `count_failure` has charged for one attempt. A budget of which nothing is used up any more is not
    named, as after a restart.
    """
    budget = TRAITS[cause].budget
    if budget != Budget.NOBODY:
        tries.failures[budget] -= 1
        if not tries.failures[budget]:
            del tries.failures[budget]


def count_failure(step: Step, mini_batch: int, lease_id: int, cause: Cause) -> int:
    """Charge a failed attempt to the budget of its cause; return how many failures that budget has seen."""
    tries = step.tries_of(mini_batch)
    (tries.lost_lease_ids if cause == Cause.NODE_LOST else tries.lease_ids).add(lease_id)
    budget = TRAITS[cause].budget
    if budget == Budget.NOBODY:
        return 0
    tries.failures[budget] += 1
    return tries.failures[budget]


def budget_left(step: Step, failures: int, cause: Cause, *, elsewhere: bool) -> bool:
    """Whether a mini-batch may be tried again after this number of failures of the cause's budget
    (docs/explanation/failures.md#causes). `elsewhere`: there is another node for it.
    """
    budget = TRAITS[cause].budget
    if budget == Budget.NOBODY:
        return True
    tries = {
        Budget.MAX_RETRIES: step.settings.max_retries + 1,
        Budget.CRASHES: CRASH_TRIES,
        Budget.OOMS: OOM_TRIES,
        Budget.NODE_LOSSES: NODE_LOSSES_UNTIL_FAILED,
        Budget.INPUT_CHANGES: INPUT_CHANGED_TRIES if elsewhere else 0,
        Budget.NO_SECOND_TRY: 0,
    }
    return failures < tries[budget]
