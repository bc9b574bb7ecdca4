"""Completions, releases and losses: where an attempt ends, and what that means for its mini-batch.

State machine of an attempt, keyed by its lease: `transitions.ATTEMPT`. Most leases end before they are written down.

Invariants:
1. Every completion gets exactly one verdict. An agent that repeats one does so on a new stream, whose hello names the
   lease: the same lease then gets the same verdict for as long as its step runs.
2. Only a completion whose lease is live, is the sender's own and has the job's generation changes a mini-batch.
3. A mini-batch gets one final outcome; a SUCCEEDED attempt exists at most once for each (UNIQUE in the store).
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from windrow.common.failure_kinds import within

from windrow_master.core import splits
from windrow_master.core.agreement import miscount
from windrow_master.core.attempt_result import AttemptResult
from windrow_master.core.blame import fail_if_given_up, note_failure, note_success, quarantine_if_faulty
from windrow_master.core.bounds import DURATION_US_MAX, MISFITS_MAX, cache_use_told, measures, start_told
from windrow_master.core.budgets import budget_left, count_failure
from windrow_master.core.causes import TRAITS, USER_ERROR, Budget, reported_cause
from windrow_master.core.commands import (
    UNANSWERED,
    CompleteAttempts,
    CutShort,
    Moment,
    NoteProgress,
    ReleaseLeases,
    StepsRaised,
)
from windrow_master.core.headers import HeaderMisfit, HeaderTooLong, join_headers
from windrow_master.core.ids import LeaseId
from windrow_master.core.leases import Lease
from windrow_master.core.ledger import count_attempt, count_start, kind_of
from windrow_master.core.lifetimes import note_cut_off
from windrow_master.core.pace import RETRY_AFTER_MAX_S, retry_delay_s
from windrow_master.core.pools import has_other_node
from windrow_master.core.records import AttemptRow, ItemOutcomeRow, OutcomeRow, RowBlock
from windrow_master.core.settings import NODE_LOSSES_UNTIL_FAILED
from windrow_master.core.speculation import supersede_rival
from windrow_master.core.splitting import FailedItems, count_of, read_items, short_message
from windrow_master.core.state import Charge, CoreState, Job, Node, Step
from windrow_master.core.states import ENDED_STEPS, AttemptState, Cause, MiniBatchState, Verdict
from windrow_master.core.statuses import had_worker
from windrow_master.core.steps import MESSAGE_CHARS_MAX, fail_step, settle_step
from windrow_master.core.thresholds import NOT_PER_ITEM, short_returns_fail

NO_FAILURES = frozenset((Cause.PREEMPTED, Cause.CANCELLED))
"""Causes for which neither the mini-batch nor the node is to blame."""

SUCCEEDED, FAILED = MiniBatchState.SUCCEEDED, MiniBatchState.FAILED
"""For the hot path: to look an enum's member up costs more than the comparison."""

DETAIL_CHARS_MAX = 65536


