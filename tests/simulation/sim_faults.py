"""Planted faults: each a small patch of the core, the tables or the simulated writer that some rule must find.

A fault is a context manager; everything is put back at its end. They stand for mistakes that are easily made: when one
of them is no longer found, a checker or the chaos has gone blind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from sim_disk import Disk, Segment
from sim_run import Simulation
from sim_tables import MemoryTables
from sim_writer import SimSegments, SimWriter
from windrow_master.core import attempts, budgets, commands, core, nodes, plans, recovery, scheduling, steps, ticks
from windrow_master.core import effects as fx
from windrow_master.core.commands import Moment
from windrow_master.core.ids import LeaseId, StepId
from windrow_master.core.leases import Lease
from windrow_master.core.records import Dirty, NodeRow, OutcomeRow
from windrow_master.core.state import CoreState, Node, Step
from windrow_master.core.states import Cause, MiniBatchState, NodeState, StepState, Verdict

Fault = Callable[[], AbstractContextManager[Any]]
FAULTS: dict[str, Fault] = {}


def fault(plant: Callable[[], Iterator[None]]) -> Fault:
    """Register a fault under its name."""
    made = contextmanager(plant)
    FAULTS[plant.__name__] = made
    return made


def handler(command: type, replacement: Callable[..., Any]) -> AbstractContextManager[Any]:
    """Another handler for a command."""
    return patch.dict(core.HANDLERS, {command: replacement})


def outcome_of(step_id: int, mini_batch: int, lease_id: int) -> OutcomeRow:
    """A success that nobody asked the core about."""
    return OutcomeRow(StepId(step_id), mini_batch, MiniBatchState.SUCCEEDED, 1, 1, 1, LeaseId(lease_id), -1, 0, 0.0)


@fault
def ack_before_commit() -> Iterator[None]:
    """A completion is answered when it is handled, not when it is durable."""
    with patch.object(SimWriter, "keep", lambda self, reply, answer: reply(answer)):
        yield


@fault
def commit_before_sync() -> Iterator[None]:
    """The rows of the tables become durable before the rows of the segments that they name."""

    def wrong(self: SimWriter, sync: Callable[[], None], commit: Callable[[], None]) -> Callable[[], None]:
        return commit

    with patch.object(SimWriter, "sync_then_commit", wrong):
        yield


@fault
def no_node_incarnation_check() -> Iterator[None]:
    """A late message of a dead incarnation counts as the living one's."""

    def find(state: CoreState, node_id: Any, node_incarnation: str) -> Any:
        return state.nodes.get(node_id) or commands.Refused("NODE_UNKNOWN", "")

    with patch.object(nodes, "_find", find):
        yield


@fault
def no_fence_on_commit() -> Iterator[None]:
    """The store takes commits of an earlier incarnation."""
    with patch.object(MemoryTables, "fence", lambda self, incarnation: None):
        yield


@fault
def no_generation_check() -> Iterator[None]:
    """Leases of earlier code are adopted, and their results accepted."""

    def open_work(state: CoreState, command: commands.OpenWork, now: Moment) -> Any:
        held = []
        for lease in command.held:
            step = state.steps.get(lease.step_id)
            generation = lease.generation if step is None else state.jobs[step.job_key].generation
            held.append(lease._replace(generation=generation))
        return nodes.on_open_work(state, command._replace(held=tuple(held)), now)

    with handler(commands.OpenWork, open_work):
        yield


@fault
def segment_reused() -> Iterator[None]:
    """A new incarnation writes to the segments of the one before, from their beginning."""

    def create(self: SimSegments, name: str) -> Segment:
        segment = self._disk.segments[name] = Segment(self._incarnation)
        return segment

    with (
        patch.object(SimSegments, "name", lambda self, step_id, count: f"{step_id}/{count}.rows"),
        patch.object(SimSegments, "create", create),
    ):
        yield


@fault
def two_completions_both_accepted() -> Iterator[None]:
    """A lease stays live until the end of the group, so that a repeated completion counts again."""
    original = attempts.on_complete_attempts

    def complete(state: CoreState, command: commands.CompleteAttempts, now: Moment) -> Any:
        ended = getattr(state.dirty, "ended", {})
        state.dirty.ended = ended  # type: ignore[attr-defined]
        for result in command.results:
            lease = ended.get(result.lease_id)
            if lease is not None and lease.lease_id not in state.leases and lease.node_id in state.nodes:
                step = state.steps[lease.step_id]
                if step.state == StepState.RUNNING:
                    state.add_leases([lease], state.nodes[lease.node_id], step)
        before = dict(state.leases)
        reply = original(state, command, now)
        ended.update({at: lease for at, lease in before.items() if at not in state.leases})
        return reply

    with handler(commands.CompleteAttempts, complete):
        yield


@fault
def lost_assignment_never_noticed() -> Iterator[None]:
    """What a hello does not name is thought to be under way for ever, and views are never compared."""

    def open_work(state: CoreState, command: commands.OpenWork, now: Moment) -> Any:
        with patch.object(nodes, "lose_leases", lambda *args, **more: None):
            return nodes.on_open_work(state, command, now)

    with handler(commands.OpenWork, open_work), patch.object(nodes, "DIGEST_MISMATCHES_MAX", 1 << 60):
        yield


