"""Jobs and steps: submitted, planned, finished, failed, cancelled.

State machines: `transitions.STEP` and `transitions.JOB`. A PAUSED job leases nothing and completes nothing; cancelling
it, or the failure of a step, leads out. Where scripts have a shutdown(), or write to a store, a step that becomes
CONCATENATING has its workers ended first, and waits for that.

Invariants:
1. A step that is not RUNNING has no lease. Results of leases that were revoked do not count.
2. An ended step has no queued mini-batch: each is SUCCEEDED, FAILED or CANCELLED.
3. A job ends when all of its steps have (one that is cancelled: and their workers), and changes no more, unless it is
   opened again as its next generation (`recovery.on_adopt_job`): steps that were done stay done, all others begin, or
   continue, as if the master were new.
4. A step whose predecessors are all done, or skipped, begins or is skipped at once (`conditions`).
"""

from __future__ import annotations

from collections.abc import Sequence

from windrow.common.quantities import counted

from windrow_master.core import effects as fx
from windrow_master.core.agreement import disagreement, misread
from windrow_master.core.causes import SYSTEM_ERROR
from windrow_master.core.commands import (
    BeginWork,
    CancelJob,
    ClockSetBack,
    FailStep,
    FinishStep,
    ForgetJob,
    Moment,
    PauseJob,
    PostponeFinish,
    ReuseStep,
    StartStep,
)
from windrow_master.core.conditions import Skip, why_skipped
from windrow_master.core.ids import JobKey, LeaseId, NodeId
from windrow_master.core.ledger import drop_workers
from windrow_master.core.records import CLOCK_SET_BACK
from windrow_master.core.refused import Refused, job_unknown
from windrow_master.core.state import CoreState, Job, Step
from windrow_master.core.states import (
    DONE_STEPS,
    ENDED_JOBS,
    ENDED_STEPS,
    AttemptState,
    Cause,
    JobState,
    MiniBatchState,
    StepState,
)
from windrow_master.core.thresholds import nothing_to_write, passed_threshold, sets_threshold
from windrow_master.limits import how_to_raise

MESSAGE_CHARS_MAX = 4096
WARNINGS_MAX = 100
"""Kept of a job: they are written with each of its commits, and sent to all who watch it."""
MORE_WARNINGS = "… and more warnings, which are not kept."
ENDING = "Nodes end their workers: shutdown() is called, and outputs that go to a store are uploaded."
"""What a step says while that lasts (`core/endings.py`)."""
ENDED_JOB_KEPT_S = 60.0
"""How long an ended job stays in memory: what agents still say of it is answered as that of an ended job."""


def too_many_jobs(state: CoreState, project: str, document: bytes) -> Refused | None:
    """Why no further job of a project can be open, with such a document; None if one can."""
    open_jobs = [job for job in state.jobs.values() if job.state not in ENDED_JOBS]
    in_project = sum(job.queue == project for job in open_jobs)
    return _too_many(state, project, open_jobs, in_project) or _too_large(state, project, open_jobs, len(document))


def _too_large(state: CoreState, project: str, open_jobs: Sequence[Job], more: int) -> Refused | None:
    limits = state.limits
    for name, most, whose, jobs in (
        ("open_document_bytes", limits.open_document_bytes, "this master", open_jobs),
        (
            "open_document_bytes_per_project",
            limits.open_document_bytes_per_project,
            f"project {project}",
            [job for job in open_jobs if job.queue == project],
        ),
    ):
        found = sum(len(job.document) for job in jobs)
        if found + more > most:
            return Refused(
                "LIMIT_REACHED",
                f"The documents of the {counted(len(jobs), 'job')} of {whose} that have not ended come to {found:,} "
                f"bytes, this one's has {more:,}, and the limit {name} is {most:,}. Wait until one has ended, or "
                "cancel one (`windrow job list` names them); give what is large in them, such as environment "
                f"variables and tags, in files; or {how_to_raise(name)}.",
            )
    return None


