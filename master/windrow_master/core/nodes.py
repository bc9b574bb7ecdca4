"""Nodes: registered, heard of, connected, drained, lost.

State machine of one incarnation of a node: `transitions.NODE`. A LOST node is forgotten at once, unless its name is
cordoned; its agent registers again.

A node on which the mini-batches of one step fail stays READY: it is set aside for that step (`core/blame.py`).

A cordon is not a state but a property of the node's name: it outlives incarnations and masters, until it is taken back
or the node is removed.

Invariants:
1. One live incarnation a node; another one is refused until this one is lost, or proves that it is dead: by its name
   and the secret of the node's agent, if the agent brought one.
2. One Work stream a node; what an older stream still says is ignored.
3. A LOST node holds no lease.
4. A cordoned node is handed nothing new, whatever its state; what it holds, it may finish.
5. While several nodes are connected and none of them is heard of, none is lost, for up to `cut_off_max_s`: most likely
   the master is cut off, and there is no other node to run anything. After that, every node gets a full lease period
   before it can be declared lost.
6. A node is handed at most `limits.leases_per_node` leases, whatever it asks for.
"""

from __future__ import annotations

import math

from windrow.common.quantities import counted

from windrow_master.core import effects as fx
from windrow_master.core.allocated_nodes import link, note_charged, note_left, why_not_admitted
from windrow_master.core.attempts import lose_leases
from windrow_master.core.blame import fail_if_given_up, forget_standing
from windrow_master.core.commands import (
    CloseWork,
    CordonNode,
    DrainNode,
    HeartbeatNode,
    HeldLease,
    Moment,
    OpenWork,
    RegisterNode,
    RemoveNode,
    SetCapacity,
)
from windrow_master.core.endings import forget_node_of_endings
from windrow_master.core.gpus import note_gpu_uses, note_idle_gpus
from windrow_master.core.ids import LeaseId, NodeId
from windrow_master.core.leases import Lease
from windrow_master.core.ledger import drop_workers, note_now_and_then, set_workers
from windrow_master.core.lifetimes import note_begun
from windrow_master.core.pools import pools_of
from windrow_master.core.refused import Refused
from windrow_master.core.state import LOST_SECRETS_KEPT, CoreState, Node, Step
from windrow_master.core.states import ENDED_STEPS, JobState, MiniBatchState, NodeState
from windrow_master.limits import how_to_raise

DIGEST_MISMATCHES_MAX = 4
"""The number of heartbeats in a row with a different view of the leases held after which the stream is reopened."""


def on_register_node(state: CoreState, command: RegisterNode, now: Moment) -> Refused | None:
    """Admit an incarnation of a node."""
    if refused := why_not_admitted(state, command.allocation, command.node_id, command.node_incarnation):
        return refused
    known = state.nodes.get(command.node_id)
    if known is not None and known.secret_digest and known.secret_digest != command.secret_digest:
        wait_s = max(0.0, known.expires_s - now.monotonic_s)
        return Refused(
            "NODE_ALREADY_LIVE",
            f"There is a node named {command.node_id}, and this agent does not have its secret, which is kept in the "
            "folder of the agent that joined under that name. If that agent is dead and its folder lost, this one gets "
            f"the name once the node is lost, in {wait_s:.1f} s; if not, give this one another name (--node-id).",
        )
    if known is not None and known.node_incarnation != command.node_incarnation:
        if known.node_incarnation != command.replaced_incarnation and known.state != NodeState.LOST and known.seen:
            wait_s = max(0.0, known.expires_s - now.monotonic_s)
            return Refused(
                "NODE_ALREADY_LIVE",
                f"A node named {command.node_id} is already connected, from another process. If that one is "
                f"dead, this one gets its place in {wait_s:.1f} s; if not, give this one another name.",
            )
        lose_node(state, known, "Replaced by its next incarnation.", now)
        known = None
    if known is None:
        if len(state.nodes) >= state.limits.nodes:
            return Refused(
                "LIMIT_REACHED",
                f"{counted(state.limits.nodes, 'node')} are registered, which is this master's limit nodes. "
                f"{command.node_id} joins once one of them has left or is lost; its agent tries again. To take more, "
                f"{how_to_raise('nodes')}.",
            )
        known = state.nodes[command.node_id] = Node(command.node_id, command.node_incarnation)
        known.register_time = now.wall_s
        known.cordoned = state.absent.pop(command.node_id, None) is not None
        state.add_node_event(now, command.node_id, "node_registered", command.node_id)
    known.has(command.resources)
    known.labels = command.labels
    known.ends_s = now.monotonic_s + command.lifetime_s
    known.allocation = command.allocation
    known.secret_digest = command.secret_digest
    state.lost_secrets.pop(command.node_id, None)
    for step_id, identity in command.held_steps:
        # Only those whom a master has offered a step know its identity.
        if step_id in state.steps and not state.is_foreign(step_id, identity):
            known.note_told(step_id, state.steps)
    known.pools = pools_of(command.labels)
    if known.stream:
        # It may have other slots and pools than it began its stream with.
        state.shares.streams = []
        state.share_out_anew()
    _note_sign_of_life(state, known, now)
    link(state, known, now)
    state.touch_node(known)
    return None