@fault
def views_compared_without_count() -> Iterator[None]:
    """Heartbeats compare the exclusive or of the lease ids alone; neighbouring ids cancel out."""

    def heartbeat(state: CoreState, command: commands.HeartbeatNode, now: Moment) -> Any:
        node = state.nodes.get(command.node_id)
        count = len(node.lease_ids) if node is not None else 0
        same = commands.HeartbeatNode(command.node_id, command.node_incarnation, count, command.lease_digest)
        return nodes.on_heartbeat_node(state, same, now)

    with handler(commands.HeartbeatNode, heartbeat):
        yield


@fault
def planner_group_applied_twice() -> Iterator[None]:
    """Handing over a group does not compare its checkpoint with the stored one."""

    def plan(state: CoreState, command: commands.PlanGroup, now: Moment) -> Any:
        step = state.steps.get(command.step_id)
        if step is None or step.planned:
            return False
        changed = commands.PlanGroup(
            command.step_id, step.checkpoint, command.end, len(step.mini_batches), command.records, command.done,
            command.reader or step.reader or b"{}", command.warnings,
        )  # fmt: skip
        return steps.on_plan_group(state, changed, now)

    with handler(commands.PlanGroup, plan):
        yield


@fault
def lease_ids_start_again() -> Iterator[None]:
    """Every master draws the same prefix."""
    with patch.object(Simulation, "next_prefix", lambda self: 1):
        yield


@fault
def requeued_but_not_dropped() -> Iterator[None]:
    """A mini-batch goes back to the queue while its lost lease stays live."""

    def drop(self: CoreState, lease: Lease, step: Step) -> None:
        if self.nodes.get(lease.node_id) is None or lease.step_id not in self.steps or self.nodes[lease.node_id].stream:
            original(self, lease, step)

    original = CoreState.drop_lease
    with patch.object(CoreState, "drop_lease", drop):
        yield


@fault
def node_loss_charged_to_retries() -> Iterator[None]:
    """A lost node uses up max_retries."""

    def count(step: Step, mini_batch: int, lease_id: int, cause: Cause) -> int:
        return original(step, mini_batch, lease_id, Cause.EXCEPTION if cause == Cause.NODE_LOST else cause)

    def left(step: Step, failures: int, cause: Cause) -> bool:
        return budget(step, failures, Cause.EXCEPTION if cause == Cause.NODE_LOST else cause)

    original, budget = budgets.count_failure, budgets.budget_left
    with (
        patch.object(attempts, "count_failure", count),
        patch.object(recovery, "count_failure", count),
        patch.object(attempts, "budget_left", left),
    ):
        yield


@fault
def hello_forgets_to_requeue() -> Iterator[None]:
    """What a hello does not name is dropped, but its mini-batch does not go back to the queue."""

    def lose(state: CoreState, node: Node, lease_ids: list[Any], now: Moment, *, lost: bool) -> None:
        if lost:
            original(state, node, lease_ids, now, lost=lost)
            return
        for lease_id in lease_ids:
            lease = state.leases[lease_id]
            state.drop_lease(lease, state.steps[lease.step_id])

    original = attempts.lose_leases
    with patch.object(nodes, "lose_leases", lose):
        yield


@fault
def cancelled_job_takes_rows() -> Iterator[None]:
    """The outcome of a lease that was out when its step ended is still written."""

    def revoke_all(state: CoreState, step: Step, now: Moment) -> None:
        taken = [state.leases[lease_id] for lease_id in step.lease_ids]
        original(state, step, now)
        for lease in taken:
            state.nodes[lease.node_id].claims[lease.lease_id] = (step.step_id, lease.mini_batch)

    def complete(state: CoreState, command: commands.CompleteAttempts, now: Moment) -> Any:
        node = state.nodes.get(command.node_id)
        reply = attempts.on_complete_attempts(state, command, now)
        for lease_id in reply.get(Verdict.JOB_ENDED, ()):
            step_id, mini_batch = node.claims[lease_id] if node is not None else (0, -1)  # type: ignore[index]
            state.dirty.outcomes.append(outcome_of(step_id, mini_batch, lease_id))
        return reply

    original = steps._revoke_all
    with handler(commands.CompleteAttempts, complete), patch.object(steps, "_revoke_all", revoke_all):
        yield


@fault
def pause_not_made_up_for() -> Iterator[None]:
    """A late tick does not move the deadlines."""
    with patch.object(ticks, "_shift_deadlines", lambda state, gap_s: None):
        yield


@fault
def late_result_counts_too() -> Iterator[None]:
    """A result that comes after another attempt's outcome takes that one's place."""

    def judge(state: CoreState, node: Node | None, lease_id: int) -> Verdict:
        verdict = original(state, node, lease_id)
        if verdict == Verdict.SUPERSEDED and node is not None and lease_id in node.claims:
            step_id, mini_batch = node.claims[lease_id]  # type: ignore[index]
            if state.steps[step_id].mini_batches.states[mini_batch] == MiniBatchState.SUCCEEDED:
                state.dirty.outcomes.append(outcome_of(step_id, mini_batch, lease_id))
                return Verdict.ACCEPTED
        return verdict

    original = attempts._judge_claim
    with patch.object(attempts, "_judge_claim", judge):
        yield