def _too_many(state: CoreState, project: str, open_jobs: Sequence[Job], in_project: int) -> Refused | None:
    if len(open_jobs) >= state.limits.open_jobs:
        name, most, found, whose = "open_jobs", state.limits.open_jobs, len(open_jobs), "this master"
    elif in_project >= state.limits.open_jobs_per_project:
        name, most, found = "open_jobs_per_project", state.limits.open_jobs_per_project, in_project
        whose = f"project {project}"
    else:
        return None
    return Refused(
        "LIMIT_REACHED",
        f"{counted(found, 'job')} of {whose} have not ended, and the limit {name} is {most}. Wait until one has ended, "
        f"or cancel one (`windrow job list` names them); or {how_to_raise(name)}.",
    )


def begin_steps(state: CoreState, job: Job, now: Moment, *, asked: bool = False) -> None:
    """Begin every step whose predecessors are done, or skip it. `asked`: a client is waiting for the job, so a held
    master need not wait for BeginWork.
    """
    if job.state != JobState.RUNNING:
        return
    steps = {step.settings.name: step for step in job.steps}
    done = {name for name, step in steps.items() if step.state in DONE_STEPS}
    waiting = [step for step in job.steps if step.state == StepState.WAITING]
    while ready := [step for step in waiting if done.issuperset(step.settings.depends_on)]:
        waiting = [step for step in waiting if not done.issuperset(step.settings.depends_on)]
        for step in ready:
            if (skip := why_skipped(step, steps)) is not None:
                _skip_step(state, step, skip, now)
                done.add(step.settings.name)
                continue
            step.become(StepState.RUNNING)
            step.progress.started_s = step.progress.last_s = now.monotonic_s
            state.touch_step(step)
            prepare_step(state, step, asked=asked)


def _skip_step(state: CoreState, step: Step, skip: Skip, now: Moment) -> None:
    """End a step of which nothing has begun: it does not run."""
    step.become(StepState.SKIPPED)
    step.message, step.paths, step.end_time = skip.message, skip.paths, now.wall_s
    state.touch_step(step)


def prepare_step(state: CoreState, step: Step, *, asked: bool = False) -> None:
    """Begin the work of a step that is RUNNING; a held master waits for BeginWork (or `asked`).

    Otherwise a failure before any client is there would end the job unnoticed, and the next run would start from the
    beginning.
    """
    if state.held and not asked:
        state.unprepared.add(step.step_id)
    else:
        state.effects.append(fx.PrepareStep(step.step_id))


def on_start_step(state: CoreState, command: StartStep, now: Moment) -> None:
    """Note that the paths of a step are resolved."""
    step = state.steps.get(command.step_id)
    if step is None or step.state != StepState.RUNNING:
        return
    if step.is_read_first:
        step.progress.started_s = step.progress.last_s = now.monotonic_s
    step.progress.begun = True
    if step.paths != command.paths:
        step.paths = command.paths
        state.touch_step(step)


def settle_step(state: CoreState, step: Step, now: Moment) -> None:
    """Check whether a step has passed a threshold or reached its end."""
    if step.state != StepState.RUNNING or state.jobs[step.job_key].state == JobState.PAUSED:
        return
    reason = misread(step)
    if reason:
        fail_step(state, step, reason, now, SYSTEM_ERROR)
        return
    reason = passed_threshold(step)
    if reason:
        fail_step(state, step, reason, now, step.counters.main_category())
        return
    if not step.plan.is_done or step.counters.ended < step.counters.planned:
        return
    without_items = step.settings.without_input and step.counters.succeeded
    if step.settings.append_row and step.counters.items_ok == 0 and not without_items:
        fail_step(state, step, nothing_to_write(step), now, step.counters.main_category())
        return
    reason = disagreement(step)
    if reason:
        fail_step(state, step, reason, now, SYSTEM_ERROR)
        return
    step.become(StepState.CONCATENATING)
    state.touch_step(step)
    conclude_step(state, step, now)