def _note_sign_of_life(state: CoreState, node: Node, now: Moment, next_s: float = 0.0) -> None:
    """Note that a node was heard. `next_s`: the time until its next heartbeat, by its own account; its leases live
    that much longer.
    """
    timing = state.timing
    if is_cut_off(state, now):
        extend_all_leases(state, now)
    node.seen = True
    state.heard_s = now.monotonic_s
    pause_s = timing.heartbeat_s
    if not node.lease_ids:
        pause_s = max(pause_s, min(next_s, timing.idle_heartbeat_s))
    node.beat_due_s = now.monotonic_s + pause_s
    ttl = timing.lease_ttl_s + pause_s - timing.heartbeat_s
    node.expires_s = max(node.expires_s, now.monotonic_s + ttl) if node.stream else now.monotonic_s + ttl


def is_cut_off(state: CoreState, now: Moment) -> bool:
    """Whether the master itself seems to be cut off: several nodes are connected, and all are overdue, except for at
    most `cut_off_max_s`.
    """
    # The cheap test first: it is made at each sign of life, and is nearly always false.
    if not 2 * state.timing.heartbeat_s < now.monotonic_s - state.heard_s < state.timing.cut_off_max_s:
        return False
    due_s = [node.beat_due_s for node in state.nodes.values() if node.stream]
    return len(due_s) > 1 and now.monotonic_s > max(due_s) + state.timing.heartbeat_s


def extend_all_leases(state: CoreState, now: Moment) -> None:
    """Give each connected node a full lease period (invariant 5)."""
    for node in state.nodes.values():
        if node.stream:
            node.expires_s = now.monotonic_s + state.timing.lease_ttl_s


def _find(state: CoreState, node_id: NodeId, node_incarnation: str) -> Node | Refused:
    node = state.nodes.get(node_id)
    if node is None or node.node_incarnation != node_incarnation or node.state == NodeState.LOST:
        return Refused("NODE_UNKNOWN", f"Node {node_id} is not registered, or no longer. Its agent registers again.")
    return node


