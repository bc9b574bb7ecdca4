"""When a mini-batch of a step is split, and what its failed attempts mean then. `splitting` says how.

A step splits at most `StepSettings.split` mini-batches at a time: the others wait in its ready queue, without a moment
at which they are due, until one of these has its outcome.

Invariants:
1. What is in `StepSplits.running` has a `Split`, and no outcome.
2. What is in `StepSplits.waiting` is QUEUED, and in the ready queue for no time.
"""

from __future__ import annotations

import math

from windrow_master.core.attempt_result import AttemptResult
from windrow_master.core.causes import TRAITS, Budget
from windrow_master.core.commands import Moment
from windrow_master.core.settings import SPLIT_TRIES
from windrow_master.core.splitting import (
    IN_VAIN_MAX,
    SPLIT_AT_LAST,
    SPLIT_AT_ONCE,
    WITH_ITEMS,
    FailedItems,
    begin,
    count_of,
    is_piece,
    note_death,
    read_items,
    with_rest,
)
from windrow_master.core.state import CoreState, Step
from windrow_master.core.states import Cause, MiniBatchState, Phase
from windrow_master.core.steps import warn_of

SINGLE_ROWS = 3
"""The number of mini-batches with one row for several items after which a script seems to return one row per group."""

WAITS = math.inf
"""The delay of a mini-batch that waits for its turn to be split."""


def goes_on(step: Step, mini_batch: int, cause: Cause, message: str, result: AttemptResult, *, left: bool) -> bool:
    """Whether a mini-batch is tried again, given an attempt that failed; begins or continues splitting it.

    `left`: it has tries left, by the budget of the cause.
    """
    settings = step.settings
    if not settings.split:
        return left
    tries = step.tries_of(mini_batch)
    split = tries.split
    if cause not in SPLIT_AT_ONCE and cause not in SPLIT_AT_LAST:
        if left or split is None or TRAITS[cause].budget != Budget.MAX_RETRIES:
            return left
        # The failures that led to splitting have used the budget up. One bad read must not cost all good items.
        split.others += 1
        return split.others <= SPLIT_TRIES
    if split is None:
        if (left and cause not in SPLIT_AT_ONCE) or Phase(result.phase) not in WITH_ITEMS:
            return left
        items = step.mini_batches.item_counts[mini_batch] or result.item_count
        if items < 2 or _is_in_vain(step):
            return left
        tries.split = split = begin(items)
    elif _all_failed(step, mini_batch, result):
        return False
    first, count = result.piece_first, result.piece_count
    if is_piece(split, first, count):
        note_death(split, first, count, cause, message)
    elif mini_batch in step.splits.running:
        split.others += 1
        return split.others <= SPLIT_TRIES
    return not split.is_over


def turn_of(step: Step, mini_batch: int) -> float:
    """The delay with which a mini-batch is queued again: none, or `WAITS` if it is to be split and others are."""
    tries = step.mini_batches.tries.get(mini_batch)
    splits = step.splits
    if tries is None or tries.split is None or mini_batch in splits.running:
        return 0.0
    if len(splits.running) < step.settings.split:
        splits.running.add(mini_batch)
        return 0.0
    splits.waiting.append(mini_batch)
    return WAITS


def end(state: CoreState, step: Step, mini_batch: int, now: Moment, *, found_good: bool) -> None:
    """A mini-batch has its outcome: the next one that waits is split. `found_good`: some of its items count."""
    splits = step.splits
    if mini_batch not in splits.running:
        return
    splits.running.discard(mini_batch)
    splits.in_vain = 0 if found_good else splits.in_vain + 1
    splits.ok_seen = step.counters.items_ok
    while splits.waiting and len(splits.running) < step.settings.split:
        following = splits.waiting.popleft()
        tries = step.mini_batches.tries.get(following)
        if step.mini_batches.states[following] != MiniBatchState.QUEUED or not step.ready.remove(following):
            continue
        if tries is not None and _is_in_vain(step):
            tries.split = None  # one more attempt with all its items, and it is given up
        else:
            splits.running.add(following)
        step.ready.put_back(following, now.monotonic_s, step.past_of(following))
        state.scheduling_wanted = True


def tell_of_groups(state: CoreState, step: Step) -> None:
    """Tell, once, of a script whose only row seems to stand for its whole mini-batch."""
    step.splits.single_rows += 1
    if step.splits.single_rows == SINGLE_ROWS:
        warn_of(
            state,
            step,
            f"Step {step.settings.name!r}: run() returns one row for mini-batches of several items, and all items but "
            "one count as failed. If that row stands for all of them, say so: --returns per_group, in "
            "program_arguments of the job file or, without one, as an option.",
        )


def failed_items(
    step: Step, mini_batch: int, items: int, cause: Cause, message: str, result: AttemptResult | None
) -> list[FailedItems]:
    """Every item of a mini-batch that failed, each with what is known of it."""
    found: list[FailedItems] = []
    if result is not None and result.failed_items:
        found = read_items(result.failed_items, items) or []
    tries = step.mini_batches.tries.get(mini_batch)
    if not found and tries is not None and tries.split is not None:
        found = tries.split.given_up
    if not found or not items:
        return [FailedItems(0, items, cause, message)]
    return with_rest(found, items, cause, message)


def _all_failed(step: Step, mini_batch: int, result: AttemptResult) -> bool:
    """Whether an attempt has found that no item of its mini-batch is good."""
    if not result.failed_items:
        return False
    items = step.mini_batches.item_counts[mini_batch] or result.item_count
    return count_of(read_items(result.failed_items, items) or []) == items


def _is_in_vain(step: Step) -> bool:
    """Whether splitting has found nothing good so often that the items are not to blame."""
    return step.splits.in_vain >= IN_VAIN_MAX and step.counters.items_ok == step.splits.ok_seen
