"""Decides who gets what. Runs once for each group of commands, never inside a handler."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from windrow_master.core import effects as fx
from windrow_master.core import shares
from windrow_master.core.blame import lease_limit
from windrow_master.core.causes import Budget
from windrow_master.core.commands import Moment
from windrow_master.core.gathering import gathers, needed, nodes_that_take_work
from windrow_master.core.ids import LeaseId, NodeId, StepId
from windrow_master.core.leases import Lease
from windrow_master.core.lifetimes import leases_in_time, left_s, note_lives
from windrow_master.core.pace import rate_left
from windrow_master.core.pools import choose_nodes, is_in_pool, works_on
from windrow_master.core.settings import NODE_LOSSES_UNTIL_EXCLUSIVE
from windrow_master.core.speculation import begin_again, late_moments_s, stragglers
from windrow_master.core.standing import Past
from windrow_master.core.state import CoreState, Node, Step
from windrow_master.core.states import JobState, MiniBatchState, StepState

if TYPE_CHECKING:
    from windrow_master.core.data_places import DataPlaces

RARELY = 10
"""Nodes that hold no more leases than slots, and have workers that are ready, are asked this many times less often: one
of these may have been restarted."""


def pick(state: CoreState, now: Moment) -> None:
    """Offer steps to nodes and hand out leases: by priority, then age. Among nodes, leases are spread evenly, the
    emptiest first.
    """
    if state.held or not state.scheduling_wanted:
        return
    state.picked_s = now.monotonic_s
    if not _settled(state, now):
        return
    state.scheduling_wanted = False
    serving = {node_id: node for node_id, node in state.nodes.items() if node.serves}
    if not serving:
        return
    steps = [step for step in state.steps.values() if _may_be_leased(state, step)]
    steps.sort(key=lambda step: (-state.jobs[step.job_key].priority, step.job_key, step.ordinal))
    for step in steps:
        if step.ready.long:
            note_lives(step, (node for node in serving.values() if is_in_pool(node, step)), now)
    shares.decide(state, steps, serving, now)
    offers = _offers(serving)
    for step in steps:
        with state.contained(step):
            if step.settings.instance_count is not None:
                step.nodes.chosen = choose_nodes(state, step, serving)
            for node in offers.get(step.step_id, ()):
                if works_on(node, step):
                    _offer(state, step, node, now)
            if not gathers(step):
                _hand_out(state, step, serving, now)
            elif nodes_that_take_work(step, serving.values()) >= needed(step):
                _hand_out(state, step, serving, now)
                if not gathers(step):
                    # It may have more now than one worker on each.
                    state.share_out_anew()
                    state.shares.due_s = now.monotonic_s + shares.DECISION_S


def _offers(serving: Mapping[NodeId, Node]) -> dict[StepId, list[Node]]:
    """By step, the nodes that should have workers of it, and have not been offered it."""
    found: dict[StepId, list[Node]] = {}
    for node in serving.values():
        if not node.shares.keys() <= node.offered:
            for step_id in node.shares.keys() - node.offered:
                found.setdefault(step_id, []).append(node)
    return found


def _offer(state: CoreState, step: Step, node: Node, now: Moment) -> None:
    node.offered.add(step.step_id)
    node.note_told(step.step_id, state.steps)
    step.workers.may_be_on.add(node.node_id)
    if step.workers.offered_s is None:
        step.workers.offered_s = now.monotonic_s
    state.effects.append(fx.SendStep(node.node_id, node.stream, step.step_id))


def placement_due_s(state: CoreState, step: Step) -> float:
    """When (monotonic) time alone allows for a step what it did not at the last `pick`; inf: it will not.

    A retry has waited long enough for another node, a mini-batch has become a straggler, a node has been set aside or
    doubted long enough, or the rate limit allows another call.
    """
    timing = state.timing
    moments = [waiting[0][0] + timing.retry_wait_s for waiting in step.ready.retries.values()]
    if step.settings.speculate:
        moments += late_moments_s(state, step)
    wants_more = step.settings.speculate or len(step.ready.delayed) < len(step.ready)
    if step.settings.rate_per_s < math.inf and wants_more:
        moments.append(step.pace.due_s)
    for node_id in step.nodes.doubted:
        standing = step.nodes.standings[node_id]
        if standing.doubted_s is not None:
            moments.append(standing.doubted_s + timing.retry_wait_s)
        if standing.aside_until_s is not None:
            moments.append(standing.aside_until_s)
    return _next_after_pick(state, moments)


def recall_due_s(state: CoreState) -> float:
    """When (monotonic) a node has had its time to give leases back; inf: none was asked."""
    wait_s = state.timing.recall_answer_s
    asked = [asked_s for node in state.nodes.values() for asked_s in node.recalled_s.values()]
    return _next_after_pick(state, [asked_s + pause_s for asked_s in asked for pause_s in (wait_s, wait_s * RARELY)])


def shares_due_s(state: CoreState) -> float:
    """When (monotonic) the nodes are to be shared out anew, though no command comes; inf: they are not."""
    return _next_after_pick(state, [state.shares.due_s])


def _next_after_pick(state: CoreState, moments: Iterable[float]) -> float:
    return min((moment for moment in moments if moment > state.picked_s), default=math.inf)


def _may_be_leased(state: CoreState, step: Step) -> bool:
    """Whether mini-batches of this step may be leased: at least a part of it is planned, and its job runs."""
    return (
        step.state == StepState.RUNNING
        and step.plan.reader is not None
        and state.jobs[step.job_key].state == JobState.RUNNING
    )


def _settled(state: CoreState, now: Moment) -> bool:
    """Whether, after a start, the nodes known from before have reported what they hold, or their time for that is
    over.
    """
    if not state.settle_until_s:
        return True
    if now.monotonic_s < state.settle_until_s and any(not node.has_reported for node in state.nodes.values()):
        return False
    state.settle_until_s = 0.0
    return True


@dataclass(slots=True)
class _Place:
    """A node that takes work of a step, with its load while leases are handed out."""

    node: Node
    slots: int
    """The number of workers that the node has for the step, at least one: it can run as many leases at a time."""
    held: int
    room: int
    """Leases it may be given."""
    is_fit: bool
    """In good standing with the step."""
    given: list[int] = field(default_factory=list)

    def take(self, mini_batches: list[int]) -> None:
        """Count mini-batches as given to the node."""
        self.given += mini_batches
        self.held += len(mini_batches)
        self.room -= len(mini_batches)


def _hand_out(state: CoreState, step: Step, serving: Mapping[NodeId, Node], now: Moment) -> None:
    """Hand out retries first, each to the best node for it, and then all others so that loads become even.

    A node's load is its number of leases for each slot: no slot gets a second lease while another slot is free.
    """
    most = _allowed_now(step, now)
    if not step.ready.ready_count(now.monotonic_s):
        if step.lease_ids:
            places = _places(state, step, _offered(step, serving), now)
            _recall(state, step, places, now)
            if step.settings.speculate and most:
                _speculate(state, step, places, now, most)
        return
    # What may run anywhere does not ask about nodes that want nothing.
    asks_all = bool(step.ready.retries or step.nodes.doubted or step.ready.long)
    nodes = _offered(step, serving) if asks_all else _hungry(step, serving)
    if not nodes:
        return
    places = _places(state, step, nodes, now)
    if step.ready.long and most:
        most -= _place_long(step, places, now, most)
    if step.ready.retries and most:
        most -= _place_retries(state, step, places, now, most)
    # Trials come first: where the other nodes can hold all that is left, there would never be one.
    most -= _pour(state, step, [place for place in places if not place.is_fit and place.room > 0], now, most)
    fit = [place for place in places if place.is_fit and place.room > 0]
    ready = [place for place in fit if has_ready_worker(step, place.node)]
    if len(ready) < len(fit):
        # What a worker can begin at once does not wait for one that still loads its script.
        most -= _pour(state, step, [place for place in ready if place.held < place.slots], now, most, to_slots=True)
    _pour(state, step, [place for place in fit if place.room > 0], now, most)
    if most < math.inf:
        _charge(step, [mini_batch for place in places for mini_batch in place.given], now)
    for place in places:
        if place.given:
            leases = _grant(state, step, place.node, place.given, now)
            node = place.node
            state.effects.append(fx.SendAssignments(node.node_id, node.stream, step.step_id, leases))
    if not step.ready.anywhere:
        if not asks_all:
            places = _places(state, step, _offered(step, serving), now)
        _recall(state, step, places, now)


def _offered(step: Step, serving: Mapping[NodeId, Node]) -> list[Node]:
    """The serving nodes that work on a step, and have been offered it."""
    names = sorted(step.workers.may_be_on & serving.keys())
    nodes = [serving[node_id] for node_id in names if step.step_id in serving[node_id].offered]
    return [node for node in nodes if works_on(node, step)]


def _hungry(step: Step, serving: Mapping[NodeId, Node]) -> list[Node]:
    """Those of `_offered` that want more leases than they hold."""
    step_id, found = step.step_id, []
    for node_id in sorted(step.nodes.hungry):
        node = serving.get(node_id)
        if node is None:
            continue
        if node.capacity.get(step_id, 0) <= node.held.get(step_id, 0):
            step.nodes.hungry.discard(node_id)
        elif step_id in node.offered and works_on(node, step):
            found.append(node)
    return found


def _speculate(state: CoreState, step: Step, places: list[_Place], now: Moment, most: float) -> None:
    """Begin stragglers, at most `most`, once more where slots are free: on other nodes, the emptiest first, or in
    another worker of the only node.

    A lease that has not begun comes back for those slots before (`_recall`).
    """
    begun: list[int] = []
    if any(place.held > place.slots for place in places):
        return
    for straggler in stragglers(state, step, now):
        able = [
            place
            for place in places
            if place.is_fit
            and min(place.room, place.slots - place.held) > 0
            and (place.node.node_id != straggler.node_id or len(places) == 1)
            and place.node.node_id not in step.past_of(straggler.mini_batch).nodes
        ]
        if len(begun) >= most:
            break
        if not able:
            continue
        place = min(able, key=lambda place: (not has_ready_worker(step, place.node), place.held / place.slots))
        lease = begin_again(state, step, straggler, place.node, now)
        place.take([straggler.mini_batch])
        begun.append(straggler.mini_batch)
        node = place.node
        state.effects.append(fx.SendAssignments(node.node_id, node.stream, step.step_id, [lease]))
    if begun and most < math.inf:
        _charge(step, begun, now)


def _places(state: CoreState, step: Step, serving: list[Node], now: Moment) -> list[_Place]:
    step_id = step.step_id
    places: list[_Place] = []
    for node in serving:
        wanted, held = node.capacity.get(step_id, 0), node.held.get(step_id, 0)
        limit = lease_limit(state, step, node, now) if step.nodes.doubted else None
        if limit is not None:
            wanted = min(wanted, limit)
        slots = max(1, node.workers.get(step_id, 1))
        if node.ends_s < math.inf:
            wanted = int(min(wanted, leases_in_time(node, step, slots, now)))
        if step.settings.rate_per_s < math.inf:
            # A lease is begun at once, so that the pace of leases is that of calls. Until a worker is ready, one waits.
            wanted = min(wanted, slots if has_ready_worker(step, node) else 1)
        room = min(wanted - held, state.limits.leases_per_node - len(node.lease_ids))
        places.append(_Place(node, slots, held, room, limit is None))
    return places


def _rate_per_s(step: Step) -> float:
    """The rate limit for leases: mini-batches that are split have their share of the step's (`pace.split_rate`)."""
    return rate_left(step.settings.rate_per_s, step.settings.split, len(step.splits.running))