def on_heartbeat_node(state: CoreState, command: HeartbeatNode, now: Moment) -> bool | Refused:
    """Note a sign of life, and compare what the agent holds with what the master believes."""
    node = _find(state, command.node_id, command.node_incarnation)
    if isinstance(node, Refused):
        return node
    _note_sign_of_life(state, node, now, command.next_s)
    note_now_and_then(state, node, now)
    if command.gpu_count is not None and node.has_gpus(command.gpu_count):
        state.shares.streams = []
        state.share_out_anew()
    if command.idle_gpus or node.idle_gpus:
        note_idle_gpus(state, node, command.idle_gpus, now)
    note_gpu_uses(state, node, command.gpu_uses)
    if command.running and (node.ends_s < math.inf or node.allocation):
        note_begun(state, node, command.running, now)
    for step_id in command.ready_steps:
        step = state.steps.get(step_id)
        if step is not None:
            step.workers.is_ready = True
            step.workers.init_failures.pop(node.node_id, None)
            if step_id not in node.ready_steps and step.state not in ENDED_STEPS:
                node.ready_steps.add(step_id)
                state.scheduling_wanted = True
    if not node.stream:
        return False
    digest = 0
    for lease_id in node.lease_ids:
        digest ^= lease_id
    # Leases under way make the two views differ all the time, so only a difference that stays the same counts. The
    # exclusive or of neighbouring ids is often 0: without the count, nobody would miss a lost run of four.
    mine, theirs = (len(node.lease_ids), digest), (command.lease_count, command.lease_digest)
    digests = (mine, theirs)
    standing = digests == node.digests and mine != theirs
    node.digests = digests
    node.digest_mismatches = node.digest_mismatches + 1 if standing else 0
    if node.digest_mismatches >= DIGEST_MISMATCHES_MAX:
        node.digest_mismatches = 0
        return True
    return False


def on_open_work(state: CoreState, command: OpenWork, now: Moment) -> Refused | None:
    """Begin a Work stream: both sides agree on what the node holds."""
    node = _find(state, command.node_id, command.node_incarnation)
    if isinstance(node, Refused):
        return node
    if node.stream:
        state.effects.append(fx.CloseStream(node.node_id, node.stream))
    node.stream = command.stream
    node.has_reported = True
    node.capacity.clear()
    node.given_up.clear()
    drop_workers(state, node, now)
    node.shares, node.shares_told = dict(command.workers), None
    state.share_out_anew()
    node.offered = set()
    node.recalled_s.clear()  # whatever was asked for on the earlier stream may never have arrived
    node.claims.clear()
    node.digest_mismatches = 0
    node.draining = False
    if node.state == NodeState.DISCONNECTED:
        node.become(NodeState.READY)
    elif node.state == NodeState.DRAINING:
        state.effects.append(fx.SendDrain(node.node_id, node.stream))
    _note_sign_of_life(state, node, now)
    state.touch_node(node)
    revoked: list[LeaseId] = []
    named = set()
    for held in command.held:
        node.claims[held.lease_id] = (held.step_id, held.mini_batch)
        lease = state.leases.get(held.lease_id)
        is_its = lease is not None and lease.node_id == node.node_id and lease.generation == held.generation
        step = state.steps.get(held.step_id)
        if not is_its and step is not None:
            with state.contained(step):
                is_its = _adopt(state, node, step, held, now)
        if is_its:
            named.add(held.lease_id)
        else:
            revoked.append(held.lease_id)
    lose_leases(
        state,
        node,
        [lease_id for lease_id in sorted(node.lease_ids) if lease_id not in named],
        now,
        lost=False,
        ran=False,
    )
    if revoked:
        state.effects.append(fx.RevokeLeases(node.node_id, node.stream, revoked))
    if node.cordoned:
        state.recall_unstarted(node)
    for step_id in command.step_ids:
        step = state.steps.get(step_id)
        if step is not None and step_id in node.told_steps:
            step.workers.may_be_on.add(node.node_id)
            if state.jobs[step.job_key].state == JobState.CANCELLING:
                step.workers.ending_on.add(node.node_id)
        if step is None or (step.state in ENDED_STEPS and node.node_id not in step.workers.ending_on):
            generation = 0 if step is None else state.jobs[step.job_key].generation
            state.effects.append(fx.EndStep(node.node_id, node.stream, step_id, generation))
    for step in state.steps.values():
        if node.node_id in step.workers.ending_on:
            # Whatever was said on an earlier stream may have been lost.
            generation = state.jobs[step.job_key].generation
            state.effects.append(fx.EndStep(node.node_id, node.stream, step.step_id, generation))
    state.scheduling_wanted = True
    return None


