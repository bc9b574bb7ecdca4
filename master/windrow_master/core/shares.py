"""How many workers each step has on each node: fair shares for projects, and in them for jobs, decided for the whole
cluster, and sent to the agents.

Mini-batches are short, so what is shared out are workers: a step that has fewer of them on a node than before finishes
what they run, and nothing is lost. `sharing` has the arithmetic; this module asks it about the state, and acts on the
answer.

A decision is made when steps or nodes come and go, and else at most every `DECISION_S`. What has not changed since the
last one is not looked at again (`Layout`); what comes out is the same as from scratch. All of it is volatile: a new
master begins with what nodes say that they have.

Invariants:
1. What nodes are told (`Node.shares`) never needs more than they have, nor more than a project's limit.
2. Workers change hands only if afterwards their new step has no more than it is entitled to, and their old one no less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from windrow.common.device_packing import ROUNDING
from windrow.common.queue_settings import WHOLE_CLUSTER, QueueSettings

from windrow_master.core import effects as fx
from windrow_master.core.blame import lease_limit
from windrow_master.core.commands import Moment
from windrow_master.core.gathering import Gatherers, due_s, gathers, needed, note_places
from windrow_master.core.gpus import give_gpus_back, note_demand
from windrow_master.core.ids import NodeId, StepId
from windrow_master.core.lifetimes import can_finish
from windrow_master.core.needs import RESOURCES, Shortage, most_on, need_of, total_of
from windrow_master.core.pools import choose_nodes, is_in_pool
from windrow_master.core.sharing.entitlements import Claim, Owed, Owner, advance, entitle, fair_shares, in_line
from windrow_master.core.sharing.placing import (
    NO_BOUND,
    SLOTS,
    Allowance,
    Crew,
    Layout,
    Place,
    Vector,
    give_back,
    place,
    place_standby,
)
from windrow_master.core.state import CoreState, Group, Job, Node, Step

DECISION_S = 0.1
"""The least time between two decisions, unless steps or nodes come or go."""

TURN_S = 2.0
"""The least time after which a worker is passed on so that shares are fair on average."""

PASSED_MAX_S = 1.0
"""Of a longer time between two decisions, no more counts for what is owed: something else stood still, too."""

_TURN_STARTS = 10.0
"""A turn lasts at least this many times as long as the start of a worker."""

_PAYS_STARTS = 5.0
"""A worker has paid for its start after this many times as long."""


class ProjectShare(NamedTuple):
    """What the project of a step has on the nodes that may work on it, in slots: of `total` it is entitled to `fair`,
    and has `held`. `limit`: the most that it may have, if that is what it lacks. `ahead`: jobs of the project that go
    first.
    """

    project: str
    fair: float
    held: float
    total: float
    limit: float | None
    ahead: tuple[str, ...]


def project_share(state: CoreState, step: Step) -> ProjectShare:
    """Where the project of a step stands, by the last decision."""
    job, fair, held, total, bound = state.jobs[step.job_key], 0.0, 0.0, 0, []
    groups = [group for group in state.shares.groups.values() if is_in_pool(group.nodes[0], step)]
    for group in groups:
        total += group.slots
        fair += fair_slots(group).get(job.queue, 0.0)
        crews = group.layout.crews
        held += sum(
            _slots_of(crew, group.layout.places)
            for step_id, crew in crews.items()
            if (other := state.steps.get(step_id)) is not None and state.jobs[other.job_key].queue == job.queue
        )
        crew = crews.get(step.step_id)
        bound.append(crew is not None and crew.allowance is not None and not crew.allowance.fits(crew.need, 1))
    limit = None
    if bound and all(bound):
        settings = state.queues[job.queue].settings
        limit = min(settings.of_pool(pool).limit for pool in {WHOLE_CLUSTER, *groups[0].nodes[0].pools})
    ahead = (
        (rank_of(other), other.job_id)
        for other in state.jobs.values()
        if other.queue == job.queue
        and rank_of(other) > rank_of(job)
        and any(len(one.ready) or one.lease_ids for one in other.steps)
    )
    return ProjectShare(job.queue, fair, held, total, limit, tuple(job_id for _, job_id in sorted(ahead, reverse=True)))


def free_shortage(state: CoreState, step: Step) -> Shortage | None:
    """What a worker of a step needs that no node has free, by the last decision; None if it does not say what it needs,
    or no resource alone is lacking.
    """
    if not step.settings.has_needs:
        return None
    need = need_of(step, is_wide=True)
    places = [
        at
        for group in state.shares.groups.values()
        if is_in_pool(group.nodes[0], step)
        for at in group.layout.places.values()
    ]
    for resource, each, name in zip(range(len(need)), need, RESOURCES, strict=True):
        free = max(((at.room[resource], at.node_id) for at in places if len(at.room) > resource), default=None)
        if free is not None and free[0] < each - ROUNDING:
            return Shortage(name, each, max(0.0, free[0]), free[1])
    return None


def rank_of(job: Job) -> tuple[float, ...]:
    """Where a job stands in its project: a higher one goes first."""
    return (float(job.priority), -math.inf if job.deadline is None else -job.deadline)


def decide(state: CoreState, steps: Sequence[Step], serving: Mapping[NodeId, Node], now: Moment) -> None:
    """Decide anew, if there is a reason to, and tell the nodes. `steps`: those that may be leased."""
    shares = state.shares
    demands: dict[StepId, int] = {}
    for step in steps:
        with state.contained(step):
            demands[step.step_id] = step.demand(now.monotonic_s)
            note_demand(step, demands[step.step_id])
    streams = [node.stream for node in serving.values()]
    there = (
        [(step_id, demand > 0) for step_id, demand in demands.items()],
        streams,
        [
            (node_id, len(node.given_up), len(node.aside_for))
            for node_id, node in serving.items()
            if node.given_up or node.aside_for
        ],
    )
    if there == shares.there and now.monotonic_s < shares.decided_s + DECISION_S:
        if (
            len(steps) > 1
            or state.queued
            or any(map(gathers, steps))
            or any(step.settings.instance_count or step.nodes.doubted for step in steps)
            or any(node.ends_s < math.inf for node in serving.values())
        ):
            shares.due_s = shares.decided_s + DECISION_S
        return
    passed_s = min(now.monotonic_s - shares.decided_s, PASSED_MAX_S)
    shares.there, shares.decided_s, shares.due_s = there, now.monotonic_s, math.inf
    wants = _wants(state, steps, serving, demands, now)
    if streams != shares.streams:
        _regroup(state, serving.values())
        shares.streams = streams
    shares.awaited.clear()
    gathering = _gathering(state, wants, serving, demands, now) if any(map(gathers, steps)) else []
    rights = {name: _Rights(queue.settings) for name, queue in state.queues.items()}
    for group in _in_order(state):
        here = [want for want in wants if is_in_pool(group.nodes[0], want.step)]
        _share_out(state, group, here, rights, passed_s, now)
    for want in gathering:
        _note_places(state, want, now)
    if len(wants) > 1 and any(want.demand for want in wants):
        # Whose turn it is changes with time alone.
        shares.due_s = now.monotonic_s + DECISION_S
    for group in shares.groups.values():
        for at in group.layout.take_changed():
            _tell(state, serving[at.node_id])


def _gathering(
    state: CoreState,
    wants: Sequence[_Want],
    serving: Mapping[NodeId, Node],
    demands: Mapping[StepId, int],
    now: Moment,
) -> list[_Want]:
    """Of the steps that begin on several nodes at once, those that may hold places now. The others want none."""
    gatherers, found = Gatherers(state, now), []
    # Those that hold nothing take nothing from each other: else, if there are many, none is ever entitled to enough.
    demands = {step_id: count for step_id, count in demands.items() if not gathers(state.steps[step_id])}
    for want in wants:
        step = want.step
        if not gathers(step):
            continue

        def entitled(need: int, step_id: StepId = step.step_id) -> int:
            return entitled_workers(state, {**demands, step_id: need}).get(step_id, 0)

        there = [
            node
            for node_id, node in serving.items()
            if is_in_pool(node, step) and node_id not in want.barred and (want.chosen is None or node_id in want.chosen)
        ]
        want.demand, want.most_on = 0, 1
        if gatherers.may_hold(step, there, entitled):
            want.demand = demands[step.step_id] = needed(step)
            found.append(want)
        else:
            want.chosen = set()
        state.shares.due_s = min(state.shares.due_s, due_s(step, now))
    return found


def _note_places(state: CoreState, want: _Want, now: Moment) -> None:
    """Note what a step holds. What it has held for too long goes with the next decision."""
    crews = (group.layout.crews.get(want.step.step_id) for group in state.shares.groups.values())
    if note_places(want.step, sum(len(crew.on) for crew in crews if crew is not None), now):
        state.shares.there = None
        state.shares.due_s = now.monotonic_s + DECISION_S
    state.shares.due_s = min(state.shares.due_s, due_s(want.step, now))


def _tell(state: CoreState, node: Node) -> None:
    """Tell a node what it has, unless it knows."""
    if node.shares_told != node.shares:
        node.shares_told = dict(node.shares)
        told = tuple(sorted(node.shares.items()))
        state.effects.append(fx.SendShares(node.node_id, node.stream, told, state.timing.reclaim_after_s))


def _regroup(state: CoreState, serving: Iterable[Node]) -> None:
    """Note which nodes there are: some have come or gone, or have a new stream."""
    shares = state.shares
    found: dict[frozenset[str], list[Node]] = {}
    for node in serving:
        found.setdefault(node.pools, []).append(node)
    for pools in [pools for pools in shares.groups if pools not in found]:
        del shares.groups[pools]
    for pools, nodes in found.items():
        group = shares.groups.setdefault(pools, Group())
        group.nodes, group.slots, group.is_placed = nodes, sum(node.slots for node in nodes), False


@dataclass(slots=True)
class _Want:
    """What a step wants. `demand`: how many workers it could still use now: one for each mini-batch that may run, or
    runs. `barred`, `chosen`: as of a crew.
    """

    step: Step
    demand: int
    barred: set[NodeId]
    chosen: set[NodeId] | None
    start_s: float
    most_on: int = NO_BOUND
    """How many it may have on a node, whatever its settings say."""


def _wants(
    state: CoreState,
    steps: Sequence[Step],
    serving: Mapping[NodeId, Node],
    demands: Mapping[StepId, int],
    now: Moment,
) -> list[_Want]:
    """What the steps want; those that raise want nothing, and their jobs are paused."""
    givers = [node for node in serving.values() if node.given_up]
    ending = [node for node in serving.values() if node.ends_s < math.inf]
    wants: list[_Want] = []
    for step in steps:
        if step.step_id not in demands:
            continue
        with state.contained(step):
            barred = {node.node_id for node in givers if step.step_id in node.given_up} if givers else set()
            for node_id in sorted(step.nodes.doubted) if step.nodes.doubted else ():
                node = serving.get(node_id)
                if node is not None and lease_limit(state, step, node, now) == 0:
                    barred.add(node_id)
            barred.update(node.node_id for node in ending if not can_finish(node, step, now))
            chosen = None
            if step.settings.instance_count is not None:
                chosen = choose_nodes(state, step, serving)
            wants.append(_Want(step, demands[step.step_id], barred, chosen, step.counters.mean_start_s()))
    return wants


class _Rights:
    """What is left, during one decision, of what a project is guaranteed and of what it may have, in slots: of the
    whole cluster, and of each pool for which its queue has bounds.
    """

    def __init__(self, settings: QueueSettings) -> None:
        self.settings = settings
        self._quota = {pool: bounds.quota for pool, bounds in settings.bounds()}
        self._limit = {pool: bounds.limit for pool, bounds in settings.bounds()}

    def quota(self, pools: frozenset[str]) -> float:
        """Of the nodes that are in these pools, what it is still guaranteed."""
        return max(self._quota.get(pool, 0.0) for pool in (WHOLE_CLUSTER, *pools))

    def limit(self, pools: frozenset[str]) -> float:
        """What it may still have of them."""
        return min(self._limit.get(pool, math.inf) for pool in (WHOLE_CLUSTER, *pools))

    def use(self, pools: frozenset[str], slots: float) -> None:
        """Take what it has got there off both."""
        for pool in (WHOLE_CLUSTER, *pools):
            if pool in self._quota:
                self._quota[pool] = max(0.0, self._quota[pool] - slots)
                self._limit[pool] = max(0.0, self._limit[pool] - slots)


def _share_out(
    state: CoreState,
    group: Group,
    wants: Sequence[_Want],
    rights: Mapping[str, _Rights],
    passed_s: float,
    now: Moment,
) -> None:
    """Share out the nodes that are in the same pools, and take what steps get there off what they want."""
    _update(group, wants, now)
    layout = group.layout
    crews = layout.crews
    claims = [_claim(state, want, crews[want.step.step_id], group) for want in wants]
    if group.last is not None:
        advance(group.owed, claims, group.last, passed_s)
    pools = group.nodes[0].pools
    group.last = entitle(claims, _owners(claims, rights, group), group.owed)
    for want in wants:
        crews[want.step.step_id].entitled = group.last.workers.get(want.step.step_id, 0)
    ruled = _ruled(claims, rights, crews)
    owed = {project: _bind(mine, rights[project], pools, layout.places, now) for project, mine in ruled.items()}
    place([crews[want.step.step_id] for want in wants], layout.places, now.monotonic_s)
    for want in wants:
        if want.step.settings.idle_gpu_timeout_s is not None:
            demand = want.step.demand(now.monotonic_s)
            give_gpus_back(state, want.step, crews[want.step.step_id], demand, layout.places, now)
    unfinished = [
        want.step
        for want in wants
        if (want.demand or len(want.step.ready) or not want.step.plan.is_done) and not want.step.workers.gave_gpus_back
    ]
    place_standby([crews[step.step_id] for step in unfinished], layout.places, now.monotonic_s)
    for want in wants:
        want.demand = max(0, want.demand - crews[want.step.step_id].held)
    for project, quota in owed.items():
        rights[project].use(pools, rights[project].quota(pools) - quota.room[0])


class FairWorkers(NamedTuple):
    """What fair shares come to. `steps`: workers, which need not be whole; `projects`: slots."""

    steps: dict[StepId, float]
    projects: dict[str, float]


class WhatIf:
    """What running steps would be entitled to if they could use other numbers of workers, or queues had other settings.

    It changes nothing, and follows the same rules as `decide`, but for what is owed: over time, that comes to nothing.
    """

    def __init__(self, state: CoreState, step_ids: Iterable[StepId]) -> None:
        """`step_ids`: the only steps that will be asked about."""
        self._settings = {name: queue.settings for name, queue in state.queues.items()}
        demands = dict.fromkeys(step_ids, NO_BOUND)
        self._groups = [
            (group, [(claim, claim.demand) for claim in _claims(state, group, demands)]) for group in _in_order(state)
        ]

    def fair(self, demands: Mapping[StepId, int], settings: Mapping[str, QueueSettings] | None = None) -> FairWorkers:
        """Fair shares if steps could use so many workers. `settings`: of queues by name; None: those that they have."""
        rights = {name: _Rights(one) for name, one in (self._settings if settings is None else settings).items()}
        left: dict[StepId, float] = {step_id: demand for step_id, demand in demands.items() if demand > 0}
        steps: dict[StepId, float] = {}
        projects: dict[str, float] = {}
        for group, all_claims in self._groups:
            claims = [claim for claim, _ in all_claims if claim.step_id in left]
            for claim, most in all_claims:
                claim.demand = min(most, math.ceil(left.get(claim.step_id, 0)))
            fair = fair_shares(claims, _owners(claims, rights, group))
            for claim in claims:
                if workers := fair.steps.get(claim.step_id, 0.0) / claim.cost:
                    steps[claim.step_id] = steps.get(claim.step_id, 0.0) + workers
                    left[claim.step_id] -= workers
                    if left[claim.step_id] < ROUNDING:
                        del left[claim.step_id]
            for project, budget in fair.budgets.items():
                slots = budget[SLOTS] * group.slots
                projects[project] = projects.get(project, 0.0) + slots
                if project in rights:
                    rights[project].use(group.nodes[0].pools, slots)
        return FairWorkers(steps, projects)


def steps_in_line(state: CoreState, demands: Mapping[StepId, int]) -> list[StepId]:
    """The steps that could use another worker, in the order in which they get the next ones. `demands`: how many each
    could use now.
    """
    rights = {name: _Rights(queue.settings) for name, queue in state.queues.items()}
    found: list[StepId] = []
    for group in _in_order(state):
        claims = _claims(state, group, demands)
        found += in_line(claims, _owners(claims, rights, group), group.owed)
    return list(dict.fromkeys(found))


def entitled_workers(state: CoreState, demands: Mapping[StepId, int]) -> dict[StepId, int]:
    """How many whole workers steps would be entitled to if they could use so many; those without any are not named.

    It changes nothing, and follows the same rules as `decide`, but for what is owed: over time, that comes to nothing.
    """
    rights = {name: _Rights(queue.settings) for name, queue in state.queues.items()}
    left = {step_id: demand for step_id, demand in demands.items() if demand > 0}
    found: dict[StepId, int] = {}
    for group in _in_order(state):
        if not group.capacity or not any(node.serves for node in group.nodes):
            continue
        claims = _claims(state, group, left)
        given = entitle(claims, _owners(claims, rights, group), Owed())
        slots: dict[str, float] = {}
        for claim in claims:
            if count := given.workers.get(claim.step_id, 0):
                found[claim.step_id] = found.get(claim.step_id, 0) + count
                slots[claim.project] = slots.get(claim.project, 0.0) + count * claim.need[SLOTS] * group.slots
                left[claim.step_id] -= count
                if not left[claim.step_id]:
                    del left[claim.step_id]
        for project in slots.keys() & rights.keys():
            rights[project].use(group.nodes[0].pools, slots[project])
    return found


def fair_slots(group: Group) -> dict[str, float]:
    """The slots of a group that projects are entitled to, by the last decision."""
    budgets = group.last.budgets if group.last is not None else {}
    return {project: budget[SLOTS] * group.slots for project, budget in budgets.items()}


def slots_held(state: CoreState, pool: str = WHOLE_CLUSTER) -> dict[str, float]:
    """What the live workers of each project take, in slots: on all nodes, or on those in a pool."""
    found: dict[str, float] = {}
    for group in groups_in(state, pool):
        for node in group.nodes:
            needs = group.layout.places[node.node_id].needs if node.node_id in group.layout.places else {}
            for step_id, count in node.workers.items():
                if (step := state.steps.get(step_id)) is not None:
                    project = state.jobs[step.job_key].queue
                    found[project] = (
                        found.get(project, 0.0) + count * needs.get(step_id, need_of(step, is_wide=False))[SLOTS]
                    )
    return found


def groups_in(state: CoreState, pool: str) -> list[Group]:
    """The groups of nodes that are in a pool, or all of them (WHOLE_CLUSTER)."""
    return [group for pools, group in state.shares.groups.items() if pool == WHOLE_CLUSTER or pool in pools]


def _in_order(state: CoreState) -> list[Group]:
    """Groups of nodes, in the order in which they are shared out."""
    groups = state.shares.groups
    return [groups[pools] for pools in sorted(groups, key=_group_rank)]


def _group_rank(pools: frozenset[str]) -> tuple[bool, list[str]]:
    """Nodes that are in pools go first: a step that names one finds the others full otherwise."""
    return not pools, sorted(pools)


def _claims(state: CoreState, group: Group, demands: Mapping[StepId, int]) -> list[Claim]:
    """What steps claim of some nodes."""
    found = []
    for step_id, demand in demands.items():
        step = state.steps[step_id]
        if is_in_pool(group.nodes[0], step):
            want = _Want(step, demand, set(), None, step.counters.mean_start_s())
            found.append(_claim(state, want, group.layout.crews.get(step_id) or _new_crew(step, group), group))
    return found


def _owners(claims: Iterable[Claim], rights: Mapping[str, _Rights], group: Group) -> dict[str, Owner]:
    """The projects of claims."""
    pools = group.nodes[0].pools
    names = dict.fromkeys(claim.project for claim in claims)
    return {name: _owner(name, rights.get(name), pools, group.capacity) for name in names}


def _owner(name: str, rights: _Rights | None, pools: frozenset[str], capacity: Vector) -> Owner:
    """A project, with what it is guaranteed and may have as fractions of some nodes. Both are counted in slots; of
    other resources it may have what its workers need.
    """
    uncounted = (math.inf,) * (len(capacity) - 1)
    if rights is None:
        return Owner(name, (0.0, *uncounted), (math.inf, *uncounted))
    settings, slots = rights.settings, capacity[SLOTS]
    quota, limit = rights.quota(pools) / slots, rights.limit(pools) / slots
    return Owner(name, (min(1.0, quota), *uncounted), (limit, *uncounted), settings.weight, settings.priority)


def _ruled(
    claims: Iterable[Claim], rights: Mapping[str, _Rights], crews: Mapping[StepId, Crew]
) -> dict[str, list[Crew]]:
    """The crews of the projects whose queue has settings, by project."""
    found: dict[str, list[Crew]] = {}
    for claim in claims:
        if claim.project in rights:
            found.setdefault(claim.project, []).append(crews[claim.step_id])
        else:
            crews[claim.step_id].quota = crews[claim.step_id].allowance = None
    return found


def _bind(
    crews: Sequence[Crew], rights: _Rights, pools: frozenset[str], places: Mapping[NodeId, Place], now: Moment
) -> Allowance:
    """Say what the crews of one project may take together. What they have beyond that, they lose. Return what is left
    of its quota, which falls below 0 where they have more.
    """
    has, quota, limit = sum(_slots_of(crew, places) for crew in crews), rights.quota(pools), rights.limit(pools)
    owed = Allowance([quota - has])
    allowance = None if math.isinf(limit) else Allowance([limit - has])
    for crew in crews:
        crew.quota, crew.allowance = owed, allowance
    if allowance is not None:
        give_back(crews, allowance, places, now.monotonic_s)
    return owed


def _slots_of(crew: Crew, places: Mapping[NodeId, Place]) -> float:
    """What the workers of a crew take, in slots."""
    return sum(count * places[node_id].needs[crew.step_id][SLOTS] for node_id, count in crew.on.items())


def _update(group: Group, wants: Sequence[_Want], now: Moment) -> None:
    """Bring crews and places up to date: steps and nodes come, go and change between two decisions."""
    is_wide = any(want.step.settings.memory_per_worker or want.step.settings.gpus_per_worker for want in wants)
    if is_wide != group.is_wide:
        # What is counted for nobody costs nothing. All that is placed stands in the nodes.
        group.layout, group.is_placed, group.is_wide = Layout(), False, is_wide
    if not group.is_placed:
        group.capacity = tuple(map(sum, zip(*(total_of(node, is_wide=is_wide) for node in group.nodes), strict=True)))
        group.most = {}
    layout = group.layout
    wanted = {want.step.step_id for want in wants}
    for step_id in [step_id for step_id in layout.crews if step_id not in wanted]:
        layout.drop_crew(step_id)
    for want in wants:
        crew = layout.crews.get(want.step.step_id)
        if crew is None:
            crew = layout.crews[want.step.step_id] = _new_crew(want.step, group)
        if is_wide and crew.capacity != group.capacity:
            crew.measure(group.capacity)
        crew.most_on = min(crew.bound, want.most_on)
        crew.warm = want.step.workers.may_be_on
        crew.pays_s = _PAYS_STARTS * want.start_s
        layout.bound(crew, want.barred, want.chosen, now.monotonic_s)
    if group.is_placed:
        return
    group.is_placed = True
    present = {node.node_id for node in group.nodes}
    for node_id in [node_id for node_id in layout.places if node_id not in present]:
        layout.drop_place(node_id)
    for node in group.nodes:
        at, total = layout.places.get(node.node_id), total_of(node, is_wide=is_wide)
        if at is None or at.workers is not node.shares or at.total != total:
            layout.add_place(Place(node.node_id, total[SLOTS], total, node.shares, node.shares_since))


def _new_crew(step: Step, group: Group) -> Crew:
    """The workers of a step that has none in a group."""
    need, is_fixed = need_of(step, is_wide=group.is_wide), step.settings.has_needs
    bound = _most_on(step)
    crew = Crew(step.step_id, 0, need, bound=bound, most_on=bound, is_fixed=is_fixed)
    if group.is_wide:
        crew.measure(group.capacity)
    return crew


def _most_on(step: Step) -> int:
    most = step.settings.max_concurrency_per_instance
    return NO_BOUND if most is None else most


def _claim(state: CoreState, want: _Want, crew: Crew, group: Group) -> Claim:
    job, bound, demand = state.jobs[want.step.job_key], _most_on(want.step), want.demand
    if want.step.settings.has_needs:
        need, demand = _need_in(want, crew, group, demand)
    else:
        # Where a node may have more workers than processors, each takes less than one, as far as the mean node goes.
        processors = 1.0 if bound == NO_BOUND else min(1.0, group.slots / len(group.nodes) / bound)
        need = (processors / group.slots, *(0.0,) * (len(group.capacity) - 1))
    return Claim(
        want.step.step_id,
        job.queue,
        demand,
        crew.held,
        need,
        rank_of(job),
        float(max(1, job.weight)),
        (job.job_key, want.step.ordinal),
        max(TURN_S, _TURN_STARTS * want.start_s),
        want.step.settings.has_needs,
        _left_s(want.step) if crew.held else math.inf,
    )


def _left_s(step: Step) -> float:
    """How long one worker would take for what a step still has to do; infinite if nobody knows."""
    counters = step.counters
    if not step.plan.is_done or not counters.elapsed_us:
        return math.inf
    return (counters.planned - counters.ended) * counters.mean_s()


def _need_in(want: _Want, crew: Crew, group: Group, demand: int) -> tuple[Vector, int]:
    """What one worker of a step that says what it needs takes of all nodes, and how many it can use there: no more than
    fit on nodes that have nothing else. What it leaves on a node, and cannot use itself, counts as its own.
    """
    need = [each / all_ if all_ > 0 else 0.0 for each, all_ in zip(crew.need, group.capacity, strict=True)]
    if crew.barred or crew.chosen is not None:
        most = _most_together((node for node in group.nodes if crew.may_be_on(node.node_id)), crew, want.step)
    else:
        key = (need_of(want.step, is_wide=True), crew.most_on)
        if key not in group.most:
            group.most[key] = _most_together(group.nodes, crew, want.step)
        most = group.most[key]
    if most[0]:
        need[crew.scarcest] = max(need[crew.scarcest], 1 / most[0])
    return tuple(need), min(demand, most[1])


def _most_together(nodes: Iterable[Node], crew: Crew, step: Step) -> tuple[int, int]:
    """How many workers fit on nodes that have nothing else, and how many of these the step may have."""
    counts = [most_on(node, step) for node in nodes]
    return sum(counts), sum(min(crew.most_on, count) for count in counts)