def _allowed_now(step: Step, now: Moment) -> float:
    """How many mini-batches the rate limit allows to begin now; inf without one."""
    if step.settings.rate_per_s == math.inf:
        return math.inf
    units = step.pace.allowed(_rate_per_s(step), now.monotonic_s)
    if units and step.settings.rate_counts_items:
        # One that has more items than are allowed still begins: the next one waits for longer then.
        return max(1, int(units / _mean_items(step)))
    return units


def _charge(step: Step, mini_batches: list[int], now: Moment) -> None:
    """Count mini-batches that begin now for the rate limit. Those that are split set their own pace."""
    whole = [mini_batch for mini_batch in mini_batches if mini_batch not in step.splits.running]
    units: float = len(whole)
    if step.settings.rate_counts_items and whole:
        counts, mean = step.mini_batches.item_counts, _mean_items(step)
        units = sum(counts[mini_batch] or mean for mini_batch in whole)
    if units:
        step.pace.charge(units, _rate_per_s(step), now.monotonic_s)


def _mean_items(step: Step) -> float:
    """The mean number of items of a mini-batch, as far as it is known; at least 1."""
    counters = step.counters
    known = counters.items_total
    return max(1.0, known / max(1, counters.planned if any(step.mini_batches.item_counts[:1]) else counters.ended))


