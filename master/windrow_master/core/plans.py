"""Groups of planned mini-batches become part of their step, each exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from windrow_master.core.causes import USER_ERROR
from windrow_master.core.commands import AwaitPlanner, Moment, PlanGroup, TakenOver
from windrow_master.core.headers import HeaderMisfit, HeaderTooLong, join_headers
from windrow_master.core.records import PLAN_RECORD, RANK, OutcomeRow, PlannedRows, RowBlock
from windrow_master.core.state import CoreState, Job, Step
from windrow_master.core.states import MiniBatchState, StepState
from windrow_master.core.steps import fail_step, settle_step, warn
from windrow_master.limits import how_to_raise

DIVIDED_AHEAD = 10_000
"""A step of which fewer mini-batches are ready is divided on, whatever waits of other steps: those may wait for nodes
that never come."""
RESUMES_AT = 0.75
"""Dividing that paused goes on when the mini-batches that are ready have become fewer, by this share of the limit: a
planner has to be worth its start."""


def must_wait(state: CoreState, step: Step, share: float = 1.0) -> bool:
    """Whether the input of a step is not to be divided further now, since enough mini-batches are ready.

    It ends by itself: mini-batches of the step that are ready run, or their step ends. `share`: the share of the
    numbers that counts, `RESUMES_AT` for a step that already waits.
    """
    most = state.limits.ready_mini_batches * share
    if len(step.ready) < min(DIVIDED_AHEAD * share, most):
        return False
    return sum(len(other.ready) for other in state.steps.values()) >= most


def _passed_limit(job: Job, step: Step, count: int, state: CoreState) -> str:
    """Why a step may not have `count` more mini-batches; empty if it may."""
    of_step, of_job = step.counters.planned + count, sum(other.counters.planned for other in job.steps) + count
    for name, found, most, whose in (
        ("mini_batches_per_step", of_step, state.limits.mini_batches_per_step, "it"),
        ("mini_batches_per_job", of_job, state.limits.mini_batches_per_job, f"job {job.job_id}"),
    ):
        if found > most:
            change = "a smaller --rank_mini_batch_count" if step.settings.without_input else "a larger mini_batch_size"
            return (
                f"The input of step {step.settings.name!r} was not divided to its end: {whose} would have more than "
                f"{most:,} mini-batches, which is the limit {name} of this master. Give the step {change}; or "
                f"{how_to_raise(name)}."
            )
    return ""


def on_plan_group(state: CoreState, command: PlanGroup, now: Moment) -> bool:
    """Add a group of mini-batches to its step, exactly once: the group must continue from the stored checkpoint. One
    with which the step would pass a limit fails it."""
    step = state.steps.get(command.step_id)
    if step is None or step.state != StepState.RUNNING or step.plan.is_done or step.plan.checkpoint != command.start:
        return False
    if command.first_mini_batch != len(step.mini_batches) or (command.reader is None and step.plan.reader is None):
        return False
    job = state.jobs[step.job_key]
    if passed := _passed_limit(job, step, len(command.records) // PLAN_RECORD.size, state):
        fail_step(state, step, passed, now, USER_ERROR)
        return False
    items = step.mini_batches.append(command.records)
    count = len(step.mini_batches) - command.first_mini_batch
    if command.reader is not None:
        step.plan.reader = command.reader
    step.plan.checkpoint = command.end
    step.plan.is_done = command.done
    step.counters.planned += count
    step.counters.items_total += items
    for taken in command.taken:
        _take_over(state, job, step, taken)
    _queue(step, command)
    step.progress.last_s = now.monotonic_s
    if count and not command.first_mini_batch:
        state.add_event(now, job.job_key, "first_task_scheduled", step.settings.name)
    if command.done:
        state.add_event(now, job.job_key, "all_tasks_scheduled", step.settings.name)
    if count:
        state.dirty.planned.append(
            PlannedRows(step.step_id, command.first_mini_batch, job.generation, command.records, command.ranks)
        )
    for warning in command.warnings:
        warn(job, warning)
    step.counters.misfits_planned += command.misfits
    step.counters.add_notes(command.notes)
    state.touch_step(step)
    state.scheduling_wanted = True
    if command.header is not None:
        try:
            step.header = join_headers(step.settings.row_format, step.header, command.header)
        except (HeaderMisfit, HeaderTooLong) as error:
            fail_step(state, step, str(error), now, USER_ERROR)
            return True
    if command.done:
        settle_step(state, step, now)
    return True


def _take_over(state: CoreState, job: Job, step: Step, taken: TakenOver) -> None:
    """Give a newly planned mini-batch the outcome that it had in an earlier job."""
    counters, table = step.counters, step.mini_batches
    table.become(taken.mini_batch, MiniBatchState.SUCCEEDED)
    counters.succeeded += 1
    counters.taken_over += 1
    if not table.item_counts[taken.mini_batch]:
        counters.items_total += taken.item_count
    counters.items_ok += taken.item_count
    counters.items_taken_over += taken.item_count
    counters.rows += taken.row_count
    counters.output_bytes += taken.length
    block = -1
    if taken.source:
        block = len(state.dirty.row_blocks)
        state.dirty.row_blocks.append(
            RowBlock(
                job.job_id,
                step.step_id,
                length=taken.length,
                crc32=taken.crc32,
                source=taken.source,
                offset=taken.offset,
            )
        )
    state.dirty.outcomes.append(
        OutcomeRow(
            step.step_id,
            taken.mini_batch,
            state=MiniBatchState.SUCCEEDED,
            generation=job.generation,
            item_count=taken.item_count,
            ok_count=taken.item_count,
            rows=block,
            row_count=taken.row_count,
        )
    )


def _queue(step: Step, command: PlanGroup) -> None:
    """Make those of the group ready that have no outcome yet."""
    first, stop = command.first_mini_batch, len(step.mini_batches)
    if not command.ranks:
        for begin, end in _gaps(first, stop, command.taken):
            step.ready.add_fresh(begin, end)
        return
    done = {taken.mini_batch for taken in command.taken}
    ranked = zip(range(first, stop), RANK.iter_unpack(command.ranks), strict=True)
    left = [(index, rank) for index, (rank,) in ranked if index not in done]
    entries = step.ready.add_ranked([index for index, _ in left], [rank for _, rank in left])
    if step.nodes.preferred is not None:
        step.nodes.preferred.sort(entries, step.mini_batches.recipe_crcs)


def _gaps(first: int, stop: int, taken: Sequence[TakenOver]) -> Iterator[tuple[int, int]]:
    """Runs of mini-batches from `first` to `stop`, without those that are taken over."""
    for one in taken:
        if first < one.mini_batch:
            yield first, one.mini_batch
        first = one.mini_batch + 1
    if first < stop:
        yield first, stop


def on_await_planner(state: CoreState, command: AwaitPlanner, now: Moment) -> None:
    """Note that a step waits until it may be divided, or that it need not any more: then its clock begins."""
    step = state.steps.get(command.step_id)
    if step is None or step.state != StepState.RUNNING:
        return
    step.progress.waits_for_planner = command.waits
    if not command.waits:
        step.progress.started_s = step.progress.last_s = now.monotonic_s