def on_complete_attempts(state: CoreState, command: CompleteAttempts, now: Moment) -> dict[Verdict, list[int]]:
    """Take the results of many attempts; answer each."""
    verdicts: dict[Verdict, list[int]] = {}
    touched: dict[int, Step] = {}
    node = state.nodes.get(command.node_id)
    leases, steps = state.leases, state.steps
    step: Step | None = None
    try:
        for result in command.results:
            lease_id = result.lease_id
            lease = leases.get(lease_id)  # type: ignore[call-overload]
            if lease is None or lease.node_id != command.node_id or node is None:
                verdict = _judge_claim(state, node, lease_id)
            else:
                step = steps[lease.step_id]
                job = state.jobs[step.job_key]
                touched[lease.step_id] = step
                state.drop_lease(lease, step)
                if result.HasField("worker_start"):
                    start = start_told(result)
                    step.counters.add_start(start)
                    count_start(state, job, node, start.start_us + start.init_us, now)
                if result.HasField("data_cache"):
                    step.counters.add_cache_use(cache_use_told(result))
                    _note_data(state, node, step.mini_batches.recipe_crcs[lease.mini_batch])
                verdict = Verdict.ACCEPTED
                if lease.generation != job.generation:
                    _give_back(state, step, lease, now, min(result.elapsed_us, DURATION_US_MAX))
                    verdict = Verdict.JOB_ENDED
                elif result.cause:
                    _fail_attempt(state, node, job, step, lease, result, now)
                else:
                    _complete_attempt(state, node, job, step, lease, result, now)
                if lease.rival is not None and verdict == Verdict.ACCEPTED:
                    verdict = Verdict.SUPERSEDED  # it failed, and the other attempt of its mini-batch goes on
            verdicts.setdefault(verdict, []).append(lease_id)
    except Exception as error:
        if step is None:
            raise
        touched.pop(step.step_id, None)
        _settle_all(state, touched, now)
        raise StepsRaised({step.step_id: error, **state.take_raised()}, UNANSWERED) from error
    _settle_all(state, touched, now)
    return verdicts


def _note_data(state: CoreState, node: Node, recipe_crc: int) -> None:
    """Note that a node may have kept the data of a mini-batch."""
    if state.data_places is None:
        # Not at the top: most clusters have no node that keeps data.
        from windrow_master.core.data_places import DataPlaces

        state.data_places = DataPlaces()
    state.data_places.note(node.node_id, recipe_crc)


def _settle_all(state: CoreState, touched: dict[int, Step], now: Moment) -> None:
    """Settle these steps after some of their attempts have ended."""
    for step in touched.values():
        with state.contained(step):
            state.touch_step(step)
            settle_step(state, step, now)
    if touched:
        state.scheduling_wanted = True


def _judge_claim(state: CoreState, node: Node | None, lease_id: int) -> Verdict:
    """The verdict on a completion whose lease is not live: repeated, late, or of an earlier master."""
    claim = node.claims.get(LeaseId(lease_id)) if node is not None else None
    if claim is None:
        return Verdict.SUPERSEDED
    step_id, mini_batch = claim
    step = state.steps.get(step_id)
    if step is None:
        return Verdict.UNKNOWN
    if step.state in ENDED_STEPS:
        return Verdict.JOB_ENDED
    table = step.mini_batches
    if not 0 <= mini_batch < len(table):
        return Verdict.UNKNOWN
    tries = table.tries.get(mini_batch)
    if tries is not None and lease_id in tries.lost_lease_ids:
        return Verdict.SUPERSEDED
    if (lease_id and table.lease_ids[mini_batch] == lease_id) or (tries is not None and lease_id in tries.lease_ids):
        return Verdict.ACCEPTED
    return Verdict.SUPERSEDED