def _adopt(state: CoreState, node: Node, step: Step, held: HeldLease, now: Moment) -> bool:
    """Let a node keep a lease of an earlier master, if its mini-batch is still open and nobody else has it.

    The state may have been restored from a backup. Then a node can hold leases of masters that this state does not
    know: for step numbers that now belong to other steps, or for mini-batches that are divided again. None of those is
    adopted. Nor is one that this master has given, or has adopted before: it has ended, and is the key of an attempt.
    """
    lease_id, _, mini_batch, generation, identity, contradicted = held
    if contradicted or step.state in ENDED_STEPS or identity != state.identity_of(step):
        return False
    if lease_id in state.leases or not state.may_be_adopted(lease_id):
        return False
    if not 0 <= mini_batch < step.plan.known_before:
        return False
    table = step.mini_batches
    tries = table.tries.get(mini_batch)
    if (
        table.states[mini_batch] != MiniBatchState.QUEUED
        or state.jobs[step.job_key].generation != generation
        or (tries is not None and (lease_id in tries.lease_ids or lease_id in tries.lost_lease_ids))
    ):
        return False
    if not step.ready.remove(mini_batch):
        return False
    attempt = table.attempts.get(mini_batch, 0) + 1
    lease = Lease(lease_id, step.step_id, mini_batch, generation, node.node_id, now.monotonic_s, attempt)
    table.become(mini_batch, MiniBatchState.LEASED)
    state.add_leases([lease], node, step)
    state.adopted.add(lease_id)
    state.unstored.append(lease_id)
    return True


def on_close_work(state: CoreState, command: CloseWork, now: Moment) -> None:
    """Close a Work stream. If the node was draining and holds nothing, it has left."""
    node = state.nodes.get(command.node_id)
    if node is None or node.stream != command.stream:
        return
    node.stream = 0
    node.capacity.clear()
    node.given_up.clear()
    drop_workers(state, node, now)
    if node.draining and not node.lease_ids:
        lose_node(state, node, "Left.", now, event="node_left")
        return
    if node.state == NodeState.READY:
        node.become(NodeState.DISCONNECTED)
    state.scheduling_wanted = True
    node.expires_s = min(node.expires_s, now.monotonic_s + state.timing.disconnected_ttl_s)
    state.touch_node(node)


def on_set_capacity(state: CoreState, command: SetCapacity, now: Moment) -> None:
    """Set the number of leases that a node wants for each step."""
    node = state.nodes.get(command.node_id)
    if node is None or node.stream != command.stream:
        return
    if command.draining and not node.draining:
        node.draining = True
        node.become(NodeState.DRAINING)
        node.message = "Takes no new work; finishes the leases that it holds."
        state.touch_node(node)
        # It no longer gets anything, and this message comes after all that it got: its agent knows when it may leave.
        state.effects.append(fx.SendDrain(node.node_id, node.stream))
    for step_id, leases_max, workers in command.capacities:
        step = state.steps.get(step_id)
        if step is None or step.state in ENDED_STEPS:
            continue
        # Nobody's word is worth more than this: leases go where the slots are.
        node.capacity[step_id] = min(leases_max, state.limits.leases_per_node)
        set_workers(state, node, step_id, min(workers, state.limits.workers_per_node), now)
        step.nodes.hungry.add(node.node_id)
        if step_id in command.given_up:
            node.given_up.add(step_id)
            with state.contained(step):
                fail_if_given_up(state, step, now)
        else:
            node.given_up.discard(step_id)
    state.scheduling_wanted = True


def _named(state: CoreState, node_id: NodeId) -> Node | Refused:
    """Find a node by its name alone, which is what clients know."""
    node = state.nodes.get(node_id) or state.absent.get(node_id)
    if node is None:
        return Refused("NODE_UNKNOWN", f"There is no node named {node_id}. `windrow node list` lists the nodes.")
    return node


