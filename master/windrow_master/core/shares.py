"""How many workers each step has on each node: fair shares for projects, and in them for jobs, decided for the whole
cluster, and sent to the agents.

Mini-batches are short, so what is shared out are workers: a step that has fewer of them on a node than before finishes
what they run, and nothing is lost. `sharing` has the arithmetic; this module asks it about the state, and acts on the
answer.

A decision is made when steps or nodes come and go, and else at most every `DECISION_S`. All of it is volatile: a new
master begins with what nodes say that they have.

Invariants:
1. What nodes are told (`Node.shares`) never needs more than they have, nor more than a project's limit.
2. Workers change hands only if afterwards their new step has no more than it is entitled to, and their old one no less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from windrow_master.core import effects as fx
from windrow_master.core.blame import lease_limit
from windrow_master.core.commands import Moment
from windrow_master.core.ids import NodeId, StepId
from windrow_master.core.pools import is_in_pool, working_nodes
from windrow_master.core.sharing.entitlements import Claim, Owner, advance, entitle
from windrow_master.core.sharing.placing import NO_BOUND, Crew, Place, place, place_standby
from windrow_master.core.state import CoreState, Group, Node, Step

DECISION_S = 0.1
"""The least time between two decisions, unless steps or nodes come or go."""

TURN_S = 2.0
"""The least time after which a worker is passed on so that shares are fair on average."""

PASSED_MAX_S = 1.0
"""Of a longer time between two decisions, no more counts for what is owed: something else stood still, too."""

_TURN_INITS = 10.0
"""A turn lasts at least this many times `init()`."""

_PAYS_INITS = 5.0
"""A worker has paid for its `init()` after this many times as long."""


def decide(state: CoreState, steps: Sequence[Step], serving: Sequence[Node], now: Moment) -> None:
    """Decide anew, if there is a reason to, and tell the nodes. `steps`: those that may be leased."""
    shares = state.shares
    demands: dict[StepId, int] = {}
    for step in steps:
        with state.contained(step):
            demands[step.step_id] = step.ready.ready_count(now.monotonic_s) + step.counters.leased
    there = (
        tuple((step_id, demand > 0) for step_id, demand in demands.items()),
        tuple((node.node_id, node.stream, len(node.given_up), len(node.aside_for)) for node in serving),
    )
    if there == shares.there and now.monotonic_s < shares.decided_s + DECISION_S:
        if len(steps) > 1 or any(step.settings.instance_count or step.nodes.doubted for step in steps):
            shares.due_s = shares.decided_s + DECISION_S
        return
    passed_s = min(now.monotonic_s - shares.decided_s, PASSED_MAX_S)
    shares.there, shares.decided_s, shares.due_s = there, now.monotonic_s, math.inf
    wants = _wants(state, steps, serving, demands, now)
    groups: dict[frozenset[str], list[Node]] = {}
    for node in serving:
        groups.setdefault(node.pools, []).append(node)
    for pools in [pools for pools in shares.groups if pools not in groups]:
        del shares.groups[pools]
    # Nodes that are in pools first: a step that names one finds the others full otherwise.
    for pools in sorted(groups, key=lambda pools: (not pools, sorted(pools))):
        nodes = groups[pools]
        here = [want for want in wants if is_in_pool(nodes[0], want.step)]
        _share_out(state, shares.groups.setdefault(pools, Group()), here, nodes, passed_s, now)
    if len(wants) > 1 and any(want.demand for want in wants):
        # Whose turn it is changes with time alone.
        shares.due_s = now.monotonic_s + DECISION_S
    for node in serving:
        if node.shares_told != node.shares:
            node.shares_told = dict(node.shares)
            told = tuple(sorted(node.shares.items()))
            state.effects.append(fx.SendShares(node.node_id, node.stream, told, state.timing.reclaim_after_s))


@dataclass(slots=True)
class _Want:
    """What a step wants. `demand`: how many workers it could still use now: one for each mini-batch that may run, or
    runs. `barred`, `chosen`: as of a crew.
    """

    step: Step
    demand: int
    barred: set[NodeId]
    chosen: set[NodeId] | None
    init_s: float


def _wants(
    state: CoreState, steps: Sequence[Step], serving: Sequence[Node], demands: Mapping[StepId, int], now: Moment
) -> list[_Want]:
    """What the steps want; those that raise want nothing, and their jobs are paused."""
    givers = [node for node in serving if node.given_up]
    wants: list[_Want] = []
    for step in steps:
        if step.step_id not in demands:
            continue
        with state.contained(step):
            barred = {node.node_id for node in givers if step.step_id in node.given_up}
            if step.nodes.doubted:
                barred |= {node.node_id for node in serving if lease_limit(state, step, node, now) == 0}
            chosen = None
            if step.settings.instance_count is not None:
                chosen = {node.node_id for node in working_nodes(state, step, serving)}
            wants.append(_Want(step, demands[step.step_id], barred, chosen, step.counters.mean_init_s()))
    return wants


def _share_out(
    state: CoreState, group: Group, wants: Sequence[_Want], nodes: Sequence[Node], passed_s: float, now: Moment
) -> None:
    """Share out the nodes that are in the same pools, and take what steps get there off what they want."""
    capacity = float(sum(node.slots for node in nodes))
    crews = {want.step.step_id: _crew(want, capacity / len(nodes)) for want in wants}
    places = [_place_of(node, crews, now) for node in nodes]
    claims = [_claim(state, want, crews[want.step.step_id], capacity) for want in wants]
    if group.last is not None:
        advance(group.owed, claims, group.last, passed_s)
    owners = {claim.project: Owner(claim.project, (0.0,), (math.inf,)) for claim in claims}
    group.last = entitle(claims, owners, group.owed)
    for step_id, crew in crews.items():
        crew.entitled = group.last.workers.get(step_id, 0)
    place(list(crews.values()), places, now.monotonic_s)
    unfinished = [want.step for want in wants if want.demand or len(want.step.ready) or not want.step.plan.is_done]
    place_standby([crews[step.step_id] for step in unfinished], places, now.monotonic_s)
    for want in wants:
        want.demand = max(0, want.demand - crews[want.step.step_id].held)


def _crew(want: _Want, mean_slots: float) -> Crew:
    most = want.step.settings.max_concurrency_per_instance
    return Crew(
        want.step.step_id,
        0,
        (1.0 if most is None else min(1.0, mean_slots / most),),
        most_on=NO_BOUND if most is None else most,
        barred=want.barred,
        chosen=want.chosen,
        warm=want.step.workers.may_be_on,
        pays_s=_PAYS_INITS * want.init_s,
    )


def _place_of(node: Node, crews: Mapping[StepId, Crew], now: Moment) -> Place:
    """A node, with the workers that it has and may keep."""
    slots = float(node.slots)
    place = Place(node.node_id, slots, [slots], node.shares, node.shares_since)
    used = 0.0
    for step_id, count in list(node.shares.items()):
        crew = crews.get(step_id)
        if crew is None or not crew.may_be_on(node.node_id):
            del node.shares[step_id]
            node.shares_since.pop(step_id, None)
            continue
        crew.on[node.node_id] = count
        used += count * crew.need_on(place)[0]
    place.room[0] -= used
    return place


def _claim(state: CoreState, want: _Want, crew: Crew, capacity: float) -> Claim:
    job = state.jobs[want.step.job_key]
    return Claim(
        want.step.step_id,
        job.queue,
        want.demand,
        crew.held,
        tuple(need / capacity for need in crew.need),
        (float(job.priority),),
        float(max(1, job.weight)),
        (job.job_key, want.step.ordinal),
        max(TURN_S, _TURN_INITS * want.init_s),
    )