def _complete_attempt(
    state: CoreState, node: Node, job: Job, step: Step, lease: Lease, result: AttemptResult, now: Moment
) -> None:
    """Record an attempt whose `run()` returned: its outcome counts, and its rows go into the output."""
    # Each access to a field of a protobuf message makes a new object: once is enough.
    rows, rows_length, staged_segment, header = result.rows, result.rows_length, result.staged_segment, result.header
    if staged_segment and (not staged_segment.startswith(f"staged-{lease.lease_id}-") or "/" in staged_segment):
        _fail_attempt(
            state, node, job, step, lease, result, now, Cause.NODE_FAULT,
            f"The rows of this attempt were said to be in {staged_segment[:80]!r}, which is not where they were "
            f"uploaded. See the agent's log on {node.node_id}.",
        )  # fmt: skip
        return
    if len(rows) != rows_length and not staged_segment:
        _fail_attempt(
            state, node, job, step, lease, result, now, Cause.NODE_FAULT,
            f"The rows of this attempt arrived incomplete: {len(rows)} bytes of {rows_length}. "
            f"Look into the agent's log on {node.node_id}.",
        )  # fmt: skip
        return
    if rows and crc32(rows) != result.rows_crc32:
        _fail_attempt(
            state, node, job, step, lease, result, now, Cause.NODE_FAULT,
            f"The rows of this attempt arrived damaged: they have crc32 {crc32(rows):#010x}, and were sent with "
            f"{result.rows_crc32:#010x}. If this happens again, check the memory of {node.node_id} and the network.",
        )  # fmt: skip
        return
    if header and header != step.header:
        try:
            step.header = join_headers(step.settings.row_format, step.header, header)
        except HeaderTooLong as error:
            _fail_attempt(state, node, job, step, lease, result, now, Cause.BAD_RETURN, str(error))
            return
        except HeaderMisfit as error:
            # Which of the two came first depends on the time: not one of them fails, but the step.
            _fail_attempt(state, node, job, step, lease, result, now, Cause.BAD_RETURN, str(error))
            if step.state not in ENDED_STEPS:
                fail_step(state, step, str(error), now, USER_ERROR)
            return
    table, counters, mini_batch = step.mini_batches, step.counters, lease.mini_batch
    planned_items, results = table.item_counts[mini_batch], result.result_count
    items = result.item_count
    if planned_items and planned_items != items:
        _fail_attempt(state, node, job, step, lease, result, now, Cause.INPUT_MISREAD, miscount(planned_items, items))
        return
    short = items - results if results < items else 0
    named = read_items(result.failed_items, items) if short else []
    if named is None or (named and count_of(named) > short):
        _fail_attempt(
            state, node, job, step, lease, result, now, Cause.OUTPUT_FAILED,
            "What was said of the failed items of this attempt contradicts itself. It comes from the worker process: a "
            "script must not write into the channel of its worker.",
        )  # fmt: skip
        return
    if lease.rival is not None:
        supersede_rival(state, step, lease, now)
    node.faults = 0
    step.progress.last_s, step.progress.fault_message, step.workers.is_ready = now.monotonic_s, "", True
    if step.workers.init_failures:
        step.workers.init_failures.pop(node.node_id, None)
    ok = items - short
    if not planned_items:
        counters.items_total += items
    counters.items_ok += ok
    outcome, message = SUCCEEDED, ""
    if short:
        counters.items_failed += short
        message = short_message(items, results, named)
        if short_returns_fail(step) or any(one.cause != Cause.MARKED for one in named):
            outcome = FAILED
        if results == 1 and not named and step.settings.returns_items:
            splits.tell_of_groups(state, step)
        tries = table.tries.get(mini_batch)
        before = tries.kinds if tries is not None else []
        for one in named:
            counters.add_failed_items(before, mini_batch, one.count, one.cause, one.message, node.node_id)
        if unnamed := short - count_of(named):
            told = f"{message}. {NOT_PER_ITEM}"
            counters.add_short_return(mini_batch, unnamed, told, node.node_id, result.process_number)
    if outcome is SUCCEEDED:
        counters.succeeded += 1
        counters.add_duration(min(result.elapsed_us, DURATION_US_MAX))
    else:
        counters.failed += 1
    block, row_count = -1, 0
    if rows_length and step.settings.append_row:
        blocks, row_count = state.dirty.row_blocks, result.row_count
        if row_count > rows_length and step.settings.row_format != "parquet":
            # Each row of text is a byte at least. A Parquet file may have any number of rows that are all null.
            row_count = rows_length
        block = len(blocks)
        blocks.append(RowBlock(job.job_id, step.step_id, rows, staged_segment, rows_length, result.rows_crc32))
        counters.rows += row_count
        counters.output_bytes += rows_length
    standing = step.nodes.standings.get(node.node_id)
    if standing is None or standing.is_suspected or mini_batch in table.tries:
        note_success(state, step, node.node_id, mini_batch, now)
    else:
        standing.succeeded += 1
    if step.splits.running:
        splits.end(state, step, mini_batch, now, found_good=ok > 0)
    table.become(mini_batch, outcome)
    table.lease_ids[mini_batch] = lease_id = lease.lease_id
    state.dirty.outcomes.append(
        OutcomeRow(step.step_id, mini_batch, outcome, lease.generation, items, ok, lease_id, block, row_count)
    )
    _store_result(state, node, job, lease, result, now, AttemptState.SUCCEEDED, 0, message, "")
    if short:
        _store_failed_items(state, step, mini_batch, named)
        if unnamed:
            state.dirty.item_outcomes.append(
                ItemOutcomeRow(
                    step.step_id,
                    mini_batch,
                    item_first=table.item_firsts[mini_batch],
                    item_count=unnamed,
                    cause=Cause.NONE,
                    message=message + "; which of them are missing is not known",
                )
            )
    misfits = result.misfits
    if misfits:  # to begin a loop over an empty field costs more
        for misfit in misfits:
            counters.add_misfits(misfit.column, min(misfit.count, MISFITS_MAX), misfit.example)


