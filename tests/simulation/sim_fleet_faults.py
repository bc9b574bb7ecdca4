"""Planted faults of what the core does with nodes and with what they say."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from sim_planting import fault, handler
from windrow_master.core import attempts, blame, budgets, commands, nodes, recovery, scheduling, steps, ticks
from windrow_master.core import effects as fx
from windrow_master.core.commands import Moment
from windrow_master.core.records import Dirty, NodeRow
from windrow_master.core.refused import Refused
from windrow_master.core.state import Charge, CoreState, Job, Node, Step
from windrow_master.core.states import Cause, JobState, NodeState, StepState


@fault(13)
def no_node_incarnation_check() -> Iterator[None]:
    """A late message of a dead incarnation counts as the living one's."""

    def find(state: CoreState, node_id: Any, node_incarnation: str) -> Any:
        return state.nodes.get(node_id) or Refused("NODE_UNKNOWN", "")

    with patch.object(nodes, "_find", find):
        yield


@fault(9)
def stream_outlives_its_incarnation() -> Iterator[None]:
    """What an agent that was started anew says counts as said on the stream of the one before."""

    def register(state: CoreState, command: commands.RegisterNode, now: Moment) -> Any:
        before = state.nodes.get(command.node_id)
        stream = before.stream if before is not None else 0
        reply = nodes.on_register_node(state, command, now)
        node = state.nodes.get(command.node_id)
        if node is not None and node is not before:
            node.stream = stream
        return reply

    with handler(commands.RegisterNode, register):
        yield


@fault(12)
def removed_node_stays() -> Iterator[None]:
    """A node that is removed is told to be gone, and is not."""

    def remove(state: CoreState, command: commands.RemoveNode, now: Moment) -> Any:
        absent = state.absent.get(command.node_id)
        reply = nodes.on_remove_node(state, command, now)
        if absent is not None and reply is None:
            state.absent[command.node_id] = absent
        return reply

    with handler(commands.RemoveNode, remove):
        yield


@fault(13)
def lost_assignment_never_noticed() -> Iterator[None]:
    """What a hello does not name is thought to be under way for ever, and views are never compared."""

    def open_work(state: CoreState, command: commands.OpenWork, now: Moment) -> Any:
        with patch.object(nodes, "lose_leases", lambda *args, **more: []):
            return nodes.on_open_work(state, command, now)

    with handler(commands.OpenWork, open_work), patch.object(nodes, "DIGEST_MISMATCHES_MAX", 1 << 60):
        yield


@fault(13)
def views_compared_without_count() -> Iterator[None]:
    """Heartbeats compare the exclusive or of the lease ids alone; neighbouring ids cancel out."""

    def heartbeat(state: CoreState, command: commands.HeartbeatNode, now: Moment) -> Any:
        node = state.nodes.get(command.node_id)
        count = len(node.lease_ids) if node is not None else 0
        return nodes.on_heartbeat_node(state, command._replace(lease_count=count), now)

    with handler(commands.HeartbeatNode, heartbeat):
        yield


@fault(6)
def node_loss_charged_to_retries() -> Iterator[None]:
    """A lost node uses up max_retries."""

    def count(step: Step, mini_batch: int, lease_id: int, cause: Cause) -> int:
        return original(step, mini_batch, lease_id, Cause.EXCEPTION if cause == Cause.NODE_LOST else cause)

    def left(step: Step, failures: int, cause: Cause, *, elsewhere: bool) -> bool:
        return budget(step, failures, Cause.EXCEPTION if cause == Cause.NODE_LOST else cause, elsewhere=elsewhere)

    original, budget = budgets.count_failure, budgets.budget_left
    with (
        patch.object(attempts, "count_failure", count),
        patch.object(recovery, "count_failure", count),
        patch.object(attempts, "budget_left", left),
    ):
        yield


@fault(21)
def hello_forgets_to_requeue() -> Iterator[None]:
    """What a hello does not name is dropped, but its mini-batch does not go back to the queue."""

    def lose(
        state: CoreState, node: Node, lease_ids: list[Any], now: Moment, *, lost: bool, ran: bool = True, why: str = ""
    ) -> list[Charge]:
        if lost:
            return original(state, node, lease_ids, now, lost=lost, ran=ran, why=why)
        for lease_id in lease_ids:
            lease = state.leases[lease_id]
            state.drop_lease(lease, state.steps[lease.step_id])
        return []

    original = attempts.lose_leases
    with patch.object(nodes, "lose_leases", lose):
        yield


