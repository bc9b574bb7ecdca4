"""What happens because time passes: leases become old enough to be stored, silent nodes are lost, deadlines end.

Invariant: nothing here changes the state before the moment that `next_due` returns, so no tick is needed before then.
"""

from __future__ import annotations

import math

from windrow_master.core.blame import fail_if_given_up, fail_if_never_ready, is_given_up, never_ready_s
from windrow_master.core.commands import Moment, Tick
from windrow_master.core.endings import announce_ending, ending_announced_s
from windrow_master.core.nodes import extend_all_leases, is_cut_off, lose_node
from windrow_master.core.overdue import fail_if_overdue, overdue_s
from windrow_master.core.scheduling import placement_due_s, recall_due_s, shares_due_s
from windrow_master.core.state import CoreState, Step
from windrow_master.core.states import ENDED_JOBS, AttemptState, JobState, NodeState, StepState
from windrow_master.core.steps import forget, may_be_forgotten

STALL_S = 0.25
"""A tick that comes later than this after its moment means that the process stood still."""


def on_tick(state: CoreState, command: Tick, now: Moment) -> None:
    """Do everything that is due. A tick that comes far too late moves all deadlines by the gap."""
    last, state.tick_s = state.tick_s, now.monotonic_s
    if last is not None and (gap_s := now.monotonic_s - last - command.interval_s) > STALL_S:
        _shift_deadlines(state, gap_s, now)
    _store_old_leases(state, now)
    if is_cut_off(state, now):
        extend_all_leases(state, now)
    for node in list(state.nodes.values()):
        if now.monotonic_s > node.expires_s:
            lose_node(state, node, "Silent for longer than its leases live.", now)
        elif node.state == NodeState.QUARANTINED and now.monotonic_s > node.quarantined_until_s:
            node.become(NodeState.READY if node.stream else NodeState.DISCONNECTED)
            node.message, node.last_fault = "", None
            state.touch_node(node)
            state.add_node_event(now, node.node_id, "node_quarantine_over", node.node_id)
            state.scheduling_wanted = True
    for step in _begun_steps(state):
        with state.contained(step):
            fail_if_given_up(state, step, now)
            fail_if_never_ready(state, step, now)
            fail_if_overdue(state, step, now)
            announce_ending(state, step, now)
            if step.ready.release_due(now.monotonic_s) or placement_due_s(state, step) <= now.monotonic_s:
                state.scheduling_wanted = True
    _forget_ended_jobs(state, now)
    if state.admission_due_s <= now.monotonic_s:
        state.admission_wanted = True
    due_s = min(recall_due_s(state), shares_due_s(state))
    if due_s <= now.monotonic_s or 0 < state.settle_until_s <= now.monotonic_s:
        state.scheduling_wanted = True


def next_due(state: CoreState, now: Moment) -> float:
    """The moment (monotonic) when a tick will have something to do, unless a command comes first. A moment in the
    past means now; inf means never. It looks at each node and step, so it is not for every command.
    """
    _drop_stored(state)
    due_s = min(recall_due_s(state), shares_due_s(state))
    if state.queued:
        due_s = min(due_s, state.admission_due_s)
    if state.unstored:
        due_s = min(due_s, state.leases[state.unstored[0]].granted_s + state.timing.store_leases_after_s)
    if state.settle_until_s:
        due_s = min(due_s, state.settle_until_s)
    for node in state.nodes.values():
        due_s = min(due_s, node.expires_s)
        if node.state == NodeState.QUARANTINED:
            due_s = min(due_s, node.quarantined_until_s)
    for step in _begun_steps(state):
        try:
            due_s = min(due_s, _due_s(state, step))
        except Exception:  # a bug: the tick raises it as well, and pauses the job
            if state.jobs[step.job_key].state != JobState.PAUSED:
                return -math.inf
    for job in state.jobs.values():
        if job.state in ENDED_JOBS:
            # One that a commit still needs is looked at again when that has begun.
            due_s = min(due_s, job.forget_s if may_be_forgotten(state, job) else now.monotonic_s + STALL_S)
    return due_s


def _begun_steps(state: CoreState) -> list[Step]:
    """Those for which time matters: that have begun, and not ended. Of queued jobs there may be thousands."""
    return [step for step in state.steps.values() if step.state in (StepState.RUNNING, StepState.CONCATENATING)]


def _due_s(state: CoreState, step: Step) -> float:
    """When (monotonic) a tick will have something to do for a step."""
    if is_given_up(state, step):
        return -math.inf
    return min(
        placement_due_s(state, step),
        never_ready_s(state, step),
        overdue_s(state, step),
        ending_announced_s(step),
        step.ready.delayed[0][0] if step.ready.delayed else math.inf,
    )


def _shift_deadlines(state: CoreState, gap_s: float, now: Moment) -> None:
    """Move all deadlines by a gap during which nobody could act (laptop asleep, master paused, disk stalled)."""
    for node in state.nodes.values():
        # A node that was heard of after the gap, but before this tick, has its full time already.
        latest_s = now.monotonic_s + state.timing.adoption_grace_s
        node.expires_s = max(node.expires_s, min(node.expires_s + gap_s, latest_s))
        node.beat_due_s += gap_s
        node.quarantined_until_s += gap_s
        node.recalled_s = {step_id: asked_s + gap_s for step_id, asked_s in node.recalled_s.items()}
    for step in state.steps.values():
        step.progress.started_s += gap_s
        step.progress.last_s += gap_s
        if step.workers.offered_s is not None:
            step.workers.offered_s += gap_s
        step.ready.shift(gap_s)
        step.pace.shift(gap_s)
        for standing in step.nodes.standings.values():
            if standing.doubted_s is not None:
                standing.doubted_s += gap_s
            if standing.aside_until_s is not None:
                standing.aside_until_s += gap_s
    if state.settle_until_s:
        state.settle_until_s += gap_s


def _drop_stored(state: CoreState) -> None:
    """Remove leases from the front of `unstored` until the first one is live and not stored yet."""
    while state.unstored:
        lease = state.leases.get(state.unstored[0])
        if lease is not None and not lease.stored:
            return
        state.unstored.popleft()


def _store_old_leases(state: CoreState, now: Moment) -> None:
    """Store leases of some age, so that tries and blame survive a restart of the master."""
    oldest = now.monotonic_s - state.timing.store_leases_after_s
    _drop_stored(state)
    while state.unstored:
        lease = state.leases[state.unstored[0]]
        if lease.granted_s > oldest:
            return
        with state.contained(state.steps[lease.step_id]):
            state.store_attempt(lease, AttemptState.RUNNING, now)
        state.unstored.popleft()
        _drop_stored(state)


def _forget_ended_jobs(state: CoreState, now: Moment) -> None:
    for job in list(state.jobs.values()):
        if job.state in ENDED_JOBS and now.monotonic_s > job.forget_s and may_be_forgotten(state, job):
            forget(state, job)