@fault
def lost_node_not_stored() -> Iterator[None]:
    """The row of a node that was given up stays behind."""

    def take(self: CoreState) -> Dirty:
        dirty = original(self)
        dirty.nodes_removed.clear()
        return dirty

    original = CoreState.take_dirty
    with patch.object(CoreState, "take_dirty", take):
        yield


@fault
def cordon_not_looked_at() -> Iterator[None]:
    """A cordoned node is handed work like any other."""

    def pick(state: CoreState, now: Moment) -> None:
        cordoned = [node for node in state.nodes.values() if node.cordoned]
        for node in cordoned:
            node.cordoned = False
        original(state, now)
        for node in cordoned:
            node.cordoned = True

    original = scheduling.pick
    with patch.object(scheduling, "pick", pick):
        yield


@fault
def cordon_leaves_with_the_node() -> Iterator[None]:
    """A cordon is forgotten when its node is lost."""

    def lose(state: CoreState, node: Node, message: str, now: Moment) -> None:
        node.cordoned = False
        original(state, node, message, now)

    original = nodes.lose_node
    with patch.object(nodes, "lose_node", lose), patch.object(ticks, "lose_node", lose):
        yield


@fault
def drain_forgotten_at_a_restart() -> Iterator[None]:
    """A node that is asked to drain gets work from the next master."""

    def load(row: NodeRow) -> Node:
        return original(row._replace(state=NodeState.DISCONNECTED, cordoned=0))

    original = recovery._node
    with patch.object(recovery, "_node", load):
        yield


@fault
def counters_left_behind() -> Iterator[None]:
    """Outcomes are committed, the step's row with its counters is not."""
    with patch.object(CoreState, "touch_step", lambda self, step: None):
        yield


@fault
def restart_forgets_tries() -> Iterator[None]:
    """Failed attempts of open mini-batches are not counted after a restart."""
    with patch.object(recovery, "count_failure", lambda step, mini_batch, lease_id, cause: 0):
        yield


@fault
def silent_node_kept_for_ever() -> Iterator[None]:
    """A node that is silent is never given up."""
    with patch.object(nodes, "_hear", lambda state, node, now: setattr(node, "expires_s", float("inf"))):
        yield


@fault
def released_leases_stay_away() -> Iterator[None]:
    """What an agent gives back is dropped, not queued again."""

    def release(state: CoreState, command: commands.ReleaseLeases, now: Moment) -> None:
        for number in command.lease_ids:
            lease = state.leases.get(number)  # type: ignore[call-overload]
            if lease is not None and lease.node_id == command.node_id:
                state.drop_lease(lease, state.steps[lease.step_id])

    with handler(commands.ReleaseLeases, release):
        yield


@fault
def checksums_not_looked_at() -> Iterator[None]:
    """Concatenation trusts the tables and does not look at checksums."""

    def read(self: Disk, at: Any, *, durable: bool = False) -> bytes:
        segment = self.segments[at.segment]
        return bytes(segment.data[at.offset : at.offset + at.length])

    with patch.object(Disk, "read", read):
        yield


@fault
def leased_twice() -> Iterator[None]:
    """A mini-batch is handed out again although it is leased."""

    def grant(state: CoreState, step: Step, node: Node, mini_batches: list[int], now: Moment) -> list[Lease]:
        for mini_batch in mini_batches:
            if not mini_batch % 7:
                step.ready.put_back(mini_batch)
        return original(state, step, node, mini_batches, now)

    original = scheduling._grant
    with patch.object(scheduling, "_grant", grant):
        yield


@fault
def step_ends_only_where_this_stream_offered_it() -> Iterator[None]:
    """An agent that came back on a new stream, and was offered nothing on it, does not hear of its step's end."""
    original = steps._end_step

    def end(state: CoreState, step: Step, ending: StepState, now: Moment) -> None:
        offered = {node.node_id for node in state.nodes.values() if step.step_id in node.offered}
        original(state, step, ending, now)
        state.effects[:] = [
            effect for effect in state.effects if not isinstance(effect, fx.EndStep) or effect.node_id in offered
        ]

    with patch.object(steps, "_end_step", end):
        yield


@fault
def taken_over_in_memory_alone() -> Iterator[None]:
    """The commit of a group of mini-batches leaves out the outcomes that came with it."""

    def take_over(state: CoreState, step: Step, taken: commands.TakenOver, generation: int) -> None:
        original(state, step, taken, generation)
        state.dirty.outcomes.pop()
        if taken.source:
            state.dirty.row_blocks.pop()

    original = plans._take_over
    with patch.object(plans, "_take_over", take_over):
        yield


@fault
def taken_over_although_items_are_missing() -> Iterator[None]:
    """Mini-batches of an earlier job are taken over although some of their items have no result."""
    with patch.object(Simulation, "is_whole", lambda self, row: row.state == MiniBatchState.SUCCEEDED):
        yield