def _place_long(step: Step, places: list[_Place], now: Moment, most: float) -> int:
    """Give mini-batches that need much time, at most `most`, to free slots of nodes that live so long. Return how many
    were given.
    """
    given = 0
    for mini_batch, life_s in sorted(step.ready.long.items()):
        able = [
            place
            for place in places
            if place.is_fit and min(place.room, place.slots - place.held) > 0 and left_s(place.node, now) > life_s
        ]
        if able and given < most:
            step.ready.take_long(mini_batch)
            min(able, key=lambda place: place.held / place.slots).take([mini_batch])
            given += 1
    return given


def _place_retries(state: CoreState, step: Step, places: list[_Place], now: Moment, most: float) -> int:
    """Give each retry, at most `most`, to a node where it has not failed. A retry waits a while for room there, then
    any node will do. Return how many were given.
    """
    given = 0
    # Also waits for nodes that have not said yet how much they want.
    wanting = [place for place in places if place.node.capacity.get(step.step_id, 1) > 0]
    for past in sorted(step.ready.retries):
        fit = [place for place in wanting if place.is_fit] or wanting
        if not fit:
            break
        ranks = {place.node.node_id: _rank(state, step, place.node, past) for place in fit}
        best = min(ranks.values())
        while given < most and (waiting := step.ready.retries.get(past)) is not None:
            patient = now.monotonic_s - waiting[0][0] < state.timing.retry_wait_s
            able = [place for place in fit if place.room > 0 and (not patient or ranks[place.node.node_id] == best)]
            if patient and not any(place.held < place.slots for place in able) and _is_free_elsewhere(fit, able, past):
                # It would be asked back at once, for that slot.
                break
            if not able:
                break
            # One that has waited long enough takes any free slot before it waits behind others.
            free = [place for place in able if place.held < place.slots] if not patient else []
            place = min(free or able, key=lambda place: (ranks[place.node.node_id], place.held / place.slots))
            # Evenly: not all to the first, where several have room.
            place.take(step.ready.take_retries(past, 1))
            given += 1
    return given