def _fail_attempt(
    state: CoreState,
    node: Node,
    job: Job,
    step: Step,
    lease: Lease,
    result: AttemptResult,
    now: Moment,
    cause: Cause | None = None,
    message: str = "",
) -> None:
    """Record a failed attempt: try the mini-batch again, or give it up."""
    cause = reported_cause(result.cause) if cause is None else cause
    message = within(message or result.message, MESSAGE_CHARS_MAX)
    detail = result.detail[-DETAIL_CHARS_MAX:]
    process = result.process_number if had_worker(result.phase) else None
    kind = step.counters.add_failure(cause, lease.mini_batch, message, detail, lease.node_id, process, result.phase)
    step.tries_of(lease.mini_batch).kinds.append(kind)
    ending = AttemptState.ABANDONED if lease.trial or lease.rival is not None else AttemptState.FAILED
    _store_result(state, node, job, lease, result, now, ending, cause, message, detail)
    step.workers.is_ready = True
    if cause == Cause.NODE_FAULT:
        node.faults += 1
        step.progress.fault_message = f"{lease.node_id}: {message}"
    else:
        node.faults = 0
        step.progress.last_s, step.progress.fault_message = now.monotonic_s, ""
    delay_s = 0.0
    if cause == Cause.NODE_FAULT:
        quarantine_if_faulty(state, node, step, message, now)
        delay_s = state.timing.node_fault_delay_s
    if cause not in NO_FAILURES:
        step.tries_of(lease.mini_batch).nodes.append(lease.node_id)
    if lease.rival is None:
        _after_failure(state, step, lease, cause, kind, message, detail, result.item_count, now, delay_s, result)
    if cause not in NO_FAILURES:
        final = step.mini_batches.states[lease.mini_batch] == FAILED
        note_failure(state, step, lease, cause, message, now, final=final)


def _store_result(
    state: CoreState,
    node: Node,
    job: Job,
    lease: Lease,
    result: AttemptResult,
    now: Moment,
    ending: AttemptState,
    cause: int,
    message: str,
    detail: str,
) -> None:
    start_unix_us, elapsed_us, run_us, cpu_us, peak_rss_kib = measures(result)
    count_attempt(state, job, node, kind_of(ending, cause), elapsed_us, now)
    state.dirty.attempts.append(
        # Without the names of the fields: with them, this takes three times as long.
        AttemptRow(
            lease.lease_id,
            lease.step_id,
            lease.mini_batch,
            lease.generation,
            lease.node_id,
            node.node_incarnation,
            result.process_number,
            ending,
            cause,
            start_unix_us,
            elapsed_us,
            run_us,
            cpu_us,
            result.item_count,
            result.result_count,
            peak_rss_kib,
            message,
            detail,
            result.phase,
        )
    )


