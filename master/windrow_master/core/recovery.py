"""Turns the stored rows into the state of a new master: its predecessor's state, with every lease in doubt."""

from __future__ import annotations

import json
from collections.abc import Callable

from windrow.common.queue_settings import QueueSettings

from windrow_master.core import ledger
from windrow_master.core.admission import enter
from windrow_master.core.budgets import count_failure
from windrow_master.core.causes import TRAITS
from windrow_master.core.commands import AdoptJob, Moment
from windrow_master.core.counters import Counters
from windrow_master.core.ids import JobKey, NodeId
from windrow_master.core.leases import Lease
from windrow_master.core.mini_batches import MiniBatches
from windrow_master.core.pools import pools_of
from windrow_master.core.records import JobRow, NodeRow, Snapshot, StepSnapshot, planned_in_checkpoint
from windrow_master.core.settings import JobSettings, StepSettings
from windrow_master.core.state import CoreState, Job, Node, Queue, Step
from windrow_master.core.states import ENDED_STEPS, AttemptState, Cause, JobState, MiniBatchState, NodeState, StepState
from windrow_master.core.step_parts import StepPlan
from windrow_master.core.steps import (
    begin_steps,
    conclude_step,
    go_on_cancelling,
    prepare_step,
    settle_job,
    settle_step,
)

SettingsOf = Callable[[bytes], JobSettings]
"""Reads the settings of a job and its steps from its stored document."""


def load(state: CoreState, snapshot: Snapshot, settings_of: SettingsOf, now: Moment) -> None:
    """Enter a snapshot into an empty state, and gather the effects that are still owed. What a bug raises at one step
    is kept for the first command, which pauses its job."""
    state.tick_s = now.monotonic_s
    state.job_key_last = snapshot.job_key_last
    state.step_id_last = snapshot.step_id_last
    state.lease_prefixes = snapshot.lease_prefixes
    for stored in snapshot.queues:
        name, settings, revision, change_time, changed_by = stored
        state.queues[name] = Queue(name, QueueSettings.from_json(settings), revision, change_time, changed_by)
        state.queue_revision = max(state.queue_revision, revision)
    if snapshot.fleets or snapshot.allocations:
        _load_fleets(state, snapshot)
    for row in snapshot.nodes:
        node = _node(row)
        if node.state == NodeState.LOST:
            state.absent[node.node_id] = node
        else:
            node.expires_s = now.monotonic_s + state.timing.adoption_grace_s
            state.nodes[node.node_id] = node
    for allocation in state.allocations.values():
        joined = state.nodes.get(NodeId(allocation.node_id))
        if joined is not None and joined.node_incarnation == allocation.node_incarnation:
            joined.allocation = allocation.name
    if state.nodes:
        state.settle_until_s = now.monotonic_s + state.timing.settle_s
    for job_row in snapshot.jobs:
        _enter(state, job_row, snapshot, settings_of(job_row.document), now)
    for job in list(state.jobs.values()):
        if job.state == JobState.QUEUED:
            state.queued.add(job.job_key)
        else:
            _owe_effects(state, job, now)
    state.scheduling_wanted = state.admission_wanted = True


def _load_fleets(state: CoreState, snapshot: Snapshot) -> None:
    # Not at the top: runs on one machine have none.
    from windrow_master.core.allocations import Allocation, Fleet

    state.fleets = {row.name: Fleet.from_row(row) for row in snapshot.fleets}
    found = list(map(Allocation.from_row, snapshot.allocations))
    state.allocations = {one.name: one for one in sorted(found, key=lambda one: one.begin_time) if not one.has_ended}
    ended = (one for one in found if one.has_ended)
    state.ended_allocations = {one.name: one for one in sorted(ended, key=lambda one: one.end_time or 0.0)}


def on_adopt_job(state: CoreState, command: AdoptJob, now: Moment) -> JobKey:
    """Take over a job that had ended and was opened again in the store, as a new master would."""
    (row,) = command.snapshot.jobs
    had_workers = {step_id: step.workers.may_be_on for step_id, step in state.steps.items()}
    job = _enter(state, row, command.snapshot, command.settings, now)
    for step in job.steps:
        # A node may still be ending its workers of the earlier generation.
        step.workers.may_be_on |= had_workers.get(step.step_id, set()) & state.nodes.keys()
    state.touch_job(job)
    state.add_event(now, job.job_key, "retried", f"generation {job.generation}")
    if all(step.state == StepState.WAITING for step in job.steps):
        # Nothing of it has begun: it stands in line like a new one.
        job.become(JobState.QUEUED)
        enter(state, job, now)
    else:
        _owe_effects(state, job, now)
    state.scheduling_wanted = True
    return job.job_key


def _enter(state: CoreState, row: JobRow, snapshot: Snapshot, settings: JobSettings, now: Moment) -> Job:
    job = _job(row)
    job.continue_on_step_failure = settings.continue_on_step_failure
    state.jobs[job.job_key] = job
    state.job_keys[job.job_id] = job.job_key
    for stored in snapshot.ledger:
        if stored.job_key == job.job_key:
            ledger.load(job, stored)
    for loaded in (step for step in snapshot.steps if step.step.job_key == job.job_key):
        step = _step(loaded, settings.steps[loaded.step.ordinal], now)
        job.steps.append(step)
        state.steps[step.step_id] = step
        if step.state not in ENDED_STEPS:
            with state.contained(step):
                _restore_attempts(state, job, step, loaded, now)
    return job