def _is_free_elsewhere(fit: list[_Place], able: list[_Place], past: Past) -> bool:
    """Whether a node has a free slot that is not the best one for a mini-batch, though it has not failed there."""
    return any(
        min(place.room, place.slots - place.held) > 0 and place.node.node_id not in past.nodes
        for place in fit
        if place not in able
    )


def _rank(state: CoreState, step: Step, node: Node, past: Past) -> tuple[int, bool, bool, bool]:
    """How good a node is for a mini-batch that failed before; the lowest rank is the best.

    The criteria, in order: few failures of this mini-batch there; if memory ran out, not less memory than there; no
    recent failures on the node; not the node of the last failure.
    """
    node_id = node.node_id
    memory = 0
    if past.ran_out_of_memory:
        known = [at for failed_on in past.nodes if (at := state.nodes.get(failed_on)) is not None]
        memory = max((at.memory_bytes for at in known), default=0)
    standing = step.nodes.standings.get(node_id)
    return (
        past.nodes.count(node_id),
        past.ran_out_of_memory and node.memory_bytes < memory,
        standing is not None and bool(standing.evidence),
        past.nodes[-1] == node_id,
    )


def _pour(
    state: CoreState, step: Step, places: list[_Place], now: Moment, most: float, *, to_slots: bool = False
) -> int:
    """Give mini-batches that may run anywhere, at most `most`, to these nodes, so that loads become as even as their
    room allows: to each those first whose data it may have kept. `to_slots`: at most one lease for each slot. Return
    how many were given.
    """
    left = step.ready.anywhere
    if most < left:
        left = int(most)
    if left <= 0 or not places:
        return 0
    rooms = [min(place.room, place.slots - place.held) if to_slots else place.room for place in places]
    if left < sum(rooms):
        shares = _even_shares(
            [(place.held, place.slots, room) for place, room in zip(places, rooms, strict=True)], left
        )
    else:
        shares = rooms
    if (known := state.data_places) is not None and b'"remote"' in (step.plan.reader or b""):
        # All get what is theirs, before one takes what is another's.
        own = [_take_known(known, step, place, share) for place, share in zip(places, shares, strict=True)]
        shares_left = [share - count for share, count in zip(shares, own, strict=True)]
    else:
        shares_left = shares
    for place, share in zip(places, shares_left, strict=True):
        if share:
            place.take(step.ready.take(share, now.monotonic_s))
    return sum(shares)