def _after_failure(
    state: CoreState,
    step: Step,
    lease: Lease,
    cause: Cause,
    kind: str,
    message: str,
    detail: str,
    item_count: int,
    now: Moment,
    delay_s: float = 0.0,
    result: AttemptResult | None = None,
) -> None:
    """Queue the mini-batch again, to be split if need be, or fail it if the budget of its cause is used up. `kind`: in
    `Counters.kinds`. `result`: None if its node was lost.
    """
    if lease.trial and cause != Cause.NODE_LOST:
        lease.attempt -= 1
        left = True
    else:
        failures = count_failure(step, lease.mini_batch, lease.lease_id, cause)
        left = budget_left(step, failures, cause, elsewhere=has_other_node(state, step, lease.mini_batch))
        if TRAITS[cause].budget == Budget.MAX_RETRIES:
            delay_s = max(delay_s, retry_delay_s(step.settings.retry_delay_s, failures, lease.lease_id))
        if result is not None:
            delay_s = max(delay_s, min(result.retry_after_us / 1e6, RETRY_AFTER_MAX_S))
            left = splits.goes_on(step, lease.mini_batch, cause, message, result, left=left)
    if left:
        step.counters.retries += 1
        requeue(state, step, lease, now, max(delay_s, splits.turn_of(step, lease.mini_batch)))
        return
    table, counters, mini_batch = step.mini_batches, step.counters, lease.mini_batch
    if cause == Cause.NODE_LOST:
        cause = Cause.NODE_KILLER
        message = f"{NODE_LOSSES_UNTIL_FAILED} nodes were lost while they held this mini-batch; it is given up."
    planned_items = table.item_counts[mini_batch]
    items = planned_items or item_count
    if not planned_items:
        counters.items_total += items
    counters.items_failed += items
    counters.failed += 1
    counters.failed_uncounted += not items
    tries = step.tries_of(mini_batch)
    failures = len(tries.lease_ids) + len(tries.lost_lease_ids)
    counters.give_up(kind, tries.kinds, failures, mini_batch, items, message, detail)
    table.become(mini_batch, MiniBatchState.FAILED)
    table.lease_ids[mini_batch] = lease.lease_id
    state.dirty.outcomes.append(
        OutcomeRow(
            step.step_id,
            mini_batch,
            state=MiniBatchState.FAILED,
            generation=lease.generation,
            item_count=items,
            lease_id=lease.lease_id,
        )
    )
    _store_failed_items(state, step, mini_batch, splits.failed_items(step, mini_batch, items, cause, message, result))
    splits.end(state, step, mini_batch, now, found_good=False)


def _store_failed_items(state: CoreState, step: Step, mini_batch: int, found: Sequence[FailedItems]) -> None:
    first = step.mini_batches.item_firsts[mini_batch]
    state.dirty.item_outcomes += [
        ItemOutcomeRow(
            step.step_id,
            mini_batch,
            item_first=first + one.first,
            item_count=one.count,
            cause=one.cause,
            message=within(one.message, MESSAGE_CHARS_MAX),
            place=one.place[:MESSAGE_CHARS_MAX],
        )
        for one in found
    ]


def requeue(state: CoreState, step: Step, lease: Lease, now: Moment, delay_s: float = 0.0) -> None:
    """Put the mini-batch of a lease that was already dropped back into the queue."""
    table = step.mini_batches
    table.become(lease.mini_batch, MiniBatchState.QUEUED)
    step.second_attempts.pop(lease.mini_batch, None)
    if lease.attempt:
        table.attempts[lease.mini_batch] = lease.attempt
    past = step.past_of(lease.mini_batch)
    step.ready.put_back(lease.mini_batch, now.monotonic_s, past, now.monotonic_s + delay_s if delay_s else 0.0)
    state.scheduling_wanted = True