def conclude_step(state: CoreState, step: Step, now: Moment) -> None:
    """Have the output of a step made.

    If the step's settings say so, its workers on all nodes end first, so that their `shutdown()` is over when the step
    is done.
    """
    if step.settings.ends_workers_first:
        step.workers.ending_on = _nodes_with_workers(state, step)
        step.workers.may_be_on.clear()
        step.workers.shutdown_failures, step.workers.shutdown_failure = 0, ""
        _leave_nodes(state, step, now)
    make_output(state, step)


def make_output(state: CoreState, step: Step) -> None:
    """Have the output of a step made, once its workers have ended if the step waits for them."""
    if step.workers.ending_on:
        return
    if step.message == ENDING:
        step.message = ""
        state.touch_step(step)
    if step.workers.shutdown_failures:
        workers, job_id = counted(step.workers.shutdown_failures, "worker"), state.jobs[step.job_key].job_id
        warn_of(
            state,
            step,
            f"Step {step.settings.name!r}: shutdown() failed in {workers}, so what it does may be missing. "
            f"First: {step.workers.shutdown_failure}. The results of run() are complete; `windrow job logs "
            f"{job_id} --failed` has the tracebacks.",
        )
    state.effects.append(fx.ConcatenateRows(step.step_id, state.jobs[step.job_key].generation))


def warn(job: Job, message: str, *, first: bool = False) -> None:
    """Keep a warning, once. `first`: put it before earlier ones, and replace one if there is no room."""
    if message not in job.warnings:
        job.warnings.insert(0 if first else len(job.warnings), message)
        if len(job.warnings) > WARNINGS_MAX:
            job.warnings[WARNINGS_MAX:] = [MORE_WARNINGS]


def warn_of(state: CoreState, step: Step, message: str) -> None:
    """Warn of something that does not change how a step ends."""
    job = state.jobs[step.job_key]
    warn(job, message, first=True)
    state.touch_job(job)


def on_finish_step(state: CoreState, command: FinishStep, now: Moment) -> None:
    """Complete a step whose output is complete."""
    step = state.steps.get(command.step_id)
    if step is None or step.state != StepState.CONCATENATING:
        return
    job = state.jobs[step.job_key]
    if command.generation != job.generation or job.state == JobState.PAUSED:
        return
    step.message = command.message
    if command.paths is not None:
        step.paths = command.paths
    for warning in command.warnings:
        warn_of(state, step, warning)
    _complete_step(state, job, step, now)


def on_reuse_step(state: CoreState, command: ReuseStep, now: Moment) -> None:
    """Complete a step with the outputs of an earlier job."""
    step = state.steps.get(command.step_id)
    if step is None or step.state != StepState.RUNNING or step.plan.checkpoint is not None:
        return
    job = state.jobs[step.job_key]
    if job.state == JobState.PAUSED:
        return
    step.paths, step.message = command.paths, command.message
    _complete_step(state, job, step, now)


def _complete_step(state: CoreState, job: Job, step: Step, now: Moment) -> None:
    _end_step(state, step, StepState.COMPLETED, now)
    begin_steps(state, job, now)
    settle_job(state, job, now)


def on_postpone_finish(state: CoreState, command: PostponeFinish, now: Moment) -> None:
    """Note what the output of a step waits for, such as room on its disk. The reason is shown with the job."""
    step = state.steps.get(command.step_id)
    if step is None or step.state != StepState.CONCATENATING or step.message == command.message:
        return
    if command.generation == state.jobs[step.job_key].generation:
        step.message = command.message
        state.touch_step(step)


def on_fail_step(state: CoreState, command: FailStep, now: Moment) -> None:
    """Fail a step that cannot continue."""
    step = state.steps.get(command.step_id)
    if step is None or step.state in ENDED_STEPS:
        return
    if command.generation in (None, state.jobs[step.job_key].generation):
        fail_step(state, step, command.message, now, command.category)


def fail_step(state: CoreState, step: Step, message: str, now: Moment, category: str) -> None:
    """End a step as FAILED, and with it its job. `category`: one of core.statuses."""
    job = state.jobs[step.job_key]
    step.message, step.error_category = message, category
    _end_step(state, step, StepState.FAILED, now)
    if (step.counters.failed or step.counters.items_failed) and not step.settings.is_command:
        state.effects.append(fx.ReportFailures(step.step_id))
    if job.state not in ENDED_JOBS and job.state != JobState.CANCELLING:
        job.message = _failure_of(job)
        for other in _dependents(job, step) if job.continue_on_step_failure else job.steps:
            if other.state not in ENDED_STEPS:
                other.message = f"Step {step.settings.name!r} failed."
                _end_step(state, other, StepState.CANCELLED, now)
    settle_job(state, job, now)