def on_drain_node(state: CoreState, command: DrainNode, now: Moment) -> Node | Refused:
    """Ask a node to leave. Its name stays cordoned. A node that has left stays as it is."""
    node = _named(state, command.node_id)
    if isinstance(node, Refused) or node.state == NodeState.LOST:
        return node
    node.become(NodeState.DRAINING)
    node.message = "Asked to drain."
    _set_cordon(state, node, True, now)
    state.touch_node(node)
    if node.stream:
        state.effects.append(fx.SendDrain(node.node_id, node.stream))
    return node


def on_cordon_node(state: CoreState, command: CordonNode, now: Moment) -> Node | Refused:
    """Hand a node nothing new from now on, or hand it work again."""
    node = _named(state, command.node_id)
    if not isinstance(node, Refused):
        _set_cordon(state, node, command.cordoned, now)
        if command.cordoned:
            state.recall_unstarted(node)
    return node


def _set_cordon(state: CoreState, node: Node, cordoned: bool, now: Moment) -> None:
    if node.cordoned == cordoned:
        return
    node.cordoned = cordoned
    state.scheduling_wanted = True  # also without it: what was to wait for this node, waits for nothing
    if not cordoned:
        state.absent.pop(node.node_id, None)
    state.touch_node(node)
    state.add_node_event(now, node.node_id, "node_cordoned" if cordoned else "node_uncordoned", node.node_id)


def on_remove_node(state: CoreState, command: RemoveNode, now: Moment) -> Refused | None:
    """Forget a node that is gone, and its cordon. Its leases go back at once, and its name is free."""
    node = _named(state, command.node_id)
    if isinstance(node, Refused):
        # One that was lost is only known by its secret.
        return None if state.lost_secrets.pop(command.node_id, "") else node
    if node.stream and not command.force:
        return Refused(
            "NODE_CONNECTED",
            f"Node {node.node_id} is still connected, and its agent would register it again. Drain it first: "
            f"windrow node drain {node.node_id}. Or end its connection: windrow node remove {node.node_id} --force",
        )
    node.cordoned = False
    if node.state != NodeState.LOST:
        if node.stream:
            # It does not die: nothing that it holds is to blame.
            node.become(NodeState.DRAINING)
        lose_node(state, node, "Removed.", now, event="node_removed")
    else:
        del state.absent[node.node_id]
        state.touch_node(node)
    return None


def lose_node(
    state: CoreState, node: Node, message: str, now: Moment, event: str = "node_lost", *, taken: bool = False
) -> None:
    """Give a node up: its leases go back, and it is forgotten except for a cordon (node invariant 3).

    If the node was leaving anyway, its lifetime has ended, or an engine has taken it (`taken`), the loss does not count
    against its mini-batches. Otherwise, on machines that can be withdrawn at short notice, long mini-batches would look
    like killers of nodes.
    """
    if taken:
        node.ends_s = min(node.ends_s, now.monotonic_s)
    leaving = node.state == NodeState.DRAINING or now.monotonic_s >= node.ends_s
    drop_workers(state, node, now)
    node.become(NodeState.LOST)
    node.message, node.last_fault = message, None
    why = message if taken else ""
    note_charged(state, node, lose_leases(state, node, sorted(node.lease_ids), now, lost=not leaving, why=why))
    if event == "node_left":
        note_left(state, node, now)
    if node.stream:
        state.effects.append(fx.CloseStream(node.node_id, node.stream))
        node.stream = 0
    state.add_node_event(now, node.node_id, event, f"{node.node_id}: {message}")
    del state.nodes[node.node_id]
    forget_standing(state, node.node_id, now)
    forget_node_of_endings(state, node, now, left=event == "node_left")
    if node.cordoned:
        node.claims.clear()
        state.absent[node.node_id] = node
    elif event == "node_lost" and node.secret_digest:
        state.lost_secrets[node.node_id] = node.secret_digest
        if len(state.lost_secrets) > LOST_SECRETS_KEPT:
            del state.lost_secrets[next(iter(state.lost_secrets))]
    state.touch_node(node)
    state.scheduling_wanted = True
