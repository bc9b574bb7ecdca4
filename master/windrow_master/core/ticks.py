"""Time passes: leases grow old enough to be written down, silent nodes are lost, deadlines end."""

from __future__ import annotations

from windrow_master.core.blame import fail_if_given_up, fail_if_never_ready
from windrow_master.core.commands import Moment, Tick
from windrow_master.core.endings import tell_endings
from windrow_master.core.nodes import lose_node
from windrow_master.core.overdue import end_overdue_steps
from windrow_master.core.state import ENDED_JOBS, CoreState
from windrow_master.core.states import AttemptState, NodeState


def on_tick(state: CoreState, command: Tick, now: Moment) -> None:
    """A moment later; one that comes far too late extends all deadlines by the gap."""
    last, state.tick_s = state.tick_s, now.monotonic_s
    if last is not None and now.monotonic_s - last > 2 * command.interval_s:
        _shift_deadlines(state, now.monotonic_s - last - command.interval_s)
    _store_old_leases(state, now)
    _excuse_if_alone(state, now)
    for node in list(state.nodes.values()):
        if now.monotonic_s > node.expires_s:
            lose_node(state, node, "Silent for longer than its leases live.", now)
        elif node.state == NodeState.QUARANTINED and now.monotonic_s > node.quarantined_until_s:
            node.state = NodeState.READY if node.stream else NodeState.DISCONNECTED
            node.message = ""
            state.touch_node(node)
            state.scheduling_wanted = True
    for step in list(state.steps.values()):
        fail_if_given_up(state, step, now)
        fail_if_never_ready(state, step, now)
    end_overdue_steps(state, now)
    tell_endings(state, now)
    _forget_ended_jobs(state, now)
    if state.settle_until_s or any(step.ready.delayed for step in state.steps.values()):
        state.scheduling_wanted = True


def _excuse_if_alone(state: CoreState, now: Moment) -> None:
    """Invariant 5 of nodes. Whoever is heard first when it is over finds the others with all their time left."""
    silence_s = now.monotonic_s - state.heard_s
    connected = [node for node in state.nodes.values() if node.stream]
    if len(connected) > 1 and 2 * state.timing.heartbeat_s < silence_s < state.timing.alone_max_s:
        for node in connected:
            node.expires_s = now.monotonic_s + state.timing.lease_ttl_s


def _shift_deadlines(state: CoreState, gap_s: float) -> None:
    """Nobody could act during the gap (laptop asleep, master paused, disk stalled): it counts against no deadline."""
    for node in state.nodes.values():
        node.expires_s += gap_s
        node.quarantined_until_s += gap_s
    for step in state.steps.values():
        step.started_s += gap_s
        step.progress_s += gap_s
        if step.offered_s is not None:
            step.offered_s += gap_s
        step.ready.shift(gap_s)
    if state.settle_until_s:
        state.settle_until_s += gap_s


def _store_old_leases(state: CoreState, now: Moment) -> None:
    """Write down leases older than two heartbeats, so that try counts and blame survive a restart of the master."""
    oldest = now.monotonic_s - 2 * state.timing.heartbeat_s
    while state.unstored:
        lease = state.leases.get(state.unstored[0])
        if lease is not None and not lease.stored:
            if lease.granted_s > oldest:
                return
            state.store_attempt(lease, AttemptState.RUNNING, now)
        state.unstored.popleft()


def _forget_ended_jobs(state: CoreState, now: Moment) -> None:
    for job in list(state.jobs.values()):
        if job.state in ENDED_JOBS and now.monotonic_s > job.forget_s:
            if job.job_key in state.dirty_jobs or job.job_key in state.taken_jobs:
                # Its end is not durable yet, nor are the effects carried out that wait for that.
                continue
            for step in job.steps:
                del state.steps[step.step_id]
            del state.jobs[job.job_key]
            del state.job_keys[job.job_id]