def _failure_of(job: Job) -> str:
    """The message of a job with failed steps: the first failure, and the number of others."""
    failed = sorted((step for step in job.steps if step.state == StepState.FAILED), key=lambda step: step.end_time or 0)
    first, others = failed[0], [step.settings.name for step in failed[1:]]
    more = f" Failed as well: {', '.join(map(repr, others))}." if others else ""
    return f"Step {first.settings.name!r} failed: {first.message}{more}"


def _dependents(job: Job, step: Step) -> list[Step]:
    """The steps of a job that wait for one of its steps, directly or through others."""
    lost, waiting = {step.settings.name}, list(job.steps)
    found: list[Step] = []
    while more := [other for other in waiting if not lost.isdisjoint(other.settings.depends_on)]:
        found += more
        lost = {other.settings.name for other in more}
        waiting = [other for other in waiting if other not in more]
    return found


def on_begin_work(state: CoreState, command: BeginWork, now: Moment) -> None:
    """Begin the work that was held, and hand out leases from now on."""
    state.held = False
    state.scheduling_wanted = True
    unprepared, state.unprepared = sorted(state.unprepared), set()
    for step_id in unprepared:
        step = state.steps.get(step_id)
        if step is not None and step.state == StepState.RUNNING:
            step.progress.started_s = step.progress.last_s = now.monotonic_s
            prepare_step(state, step)


def on_cancel_job(state: CoreState, command: CancelJob, now: Moment) -> JobKey | Refused:
    """Cancel a job; one that has ended stays as it is."""
    key = state.job_keys.get(command.job_id)
    if key is None:
        return job_unknown(command.job_id)
    job = state.jobs[key]
    if job.state in ENDED_JOBS or job.state == JobState.CANCELLING:
        return key
    job.become(JobState.CANCELLING)
    state.admission_wanted = True
    job.message = "Cancelled on request."
    state.touch_job(job)
    state.add_event(now, key, "cancelled", "")
    go_on_cancelling(state, job, now)
    return key


def on_clock_set_back(state: CoreState, command: ClockSetBack, now: Moment) -> None:
    """Keep it as an event, whose time is the earliest that the clock has shown since."""
    state.add_event(now._replace(wall_s=command.to_s), None, CLOCK_SET_BACK, f"by {command.by_s:.0f} s")


def on_forget_job(state: CoreState, command: ForgetJob, now: Moment) -> Refused | None:
    """Take an ended job out of the memory, unless its end still has to be written."""
    job = state.jobs.get(command.job_key)
    if job is None:
        return None
    if job.state not in ENDED_JOBS or not may_be_forgotten(state, job):
        return Refused("JOB_NOT_ENDED", f"Job {job.job_id} has not ended. Cancel it, or wait for its end.")
    forget(state, job)
    return None


def may_be_forgotten(state: CoreState, job: Job) -> bool:
    """Whether a job's end is durable, and all effects that waited for that are done."""
    return job.job_key not in state.dirty_jobs and job.job_key not in state.taken_jobs


def forget(state: CoreState, job: Job) -> None:
    """Take an ended job out of the memory."""
    for step in job.steps:
        del state.steps[step.step_id]
    del state.jobs[job.job_key]
    del state.job_keys[job.job_id]


