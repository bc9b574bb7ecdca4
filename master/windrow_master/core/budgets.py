"""How often a mini-batch may fail before it is given up: each kind of cause has a budget of its own."""

from __future__ import annotations

from windrow_master.core.mini_batches import Tries
from windrow_master.core.settings import CRASH_TRIES, INPUT_CHANGED_TRIES, NODE_LOSSES_UNTIL_FAILED, OOM_TRIES
from windrow_master.core.state import Step
from windrow_master.core.states import Cause

CHARGED_CAUSES = frozenset((Cause.EXCEPTION, Cause.TIMEOUT, Cause.BAD_RETURN, Cause.LOAD_FAILED, Cause.OUTPUT_FAILED))
"""Causes that use up max_retries."""

MASTER_CAUSES = frozenset((Cause.NODE_LOST, Cause.ROWS_LOST, Cause.NODE_KILLER))
"""Causes that only the master finds; from a peer they count as exceptions."""

ITEM_CAUSES = frozenset((Cause.MARKED,))
"""Causes of items, never of attempts: of an attempt, they count as exceptions."""

FREE_CAUSES = frozenset((Cause.NODE_FAULT, Cause.PREEMPTED, Cause.CANCELLED, Cause.INIT_FAILED, Cause.ROWS_LOST))
"""Causes charged to nobody."""


def known_cause(number: int) -> Cause:
    """The cause that a peer names. A cause that is unknown, or that no peer can know, counts as an exception."""
    try:
        cause = Cause(number)
    except ValueError:
        return Cause.EXCEPTION
    return Cause.EXCEPTION if cause in MASTER_CAUSES | ITEM_CAUSES else cause


def uncount_failure(tries: Tries, cause: Cause) -> None:
    """Take back what `count_failure` has charged for one attempt."""
    if cause in CHARGED_CAUSES:
        tries.charged -= 1
    elif cause == Cause.CRASH:
        tries.crashes -= 1
    elif cause == Cause.OOM:
        tries.ooms -= 1
    elif cause == Cause.INPUT_CHANGED:
        tries.changes -= 1


def count_failure(step: Step, mini_batch: int, lease_id: int, cause: Cause) -> int:
    """Charge a failed attempt to the budget of its cause; return how many failures that budget has seen."""
    tries = step.tries_of(mini_batch)
    (tries.lost_lease_ids if cause == Cause.NODE_LOST else tries.lease_ids).add(lease_id)
    if cause in CHARGED_CAUSES:
        tries.charged += 1
        return tries.charged
    if cause == Cause.CRASH:
        tries.crashes += 1
        return tries.crashes
    if cause == Cause.OOM:
        tries.ooms += 1
        return tries.ooms
    if cause == Cause.NODE_LOST:
        tries.node_losses += 1
        return tries.node_losses
    if cause == Cause.INPUT_CHANGED:
        tries.changes += 1
        return tries.changes
    return 0


def budget_left(step: Step, failures: int, cause: Cause, *, elsewhere: bool) -> bool:
    """Whether a mini-batch with so many failures for this cause may be tried again (architecture, failure policy).
    `elsewhere`: another node is there for it.
    """
    if cause in FREE_CAUSES:
        return True
    limits = {
        Cause.CRASH: CRASH_TRIES,
        Cause.OOM: OOM_TRIES,
        Cause.NODE_LOST: NODE_LOSSES_UNTIL_FAILED,
        Cause.INPUT_CHANGED: INPUT_CHANGED_TRIES if elsewhere else 0,
        Cause.INPUT_MISREAD: 0,
    }
    return failures < limits.get(cause, step.settings.max_retries + 1)