def _take_known(known: DataPlaces, step: Step, place: _Place, most: int) -> int:
    """Give a node mini-batches whose data it may have kept, at most `most`; return how many."""
    nodes, crcs = step.nodes, step.mini_batches.recipe_crcs
    nodes.preferred, taken = known.take_known(nodes.preferred, place.node.node_id, most, step.ready, crcs)
    place.take(taken)
    return len(taken)


def _even_shares(places: list[tuple[int, int, int]], count: int) -> list[int]:
    """Divide `count`, which is less than all the room, so that the highest load (held / slots) stays as low as
    possible. `places`: (held, slots, room) of each node.
    """
    low, high = 0, max(-(-(held + room) // slots) for held, slots, room in places)

    def filled(level: int) -> list[int]:
        return [max(0, min(room, level * slots - held)) for held, slots, room in places]

    while low < high:  # the highest whole level that `count` reaches
        level = (low + high + 1) // 2
        if sum(filled(level)) <= count:
            low = level
        else:
            high = level - 1
    shares = filled(low)
    # What is left is less than another level needs: the emptiest get it.
    loads = [
        ((held + share) / slots, at)
        for at, ((held, slots, room), share) in enumerate(zip(places, shares, strict=True))
        if share < room
    ]
    heapq.heapify(loads)
    for _ in range(count - sum(shares)):
        _, at = heapq.heappop(loads)
        held, slots, room = places[at]
        shares[at] += 1
        if shares[at] < room:
            heapq.heappush(loads, ((held + shares[at]) / slots, at))
    return shares


def _grant(state: CoreState, step: Step, node: Node, mini_batches: list[int], now: Moment) -> list[Lease]:
    """Lease mini-batches to a node. This is on the hot path, so what they have in common is looked up once."""
    step_id, node_id, granted_s = step.step_id, node.node_id, now.monotonic_s
    generation = state.jobs[step.job_key].generation
    table = step.mini_batches
    attempts, troubles, leased = table.attempts, table.tries, MiniBatchState.LEASED
    leases: list[Lease] = []
    for lease_id, mini_batch in zip(state.next_lease_ids(len(mini_batches)), mini_batches, strict=True):
        lease = Lease(lease_id, step_id, mini_batch, generation, node_id, granted_s)
        table.become(mini_batch, leased)
        if mini_batch in attempts:
            lease.attempt += attempts[mini_batch]
        if mini_batch in troubles:
            trouble = troubles[mini_batch]
            lease.exclusive = trouble.failures[Budget.NODE_LOSSES] >= NODE_LOSSES_UNTIL_EXCLUSIVE
            lease.split = trouble.split
        leases.append(lease)
    if node_id in step.nodes.doubted:
        _put_on_trial(step, node_id, leases, now)
    if step.start_time is None:
        step.start_time = now.wall_s
    state.touch_step(step)  # who watches the job sees it leased
    if not node.lease_ids:
        # It was idle, so that its heartbeats were rare. With work, they come at the usual interval.
        node.expires_s = min(node.expires_s, granted_s + state.timing.lease_ttl_s)
        node.beat_due_s = min(node.beat_due_s, granted_s + state.timing.heartbeat_s)
    state.add_leases(leases, node, step)
    state.unstored.extend(lease.lease_id for lease in leases)
    return leases


def _put_on_trial(step: Step, node_id: NodeId, leases: list[Lease], now: Moment) -> None:
    """Mark leases as trials if it is not known whether their node is fit (`blame.lease_limit`)."""
    standing = step.nodes.standings[node_id]
    if standing.doubted_s is None and standing.aside_until_s is None:
        return
    if standing.doubted_s is not None:
        standing.doubted_s = now.monotonic_s
    for lease in leases:
        lease.trial = True


def _recall(state: CoreState, step: Step, places: list[_Place], now: Moment) -> None:
    """Ask nodes for leases that they have not begun, because nothing waits and another node has free slots.

    A node with more leases than slots is asked for as many as make loads even. A node with fewer may still have workers
    that are loading their script, each with a lease: it is asked, too, if another node has a worker that is ready. Only
    the agents know which leases have not begun. What has failed on all nodes with free slots stays where it is: it
    would be leased to that node again, and asked back again.
    """
    step_id = step.step_id
    fit = [place for place in places if place.is_fit] or places
    # A node that is due a trial has room for one.
    free = {place.node.node_id: min(place.slots - place.held, place.room) for place in places}
    free = {node_id: slots for node_id, slots in free.items() if slots > 0}
    if not free:
        return
    level = sum(place.held for place in fit) / sum(place.slots for place in fit)
    ready = {place.node.node_id for place in places if has_ready_worker(step, place.node)}
    left, left_ready = sum(free.values()), sum(slots for node_id, slots in free.items() if node_id in ready)
    for place in sorted(places, key=lambda place: place.slots - place.held):
        node, beyond = place.node, place.held - place.slots
        elsewhere = left_ready - (free.get(node.node_id, 0) if node.node_id in ready else 0)
        if beyond > 0 and left > 0:
            count = max(place.held - math.ceil(level * place.slots), min(beyond, left))
            pause_s = state.timing.recall_answer_s
        elif place.held > 0 and elsewhere > 0:
            count = min(place.held, elsewhere)
            pause_s = state.timing.recall_answer_s * (RARELY if node.node_id in ready else 1)
        else:
            continue
        asked_s = node.recalled_s.get(step_id)
        due = asked_s is None or now.monotonic_s - asked_s >= pause_s
        if beyond > 0 and (asked_s is None or not due):
            left -= count  # a node that was asked before and gave nothing back is not counted on
        if due:
            kept = _kept(state, step, node, free.keys() - {node.node_id})
            if node.held[step_id] > len(kept):
                node.recalled_s[step_id] = now.monotonic_s
                state.effects.append(fx.RecallLeases(node.node_id, node.stream, step_id, count, kept))


def _kept(state: CoreState, step: Step, node: Node, free: Set[NodeId]) -> tuple[LeaseId, ...]:
    """Leases of a node whose mini-batches have failed on all nodes with free slots."""
    tries = step.mini_batches.tries
    if not tries:
        return ()
    leases = (state.leases[lease_id] for lease_id in sorted(node.lease_ids & step.lease_ids))
    return tuple(
        lease.lease_id for lease in leases if lease.mini_batch in tries and free <= set(tries[lease.mini_batch].nodes)
    )


def has_ready_worker(step: Step, node: Node) -> bool:
    """Whether a worker of the step is known to have finished `init()` on a node."""
    standing = step.nodes.standings.get(node.node_id)
    return step.step_id in node.ready_steps or (standing is not None and standing.succeeded > 0)