def go_on_cancelling(state: CoreState, job: Job, now: Moment) -> None:
    """End the steps of a job that is CANCELLING, and wait for the nodes that may have workers of it.

    A held master has one node at most, on its own machine. If that is known from an earlier master and has not been
    heard of, its process was most likely killed, and no other would come: a held master does not wait for it.
    """
    for step in job.steps:
        ending_on = step.workers.ending_on | _nodes_with_workers(state, step)
        if state.held:
            ending_on = {name for name in ending_on if state.nodes[name].has_reported}
        with state.contained(step):
            if step.state not in ENDED_STEPS:
                _end_step(state, step, StepState.CANCELLED, now)
            else:
                # Nodes were notified when it ended, but an answer may have been lost with an earlier stream.
                _ask_to_end(state, step, ending_on)
                step.counters.check()  # what ended it may have raised half-way
        if step.step_id in state.raised or step.lease_ids or len(step.mini_batches):
            _end_broken_step(state, step, now)
        step.workers.ending_on = ending_on
    settle_job(state, job, now)


def _ask_to_end(state: CoreState, step: Step, node_ids: set[NodeId]) -> None:
    """Have these nodes confirm that they have no worker of a step, or no longer have one."""
    generation = state.jobs[step.job_key].generation
    for node_id in sorted(node_ids):
        node = state.nodes[node_id]
        if node.stream:
            state.effects.append(fx.EndStep(node_id, node.stream, step.step_id, generation))


def _nodes_with_workers(state: CoreState, step: Step) -> set[NodeId]:
    """Nodes that may have workers of a step. A node known from an earlier master counts, since it has not reported
    yet what it has.
    """
    return {name for name, node in state.nodes.items() if name in step.workers.may_be_on or not node.has_reported}


def on_pause_job(state: CoreState, command: PauseJob, now: Moment) -> None:
    """Pause a job on which a command raised; nothing more of it is leased."""
    job = state.jobs.get(command.job_key)
    if job is not None and job.state in (JobState.QUEUED, JobState.RUNNING):
        job.become(JobState.PAUSED)
        state.admission_wanted = True
        job.message = command.message
        state.touch_job(job)
        state.add_event(now, job.job_key, "paused", command.message)


def _end_step(state: CoreState, step: Step, ending: StepState, now: Moment) -> None:
    """End a step: open mini-batches are cancelled, leases are revoked (step invariants 1 and 2)."""
    open_states = (MiniBatchState.QUEUED, MiniBatchState.LEASED)
    counters, table = step.counters, step.mini_batches
    step.become(ending)
    step.end_time = now.wall_s
    counters.retries -= _retries_not_begun(state, step)
    _revoke_all(state, step, now)
    if ending != StepState.COMPLETED:
        known = sum(count for count, at in zip(table.item_counts, table.states, strict=True) if at in open_states)
        counters.items_cancelled += known if table.sums is None else table.sums.items
        counters.cancelled = counters.planned - counters.succeeded - counters.failed
        state.dirty.cancelled_steps.append(step.step_id)
    step.ready.clear()
    step.nodes.preferred = None
    step.mini_batches = type(table)()
    step.nodes.standings.clear()
    step.nodes.doubted.clear()
    step.second_attempts.clear()
    state.touch_step(step)
    state.effects.append(fx.StopStepWork(step.step_id))
    step.workers.may_be_on |= step.workers.ending_on
    step.workers.ending_on.clear()
    _leave_nodes(state, step, now)


def _end_broken_step(state: CoreState, step: Step, now: Moment) -> None:
    """End a step of a cancelled job at which `_end_step` raised: drop what the nodes and the queue have of it, and make
    its counters add up. A job whose books are broken can still be cancelled, and its nodes continue with others."""
    if step.state not in ENDED_STEPS:
        step.become(StepState.CANCELLED)
    step.end_time = now.wall_s
    for lease in [lease for lease in state.leases.values() if lease.step_id == step.step_id]:
        del state.leases[lease.lease_id]
        node = state.nodes.get(lease.node_id)
        if node is not None:
            node.lease_ids.discard(lease.lease_id)
            node.claims[lease.lease_id] = (step.step_id, -1)
    step.lease_ids.clear()
    step.counters.end_broken()
    step.ready.clear()
    step.nodes.preferred = None
    step.mini_batches = type(step.mini_batches)()
    step.nodes.standings.clear()
    step.nodes.doubted.clear()
    step.second_attempts.clear()
    state.dirty.cancelled_steps.append(step.step_id)
    state.touch_step(step)
    state.effects.append(fx.StopStepWork(step.step_id))
    _leave_nodes(state, step, now)


