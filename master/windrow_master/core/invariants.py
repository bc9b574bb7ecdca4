"""The numbered invariants of the core as one check; tests and the simulation call it after every command."""

from __future__ import annotations

from windrow_master.core.state import CoreState
from windrow_master.core.states import ENDED_JOBS, ENDED_STEPS, JobState, MiniBatchState, NodeState, StepState


def check(state: CoreState) -> None:
    """Raise AssertionError if the state breaks one of the numbered invariants in the modules' docstrings."""
    seen: set[tuple[int, int]] = set()
    for lease_id, lease in state.leases.items():
        step = state.steps[lease.step_id]
        assert lease_id in step.lease_ids, f"CoreState 1: {lease} is not its step's"
        holder = state.nodes.get(lease.node_id)
        assert holder is not None and lease_id in holder.lease_ids, f"CoreState 1: {lease} is not its node's"
        assert step.mini_batches.states[lease.mini_batch] == MiniBatchState.LEASED, f"CoreState 2: {lease}"
        rival = lease.rival
        if rival is not None:
            assert state.leases.get(rival.lease_id) is rival and rival.rival is lease, f"speculation 1: {lease} {rival}"
            assert rival.mini_batch == lease.mini_batch, f"speculation 1: {lease} {rival}"
            tries = step.mini_batches.tries.get(lease.mini_batch)
            assert tries is None or tries.split is None, f"speculation 2: {lease} is split"
        if rival is None or rival.lease_id < lease_id:
            assert (lease.step_id, lease.mini_batch) not in seen, f"CoreState 2: two leases on {lease}"
            seen.add((lease.step_id, lease.mini_batch))
    for node in state.nodes.values():
        assert node.lease_ids <= state.leases.keys(), f"CoreState 1: {node.node_id} holds unknown leases"
        for step_id, held in node.held.items():
            mine = sum(state.leases[lease_id].step_id == step_id for lease_id in node.lease_ids)
            assert held == mine, f"CoreState 1: held {held} of step {step_id} on {node.node_id}, leases {mine}"
        for step_id in node.offered & state.steps.keys():
            workers, wanted = state.steps[step_id].workers, node.capacity.get(step_id, 0) - node.held.get(step_id, 0)
            assert node.node_id in workers.may_be_on, f"step {step_id} was offered to {node.node_id}, unnoticed"
            assert wanted <= 0 or node.node_id in state.steps[step_id].nodes.hungry, (
                f"step {step_id}: {node.node_id} wants {wanted} leases, unnoticed"
            )
    for node_id, node in state.absent.items():
        assert node_id not in state.nodes, f"CoreState 4: {node_id} is here and absent"
        assert node.cordoned and node.state == NodeState.LOST, f"CoreState 4: {node_id} {node.state} {node.cordoned}"
        assert not node.lease_ids and not node.stream, f"node 3: {node_id} is lost with leases or a stream"
    for job in state.jobs.values():
        waits = any(step.workers.ending_on for step in job.steps)
        if job.state == JobState.CANCELLING:
            assert waits and all(step.state in ENDED_STEPS for step in job.steps), f"job 3: {job.job_id} {job.state}"
        elif job.state in ENDED_JOBS:
            assert not waits, f"job 3: {job.job_id} {job.state} waits for nodes"
    for step in state.steps.values():
        assert step.workers.ending_on <= state.nodes.keys(), (
            f"job 3: step {step.step_id} waits for {step.workers.ending_on}"
        )
        counters, table = step.counters, step.mini_batches
        assert step.lease_ids <= state.leases.keys(), f"CoreState 1: step {step.step_id} holds unknown leases"
        if step.state in ENDED_STEPS:
            assert not step.lease_ids, f"step 1: {step.step_id} ended with leases"
            assert counters.queued == 0 and counters.leased == 0, f"step 2: {step.step_id} {counters}"
            continue
        tally = [table.states.count(state_number) for state_number in range(5)]
        assert counters.planned == len(table), f"counters 1: {counters}"
        leased = {state.leases[lease_id].mini_batch for lease_id in step.lease_ids}
        assert counters.leased == tally[MiniBatchState.LEASED] == len(leased), f"counters 1: {counters} {tally}"
        assert counters.succeeded == tally[MiniBatchState.SUCCEEDED], f"counters 1: {counters} {tally}"
        assert counters.failed == tally[MiniBatchState.FAILED], f"counters 1: {counters} {tally}"
        assert 0 <= counters.failed_uncounted <= counters.failed, f"counters 3: {counters}"
        succeeded = int(MiniBatchState.SUCCEEDED)
        taken_over = list(zip(table.states, table.lease_ids, strict=True)).count((succeeded, 0))
        assert counters.taken_over == taken_over, f"counters 4: {counters}, {taken_over}"
        assert len(step.ready) == tally[MiniBatchState.QUEUED], f"mini-batch 3: {len(step.ready)} ready, {tally}"
        if step.state == StepState.CONCATENATING:
            assert counters.ended == counters.planned, f"step: {step.step_id} concatenates too early"
        assert counters.items_ok + counters.items_failed + counters.items_cancelled <= counters.items_total, (
            f"counters 2: {counters}"
        )