def _node(row: NodeRow) -> Node:
    node = Node(NodeId(row.node_id), row.node_incarnation)
    node.has(row.resources)
    node.register_time = row.register_time
    node.labels, node.pools = row.labels, pools_of(row.labels)
    node.cordoned, node.secret_digest = bool(row.cordoned), row.secret_digest
    node.seen = node.has_reported = False
    if row.state in (NodeState.DRAINING, NodeState.LOST):
        node.state, node.message = NodeState(row.state), row.message
    return node


def _job(row: JobRow) -> Job:
    return Job(
        job_key=row.job_key,
        job_id=row.job_id,
        request_id=row.request_id,
        run_digest=row.run_digest,
        document=row.document,
        steps=[],
        state=JobState(row.state),
        generation=row.generation,
        seq=row.seq,
        queue=row.queue,
        priority=row.priority,
        weight=row.weight,
        message=row.message,
        warnings=list(json.loads(row.warnings or b"[]")),
        create_time=row.create_time,
        end_time=row.end_time,
        submitter=row.submitter,
        deadline=row.deadline,
    )


def _step(loaded: StepSnapshot, settings: StepSettings, now: Moment) -> Step:
    row = loaded.step
    step = Step(
        row.step_id,
        row.job_key,
        row.ordinal,
        settings,
        state=StepState(row.state),
        message=row.message,
        error_category=row.error_category,
        start_time=row.start_time,
        end_time=row.end_time,
        paths=row.paths,
        header=row.header,
        counters=Counters.from_json(row.counters),
        plan=StepPlan(row.reader, row.checkpoint, is_done=planned_in_checkpoint(row.checkpoint)),
    )
    step.counters.leased = 0  # leases are volatile; those written down are entered below
    step.workers.is_ready = bool(step.counters.ran) or any(
        TRAITS[Cause(int(cause))].needs_worker for cause in step.counters.failed_attempts
    )
    step.gathering.is_done = bool(step.counters.ran)
    if step.state not in ENDED_STEPS:
        step.progress.started_s = step.progress.last_s = now.monotonic_s
        step.mini_batches = MiniBatches(
            states=loaded.states,
            item_firsts=loaded.item_firsts,
            item_counts=loaded.item_counts,
            recipe_offsets=loaded.recipe_offsets,
            recipe_lengths=loaded.recipe_lengths,
            recipe_crcs=loaded.recipe_crcs,
            lease_ids=loaded.lease_ids,
            sums=loaded.sums,
        )
        step.plan.known_before = len(step.mini_batches)
    return step


def _restore_attempts(state: CoreState, job: Job, step: Step, loaded: StepSnapshot, now: Moment) -> None:
    """Restore tries, blame, and the leases that were old enough to be stored."""
    table = step.mini_batches
    running: list[Lease] = []
    for mini_batch, lease_id, attempt_state, cause, node_id in loaded.attempts:
        if attempt_state == AttemptState.FAILED:
            table.attempts[mini_batch] = table.attempts.get(mini_batch, 0) + 1
            count_failure(step, mini_batch, lease_id, Cause(cause))
            _note_place(step, mini_batch, cause, node_id)
        elif attempt_state == AttemptState.ABANDONED:
            state.adopted.add(lease_id)  # it has ended, and its time is counted
            _note_place(step, mini_batch, cause, node_id)
        elif attempt_state == AttemptState.RUNNING and node_id in state.nodes:
            running.append(Lease(lease_id, step.step_id, mini_batch, job.generation, NodeId(node_id), now.monotonic_s))
    leased: dict[int, Lease] = {}
    for lease in running:
        # An adopted lease may be older than attempts that failed meanwhile: all of them count.
        lease.attempt = table.attempts.get(lease.mini_batch, 0) + 1
        if table.states[lease.mini_batch] == MiniBatchState.QUEUED:
            table.become(lease.mini_batch, MiniBatchState.LEASED)
            lease.stored = True
            leased[lease.mini_batch] = lease
            state.add_leases([lease], state.nodes[lease.node_id], step)
        elif (rival := leased.get(lease.mini_batch)) is not None and rival.rival is None:
            lease.rival, rival.rival = rival, lease
            lease.stored = True
            state.add_leases([lease], state.nodes[lease.node_id], step)
    for start, stop in table.queued_ranges():
        if loaded.ranks:
            step.ready.add_ranked(range(start, stop), loaded.ranks[start:stop])
        else:
            step.ready.add_fresh(start, stop)
    for mini_batch, tries in table.tries.items():
        if tries.nodes and step.ready.remove(mini_batch):
            step.ready.put_back(mini_batch, now.monotonic_s, step.past_of(mini_batch))


def _note_place(step: Step, mini_batch: int, cause: int, node_id: str) -> None:
    """Note on which node an attempt failed, whether or not that was charged to the mini-batch."""
    if TRAITS[Cause(cause)].needs_worker or cause == Cause.NODE_FAULT:
        step.tries_of(mini_batch).nodes.append(NodeId(node_id))


def _owe_effects(state: CoreState, job: Job, now: Moment) -> None:
    """Gather the effects that the previous master may not have completed. All of them may be repeated."""
    if job.state == JobState.CANCELLING:
        go_on_cancelling(state, job, now)
        return
    for step in job.steps:
        with state.contained(step):
            if step.state == StepState.RUNNING:
                prepare_step(state, step)
                if step.plan.is_done:
                    settle_step(state, step, now)
            elif step.state == StepState.CONCATENATING:
                conclude_step(state, step, now)
    with state.contained(job.steps[0]):
        begin_steps(state, job, now)
        settle_job(state, job, now)