@fault(10)
def lost_node_not_stored() -> Iterator[None]:
    """The row of a node that was given up stays behind."""

    def take(self: CoreState) -> Dirty:
        dirty = original(self)
        dirty.nodes_removed.clear()
        return dirty

    original = CoreState.take_dirty
    with patch.object(CoreState, "take_dirty", take):
        yield


@fault(11)
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


@fault(11)
def cordon_leaves_with_the_node() -> Iterator[None]:
    """A cordon is forgotten when its node is lost."""

    def lose(state: CoreState, node: Node, message: str, now: Moment, event: str = "node_lost") -> None:
        node.cordoned = False
        original(state, node, message, now, event)

    original = nodes.lose_node
    with patch.object(nodes, "lose_node", lose), patch.object(ticks, "lose_node", lose):
        yield


@fault(10, 11)
def drain_forgotten_at_a_restart() -> Iterator[None]:
    """A node that is asked to drain gets work from the next master."""

    def load(row: NodeRow) -> Node:
        return original(row._replace(state=NodeState.DISCONNECTED, cordoned=0))

    original = recovery._node
    with patch.object(recovery, "_node", load):
        yield


@fault(13)
def silent_node_kept_for_ever() -> Iterator[None]:
    """A node that is silent is never given up."""

    def hear(state: CoreState, node: Node, now: Moment, next_s: float = 0.0) -> None:
        node.expires_s = math.inf

    with patch.object(nodes, "_note_sign_of_life", hear):
        yield


@fault(21)
def released_leases_stay_away() -> Iterator[None]:
    """What an agent gives back is dropped, not queued again."""

    def release(state: CoreState, command: commands.ReleaseLeases, now: Moment) -> None:
        for number in command.lease_ids:
            lease = state.leases.get(number)  # type: ignore[call-overload]
            if lease is not None and lease.node_id == command.node_id:
                state.drop_lease(lease, state.steps[lease.step_id])

    with handler(commands.ReleaseLeases, release):
        yield


@fault(14)
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


@fault(22)
def cancelled_at_once() -> Iterator[None]:
    """A job is CANCELLED when its nodes are told to end its workers, not when they have."""

    def settle(state: CoreState, job: Job, now: Moment) -> None:
        for step in job.steps if job.state == JobState.CANCELLING else ():
            step.workers.ending_on.clear()
        original(state, job, now)

    original = steps.settle_job
    with patch.object(steps, "settle_job", settle):
        yield


@fault(18)
def retries_go_anywhere() -> Iterator[None]:
    """Where a mini-batch has failed makes no difference to where it is tried next."""
    with patch.object(scheduling, "_rank", lambda state, step, node, past: (0, False, False, False)):
        yield


@fault(19)
def nobody_is_doubted() -> Iterator[None]:
    """A node on which everything fails gets work as any other does."""
    with patch.object(blame, "_is_doubted", lambda state, step, node_id: False):
        yield


@fault(16)
def nothing_is_recalled() -> Iterator[None]:
    """What a node has not begun stays there, although another has nothing to do."""
    with patch.object(scheduling, "_recall", lambda state, step, places, now: None):
        yield


@fault(17)
def first_come_first_served() -> Iterator[None]:
    """The first node gets all that it wants, the next what is left."""

    def shares(places: list[tuple[int, int, int]], count: int) -> list[int]:
        given = []
        for _, _, room in places:
            given.append(min(room, count))
            count -= given[-1]
        return given

    with patch.object(scheduling, "_even_shares", shares):
        yield


@fault(13)
def set_aside_for_ever() -> Iterator[None]:
    """A node that was set aside, or is doubted, gets no mini-batch any more, be it the last one there."""

    def limit(state: CoreState, step: Step, node: Node, now: Moment) -> int | None:
        return 0 if node.node_id in step.nodes.doubted else None

    with patch.object(scheduling, "lease_limit", limit):
        yield