def _give_back(
    state: CoreState,
    step: Step,
    lease: Lease,
    now: Moment,
    elapsed_us: int | None = None,
    cut_short: CutShort | None = None,
    why: str = "",
) -> None:
    """Put the mini-batch of a dropped lease back into the queue, unless another attempt of it runs. The attempt is
    neither counted nor charged. `elapsed_us`, `cut_short`: as `store_attempt` takes them. `why`: told with the attempt.
    """
    if lease.stored or cut_short is not None:
        state.store_attempt(
            lease, AttemptState.ABANDONED, now, Cause.PREEMPTED, why, elapsed_us=elapsed_us, cut_short=cut_short
        )
    if lease.rival is not None:
        return
    lease.attempt -= 1
    # Where the lease was an old one that its node came back with, the mini-batch may be waiting to be split since.
    requeue(state, step, lease, now, splits.turn_of(step, lease.mini_batch))


def on_release_leases(state: CoreState, command: ReleaseLeases, now: Moment) -> None:
    """Take back leases. Their attempts are neither counted nor charged; what they took is noted."""
    node = state.nodes.get(command.node_id)
    touched: dict[int, Step] = {}
    for number in command.lease_ids:
        lease_id = LeaseId(number)
        if node is not None:
            node.claims.pop(lease_id, None)
        lease = state.leases.get(lease_id)
        if lease is None or lease.node_id != command.node_id:
            continue
        step = state.steps[lease.step_id]
        touched[step.step_id] = step
        with state.contained(step):
            if node is not None:
                note_cut_off(node, step, lease, now)
            state.drop_lease(lease, step)
            _give_back(state, step, lease, now, 0, command.cut_short.get(number))
    for step in touched.values():
        if node is not None:
            node.recalled_s.pop(step.step_id, None)
        with state.contained(step):
            step.progress.last_s = now.monotonic_s
            state.touch_step(step)
            fail_if_given_up(state, step, now)


def on_note_progress(state: CoreState, command: NoteProgress, now: Moment) -> None:
    """Note that an attempt is about to end, as soon as its rows have arrived."""
    step = state.steps.get(command.step_id)
    if step is not None:
        step.progress.last_s = now.monotonic_s


def lose_leases(
    state: CoreState, node: Node, lease_ids: list[LeaseId], now: Moment, *, lost: bool, ran: bool = True, why: str = ""
) -> list[Charge]:
    """Take leases from a node that is gone, is leaving, or does not know them. `lost`: the loss counts against the
    mini-batches. `ran`: they may have run there. `why`: what is told of those that are charged to nobody. Return what
    was charged.
    """
    charges: list[Charge] = []
    touched: dict[int, Step] = {}
    for lease_id in lease_ids:
        lease = state.leases[lease_id]
        step = state.steps[lease.step_id]
        touched[step.step_id] = step
        with state.contained(step):
            note_cut_off(node, step, lease, now)
            state.drop_lease(lease, step)
            # Only a lease old enough to be written down can have been running; the others were in the node's queue.
            if lost and lease.stored and lease.rival is None:
                charges.append(_lose(state, node, step, lease, now))
            else:
                _give_back(state, step, lease, now, None if ran else 0, why=why)
    for step in touched.values():
        with state.contained(step):
            step.progress.last_s = now.monotonic_s
            state.touch_step(step)
            settle_step(state, step, now)
    return charges


def _lose(state: CoreState, node: Node, step: Step, lease: Lease, now: Moment) -> Charge:
    """Count the attempt that was lost with its node against the mini-batch."""
    message = f"Node {node.node_id} was lost."
    state.store_attempt(lease, AttemptState.FAILED, now, Cause.NODE_LOST, message)
    kind = step.counters.add_failure(Cause.NODE_LOST, lease.mini_batch, message, "", node.node_id, None)
    step.tries_of(lease.mini_batch).kinds.append(kind)
    _after_failure(state, step, lease, Cause.NODE_LOST, kind, message, "", 0, now)
    return Charge(step.step_id, lease.mini_batch, lease.lease_id, lease.generation, kind)