def _retries_not_begun(state: CoreState, step: Step) -> int:
    """Mini-batches whose retry has not begun. A retry whose lease is too new to be stored counts as not begun."""
    table = step.mini_batches
    if table.sums is not None:
        return table.sums.retries
    begun = {lease.mini_batch for lease in map(state.leases.__getitem__, step.lease_ids) if lease.stored}
    waiting = (MiniBatchState.QUEUED, MiniBatchState.LEASED)
    return sum(table.states[mini_batch] in waiting and mini_batch not in begun for mini_batch in table.tries)


def _leave_nodes(state: CoreState, step: Step, now: Moment) -> None:
    """End the workers of a step on all nodes. They get nothing of it from now on, unless it is offered again."""
    generation = state.jobs[step.job_key].generation
    state.share_out_anew()
    for group in state.shares.groups.values():
        group.layout.drop_crew(step.step_id)
    for node in state.nodes.values():
        node.capacity.pop(step.step_id, None)
        node.given_up.discard(step.step_id)
        drop_workers(state, node, now, step.step_id)
        node.shares.pop(step.step_id, None)
        node.shares_since.pop(step.step_id, None)
        node.held.pop(step.step_id, None)
        node.offered.discard(step.step_id)
        node.ready_steps.discard(step.step_id)
        node.recalled_s.pop(step.step_id, None)
        if node.aside_for.pop(step.step_id, ""):
            state.touch_node(node)
        if node.stream:
            # Also where it was not offered: the agent may have started workers for it on an earlier stream.
            state.effects.append(fx.EndStep(node.node_id, node.stream, step.step_id, generation))


def _revoke_all(state: CoreState, step: Step, now: Moment) -> None:
    """Take back every lease of a step at once. What nodes still report about them no longer counts."""
    by_node: dict[str, list[LeaseId]] = {}
    for lease_id in sorted(step.lease_ids):
        lease = state.leases[lease_id]
        by_node.setdefault(lease.node_id, []).append(lease_id)
        if lease.stored:
            state.store_attempt(lease, AttemptState.ABANDONED, now, Cause.CANCELLED)
        state.drop_lease(lease, step)
    for node in state.nodes.values():
        taken = by_node.get(node.node_id)
        if taken:
            for lease_id in taken:
                node.claims[lease_id] = (step.step_id, -1)
            if node.stream:
                state.effects.append(fx.RevokeLeases(node.node_id, node.stream, taken))


def settle_job(state: CoreState, job: Job, now: Moment) -> None:
    """End a job when all its steps have ended; if it is cancelled, when no node has workers of it either."""
    if job.state in ENDED_JOBS or any(step.state not in ENDED_STEPS for step in job.steps):
        return
    if job.state == JobState.CANCELLING:
        if any(step.workers.ending_on for step in job.steps):
            return
        job.become(JobState.CANCELLED)
    elif any(step.state == StepState.FAILED for step in job.steps):
        job.become(JobState.FAILED)
    elif with_failures := [step for step in job.steps if step.counters.failed or step.counters.items_failed]:
        job.become(JobState.COMPLETED_WITH_FAILURES)
        items = sum(step.counters.items_failed for step in job.steps)
        failed = sum(step.counters.failed for step in job.steps)
        told = [counted(items, "item")] * (items > 0) + [counted(failed, "mini-batch")] * (failed > 0)
        why = "the thresholds allow it" if any(map(sets_threshold, with_failures)) else "the job tolerates any number"
        job.message = f"{' and '.join(told)} failed; {why}."
    else:
        job.become(JobState.COMPLETED)
    job.end_time = now.wall_s
    state.admission_wanted = True
    job.forget_s = now.monotonic_s + ENDED_JOB_KEPT_S
    state.touch_job(job)
    # Also if the job was touched earlier in this group: those who wait must hear of its end.
    state.effects.append(fx.NotifyJob(job.job_key, True))
    state.add_event(now, job.job_key, "ended", job.state.name)
