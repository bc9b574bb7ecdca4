"""Committed rows that cannot be read again: their mini-batches run again."""

from __future__ import annotations

from windrow.common.quantities import counted

from windrow_master.core.budgets import count_failure
from windrow_master.core.causes import SYSTEM_ERROR
from windrow_master.core.commands import LostRows, Moment, RequeueLostRows
from windrow_master.core.records import AttemptRow, OutcomeRow
from windrow_master.core.settings import ROWS_LOSSES_MAX
from windrow_master.core.state import CoreState, Step
from windrow_master.core.states import AttemptState, Cause, MiniBatchState, StepState
from windrow_master.core.steps import fail_step, settle_step
from windrow_master.core.thresholds import short_returns_fail


def on_requeue_lost_rows(state: CoreState, command: RequeueLostRows, now: Moment) -> None:
    """Put mini-batches whose committed rows cannot be read back into the queue.

    This is charged to nobody. Earlier charges stay, as they do over a restart.
    """
    step = state.steps.get(command.step_id)
    if step is None or step.state != StepState.CONCATENATING:
        return
    job = state.jobs[step.job_key]
    if command.generation != job.generation:
        return
    counters, table = step.counters, step.mini_batches
    for lost in command.lost:
        losses = 1 + sum(cause == Cause.ROWS_LOST for _, cause in lost.failures)
        if losses >= ROWS_LOSSES_MAX and table.lease_ids[lost.mini_batch] == lost.lease_id:
            message = (
                f"the committed rows of mini-batch {lost.mini_batch} were lost {losses} times: each time they failed "
                "their checksum or could not be read. Check the disk of the master's state folder, then run the job "
                "again."
            )
            fail_step(state, step, message, now, SYSTEM_ERROR)
            return
    for lost in command.lost:
        if table.lease_ids[lost.mini_batch] != lost.lease_id:
            continue
        succeeded = table.states[lost.mini_batch] == MiniBatchState.SUCCEEDED
        if succeeded:
            counters.succeeded -= 1
            if not lost.lease_id:
                counters.taken_over -= 1
                counters.items_taken_over -= lost.ok_count
        else:
            counters.failed -= 1
            counters.failed_uncounted -= not lost.item_count
        counters.items_ok -= lost.ok_count
        counters.items_failed -= lost.item_count - lost.ok_count
        # A mini-batch fails with rows by a threshold for items, or because some of its items failed alone.
        short = succeeded or short_returns_fail(step)
        if short and lost.item_count > lost.ok_count:
            counters.take_back_short_return(lost.item_count - lost.ok_count)
        if not table.item_counts[lost.mini_batch]:
            counters.items_total -= lost.item_count  # known only after loading, which happens again
        counters.rows -= lost.row_count
        counters.output_bytes -= lost.rows_length
        counters.retries += 1
        message = "Its committed rows failed their checksum or could not be read; the mini-batch runs again."
        counters.add_failure(Cause.ROWS_LOST, lost.mini_batch, message, "", "", 0)
        table.become(lost.mini_batch, MiniBatchState.QUEUED)
        table.lease_ids[lost.mini_batch] = 0
        tries = table.tries.pop(lost.mini_batch, None)
        failures = list(lost.failures)
        if lost.lease_id:
            failures.append((lost.lease_id, Cause.ROWS_LOST))
            state.dirty.attempts.append(_verdict(step, lost, job.generation, message))
        for lease_id, cause in failures:
            count_failure(step, lost.mini_batch, lease_id, cause)
        if failures:
            table.attempts[lost.mini_batch] = len(failures)
        if tries is not None:
            step.tries_of(lost.mini_batch).nodes = tries.nodes
            step.tries_of(lost.mini_batch).kinds = tries.kinds
        step.ready.put_back(lost.mini_batch, now.monotonic_s, step.past_of(lost.mini_batch))
        state.dirty.item_outcomes_cleared.append((step.step_id, lost.mini_batch))
        state.dirty.outcomes.append(
            OutcomeRow(step.step_id, lost.mini_batch, state=MiniBatchState.QUEUED, generation=job.generation)
        )
    step.become(StepState.RUNNING)
    step.message = ""
    step.progress.last_s = now.monotonic_s
    state.touch_step(step)
    state.add_event(
        now, job.job_key, "rows_lost", f"{counted(len(command.lost), 'mini-batch')} of {step.settings.name} lost"
    )
    state.scheduling_wanted = True
    settle_step(state, step, now)


def _verdict(step: Step, lost: LostRows, generation: int, message: str) -> AttemptRow:
    """The row for the attempt that made the lost rows. Rows that were taken over have no attempt in this job."""
    return AttemptRow(
        lease_id=lost.lease_id,
        step_id=step.step_id,
        mini_batch=lost.mini_batch,
        generation=generation,
        state=AttemptState.FAILED,
        cause=Cause.ROWS_LOST,
        item_count=lost.item_count,
        result_count=lost.ok_count,
        message=message,
    )
