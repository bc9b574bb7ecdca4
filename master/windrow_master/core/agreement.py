"""Whether what was planned and what was read agree. Checked with each result, and again at the end of a step, before
its output is made.

Each fact is counted in two places that know nothing of each other, and the two numbers must be equal:

1. The items of a mini-batch: the planner's number (where it counts) and the worker's.
2. The mini-batches and items of a step: the planner's last checkpoint and the plan as it was received and stored.
3. The outcomes: the kept counters and the states of the mini-batches.
4. The items: those of the plan and those of the outcomes. Where the number in a mini-batch is known only after loading,
   the sum of the others is a lower bound.

That the plan covers the input is the planner's to check (`windrow_master.planning.tables.cut`), and that each part
holds what was cut is the worker's (`windrow_worker.tables.files`): those have the files before them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from windrow.common.quantities import counted

from windrow_master.core.state import Step
from windrow_master.core.states import Cause, MiniBatchState

WHAT_TO_DO = (
    "No output is made of it. Run the job again as a new one, so that its input is divided again. If that "
    "fails as well, report it, with the master's version of Python."
)


def miscount(planned: int, read: int) -> str:
    """What is wrong with a result if the worker read a different number of items than was planned."""
    return (
        f"{counted(planned, 'item')} of this mini-batch were planned, but the worker has read "
        f"{counted(read, 'item')}: its input was not read as it was divided."
    )


def misread(step: Step) -> str:
    """Why a step fails, whatever its thresholds, if a part of its input was not read as it was planned; otherwise
    empty. The parts beside that one may have been read wrongly as well, without anybody noticing.
    """
    key = str(int(Cause.INPUT_MISREAD))
    attempts = step.counters.failed_attempts.get(key, 0)
    if not attempts:
        return ""
    example = step.counters.examples.get(key, {})
    return (
        f"{counted(attempts, 'mini-batch')} could not be read as the input was divided, so rows of others may be wrong "
        f"as well. {WHAT_TO_DO} The first, mini-batch {example.get('mini_batch')}: {example.get('message', '')}"
    )


def disagreement(step: Step) -> str:
    """Why a step fails although all its mini-batches have an outcome: two numbers that must be equal are not. Empty
    if all agree.
    """
    for what, one, first, other, second in _pairs(step):
        if first != second:
            return f"the number of its {what} does not agree: {first:,} by {one}, {second:,} by {other}. {WHAT_TO_DO}"
    return ""


def _pairs(step: Step) -> Iterator[tuple[str, str, int, str, int]]:
    """Everything that is counted twice, as (what, one counter, its number, other counter, its number)."""
    counters, table = step.counters, step.mini_batches
    checkpoint = json.loads(step.plan.checkpoint or b"{}")
    planner, plan, results, states = "the planner", "the stored plan", "the results", "the mini-batches' own states"
    planned_items = sum(table.item_counts)
    yield "mini-batches", planner, checkpoint.get("mini_batches", 0), plan, len(table)
    yield "mini-batches", plan, len(table), "the step's counters", counters.planned
    yield "items", planner, checkpoint.get("items", 0), plan, planned_items
    yield (
        "mini-batches that succeeded",
        results,
        counters.succeeded,
        states,
        table.states.count(MiniBatchState.SUCCEEDED),
    )
    yield "mini-batches that failed", results, counters.failed, states, table.states.count(MiniBatchState.FAILED)
    yield "mini-batches with an outcome", results, counters.ended, plan, len(table)
    items = counters.items_ok + counters.items_failed
    yield "items", results, items, "the step's counters", counters.items_total
    if 0 not in table.item_counts:
        yield "items", results, items, plan, planned_items
    else:
        yield "items, without those that only loading tells", results, min(items, planned_items), plan, planned_items
