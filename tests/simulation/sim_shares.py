"""The rules of shares, 29 to 33 and 35 to 37 of `sim_checkers`: what nodes are told, compared with fair shares computed
here.

Here is no code of the core's own arithmetic: fair shares are filled in by the plainest loop.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from sim_needs import GPUS, NEAR, PROCESSORS, Amounts, cost_of, lacking, most_on, need_on, says_what_it_needs
from sim_planting import Broken
from windrow.common.queue_settings import Bounds, QueueSettings
from windrow_master.core import effects as fx
from windrow_master.core.core import Core
from windrow_master.core.ids import NodeId, StepId
from windrow_master.core.state import CoreState, Node, Step
from windrow_master.core.states import JobState, NodeState, StepState

if TYPE_CHECKING:
    from sim_run import Simulation

LATE_TICKS = 10
"""So many ticks, of 0.25 s at least, may pass until what is owed is given, or what is free."""

TURN_S = 2.0
"""A worker that was passed on stays for so long, while nothing else changes."""

OWED_TURNS = 8.0
"""Nobody is owed more than so many turns of one of its workers."""


class Wish(NamedTuple):
    """How much somebody could use, by which settings it gets it, and what it uses of each resource for each of it."""

    demand: float
    settings: QueueSettings = QueueSettings()
    profile: tuple[float, ...] = (1.0,)

    @property
    def most(self) -> float:
        """What it may get. Bounds are of the first resource."""
        return min(self.demand, self._of_processors(self.settings.cluster.limit))

    @property
    def owed(self) -> float:
        """What it is guaranteed."""
        return min(self.most, self._of_processors(self.settings.cluster.quota))

    def _of_processors(self, bound: float) -> float:
        return bound / self.profile[PROCESSORS] if self.profile[PROCESSORS] else math.inf


def fair_shares(wishes: Mapping[str, Wish], *capacity: float) -> dict[str, float]:
    """Divide a capacity, of one or several resources: first what is guaranteed, then by priority, then by weight. Who
    wants less than its part leaves the rest to the others, and so does who needs what is used up.
    """
    shares = {name: wish.owed for name, wish in wishes.items()}

    def used(at: int) -> float:
        return sum(share * wishes[name].profile[at] for name, share in shares.items())

    beyond = max((used(at) / most for at, most in enumerate(capacity) if most), default=0.0)
    if beyond > 1:
        shares = {name: share / beyond for name, share in shares.items()}
    for priority in sorted({wish.settings.priority for wish in wishes.values()}, reverse=True):
        tier = {name: wish for name, wish in wishes.items() if wish.settings.priority == priority}
        while True:
            full = [at for at, most in enumerate(capacity) if most - used(at) <= NEAR]
            rising = {
                name: wish
                for name, wish in tier.items()
                if wish.most > shares[name] + NEAR and not any(wish.profile[at] for at in full)
            }
            if not rising:
                break
            level = min((wish.most - shares[name]) / wish.settings.weight for name, wish in rising.items())
            for at, most in enumerate(capacity):
                slope = sum(wish.settings.weight * wish.profile[at] for wish in rising.values())
                level = min(level, (most - used(at)) / slope) if slope else level
            for name, wish in rising.items():
                shares[name] += level * wish.settings.weight
    return shares


class Shares:
    """Knows what each node was told last, for how long somebody has been short, and who has taken turns."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._told: dict[tuple[int, NodeId, int], dict[StepId, int]] = {}
        """(master incarnation, node, stream) -> what it was told last."""
        self._short: Counter[tuple[object, ...]] = Counter()
        """Who is short of what -> ticks in a row."""
        self._steady: object = None
        """Who shares what, as of the last group of commands."""
        self._had: dict[str, int] = {}
        self._gained_s: dict[str, float] = {}
        """When a project got a worker, while nothing else has changed."""
        self._owed: dict[tuple[int, StepId], float] = {}
        """(master incarnation, step) -> what it has had too little of, in seconds of one of its workers."""
        self._looked_s = 0.0
        self.most_owed = 0.0

    def on_effects(self, core: Core, effects: list[fx.Effect]) -> None:
        """Nodes are told: rules 29, 31 and 35."""
        state = core.state
        told = [effect for effect in effects if isinstance(effect, fx.SendShares)]
        for effect in told:
            self._told[state.incarnation, effect.node_id, effect.stream] = dict(effect.shares)
            self._check_room(state, effect)
        if told:
            self._check_turns(state)
            self._check_limits(state)

    def on_tick(self, core: Core) -> None:
        """Rules 30, 32 and 33."""
        state = core.state
        short: list[tuple[object, ...]] = []
        if not state.held and not state.settle_until_s:
            serving, steps = self.serving(state), self.steps(state)
            short += self._idle(state, serving, steps)
            if serving and all(self.is_plain(step, serving) for step in steps):
                short += self._starved(state, serving, steps)
            if serving and self._sim.config.is_storm:
                self._check_owed(state, serving, steps)
        self._looked_s = self._sim.world.now_s
        self._short = Counter({key: self._short[key] + 1 for key in short})
        for key, ticks in self._short.items():
            if ticks > LATE_TICKS:
                rule = key[0]
                assert isinstance(rule, int)
                raise Broken(rule, f"{key[1:]} for {ticks} ticks")

    def serving(self, state: CoreState) -> list[Node]:
        """The nodes that take work."""
        return [
            node for node in state.nodes.values() if node.state == NodeState.READY and node.stream and not node.cordoned
        ]

    def steps(self, state: CoreState) -> list[Step]:
        """Those that may be leased."""
        return [
            step
            for step in state.steps.values()
            if step.state == StepState.RUNNING
            and step.plan.reader is not None
            and state.jobs[step.job_key].state == JobState.RUNNING
        ]

    def is_plain(self, step: Step, serving: list[Node]) -> bool:
        """Whether it may have any number of workers on each node, each of which takes a slot."""
        bounded = self._is_bounded(step) or says_what_it_needs(step.settings)
        return not (bounded or self._is_away(step, serving))

    def _is_bounded(self, step: Step) -> bool:
        settings = step.settings
        gathers = settings.min_nodes > 1 and not step.counters.leased
        return (
            gathers
            or bool(settings.compute)
            or (settings.instance_count is not None or settings.max_concurrency_per_instance is not None)
        )

    def _is_away(self, step: Step, serving: list[Node]) -> bool:
        """Whether there is a node where it may have no workers for now, or fewer."""
        return bool(step.nodes.doubted) or any(
            step.step_id in node.given_up or step.step_id in node.aside_for for node in serving
        )

    def demand(self, step: Step) -> int:
        """How many workers it could use now."""
        return len(step.ready) - len(step.ready.delayed) + step.counters.leased

    def told(self, state: CoreState, node: Node) -> dict[StepId, int]:
        """What a node was told last."""
        return self._told.get((state.incarnation, node.node_id, node.stream), {})

    def _has(self, state: CoreState, serving: list[Node]) -> Counter[StepId]:
        has: Counter[StepId] = Counter()
        for node in serving:
            has.update(self._told.get((state.incarnation, node.node_id, node.stream), {}))
        return has

    def _check_room(self, state: CoreState, effect: fx.SendShares) -> None:
        """Rules 29 and 36."""
        node_id, needs, total = effect.node_id, list[Amounts](), self._sim.total_of(effect.node_id)
        for step_id, count in effect.shares:
            settings = state.steps[step_id].settings
            most = settings.max_concurrency_per_instance
            if most is not None and count > most:
                raise Broken(29, f"{node_id} is told {effect.shares}, and may have {most} of step {step_id}")
            needs += [need_on(settings, total[PROCESSORS])] * count
        at = lacking(total, needs)
        if at is not None:
            told = f"{node_id} is told {effect.shares}, which need {sorted(needs)}, and has {total}"
            raise Broken(41 if at == GPUS else 29, told)

    def _idle(self, state: CoreState, serving: list[Node], steps: list[Step]) -> list[tuple[object, ...]]:
        """Rule 33: nodes with room for workers that a step lacks, and may have."""
        has, found, used = self._has(state, serving), list[tuple[object, ...]](), self._used(state, serving)
        wanting = [
            step
            for step in steps
            if self.demand(step) > has[step.step_id]
            and not self._is_bounded(step)
            and not step.nodes.doubted
            and used[name := state.jobs[step.job_key].queue] + need_on(step.settings, 1)[PROCESSORS]
            <= self._settings(state, name).cluster.limit
        ]
        for node in serving if wanting else ():
            told = self._told.get((state.incarnation, node.node_id, node.stream), {})
            total = self._sim.total_of(node.node_id)
            needs = [
                need
                for step_id, count in told.items()
                for need in [need_on(state.steps[step_id].settings, total[PROCESSORS])] * count
            ]
            for step in wanting:
                away = step.step_id in node.given_up or step.step_id in node.aside_for
                if not away and lacking(total, [*needs, need_on(step.settings, total[PROCESSORS])]) is None:
                    found.append((33, "idle", node.node_id, node.stream, "lacking", step.step_id))
        return found

    def _check_owed(self, state: CoreState, serving: list[Node], steps: list[Step]) -> None:
        """Rule 42: what a step has less than its fair share, summed up over time."""
        if any(map(self._is_bounded, steps)):
            return  # what they leave free on one node is not told to the others
        nodes = [self._sim.total_of(node.node_id) for node in serving]
        has, used = self._has(state, serving), self._used(state, serving)
        # Whole GPUs, and memory beside them, may not be there for all at once: then what is promised is a turn.
        is_narrow = not any(step.settings.memory_per_worker or step.settings.gpus_per_worker for step in steps)
        costs = {step.step_id: cost_of(step.settings, nodes) for step in steps}
        fair = self._least_workers(state, steps, nodes, costs)
        passed_s, before, self._owed = self._sim.world.now_s - self._looked_s, self._owed, {}
        for step in steps:
            key, count = (state.incarnation, step.step_id), has[step.step_id]
            name = state.jobs[step.job_key].queue
            limit = self._settings(state, name).cluster.limit
            if self._is_away(step, serving) or self.demand(step) <= count:
                continue
            if used[name] + need_on(step.settings, 1)[PROCESSORS] > limit + NEAR:
                continue
            lacks = fair[step.step_id] - count
            owed = max(0.0, before.get(key, 0.0) + lacks * min(1.0, passed_s)) if is_narrow or not count else 0.0
            self._owed[key] = owed
            self.most_owed = max(self.most_owed, owed)
            if owed > OWED_TURNS * TURN_S:
                told = f"step {step.step_id} has {count} workers, and is entitled to {fair[step.step_id]:.2f}"
                raise Broken(42, f"{told}: it has lacked {owed:.1f} s of one")

    def _least_workers(
        self, state: CoreState, steps: list[Step], nodes: list[Amounts], costs: Mapping[StepId, Amounts]
    ) -> dict[StepId, float]:
        """How many workers each step is entitled to at least. Who is guaranteed half a worker has a whole one: so a
        project has what is left beside the guarantees of all others, in whole workers.
        """
        settings = {name: self._settings(state, name) for name in {state.jobs[step.job_key].queue for step in steps}}
        whole = {name: self._in_whole_workers(state, name, one, steps) for name, one in settings.items()}
        if whole == settings:
            return self._fair_workers(state, steps, nodes, costs, settings)
        found: dict[StepId, float] = {}
        for name, own in settings.items():
            fair = self._fair_workers(state, steps, nodes, costs, {**whole, name: own})
            found.update((one.step_id, fair[one.step_id]) for one in steps if state.jobs[one.job_key].queue == name)
        return found

    def _in_whole_workers(
        self, state: CoreState, name: str, settings: QueueSettings, steps: list[Step]
    ) -> QueueSettings:
        """Settings of a project with a quota of a part of a slot, as if it were one of whole workers."""
        bounds = settings.cluster
        if bounds.quota.is_integer():
            return settings
        mine = [step for step in steps if state.jobs[step.job_key].queue == name]
        largest = max(need_on(step.settings, 1)[PROCESSORS] for step in mine)
        quota = min(bounds.limit, math.ceil(bounds.quota / largest) * largest)
        return settings._replace(cluster=bounds._replace(quota=quota))

    def _fair_workers(
        self,
        state: CoreState,
        steps: list[Step],
        nodes: list[Amounts],
        costs: Mapping[StepId, Amounts],
        settings: Mapping[str, QueueSettings],
    ) -> dict[StepId, float]:
        """How many workers each step is entitled to: they need not be whole. `settings`: of the projects."""
        projects: dict[str, list[Step]] = {}
        for step in steps:
            if 0 < max(costs[step.step_id]) <= 1 + NEAR:
                projects.setdefault(state.jobs[step.job_key].queue, []).append(step)
        demands = {
            step.step_id: min(
                self.demand(step), sum(most_on(node, need_on(step.settings, node[PROCESSORS])) for node in nodes)
            )
            for step in steps
        }
        slots = sum(node[PROCESSORS] for node in nodes)
        wishes = {}
        for name, mine in projects.items():
            wanted = [sum(demands[one.step_id] * costs[one.step_id][at] for one in mine) for at in range(3)]
            profile = tuple(at / (max(wanted) or 1.0) for at in wanted)
            bounds = Bounds(*(bound / slots for bound in settings[name].cluster))
            wishes[name] = Wish(max(wanted), settings[name]._replace(cluster=bounds), profile)
        fair = fair_shares(wishes, 1.0, 1.0, 1.0)
        found = dict.fromkeys(demands, 0.0)
        for name, mine in projects.items():
            of_each = {}
            for one in mine:
                cost = costs[one.step_id]
                profile = tuple(at / max(cost) for at in cost)
                of_each[str(one.step_id)] = Wish(demands[one.step_id] * max(cost), profile=profile)
            budget = [fair[name] * at for at in wishes[name].profile]
            for step_id, share in fair_shares(of_each, *budget).items():
                found[StepId(int(step_id))] = share / max(costs[StepId(int(step_id))])
        return found

    def _starved(self, state: CoreState, serving: list[Node], steps: list[Step]) -> list[tuple[object, ...]]:
        """Rules 30 and 32: projects that have less than their fair share, and steps with less than theirs of it."""
        has, slots = self._has(state, serving), sum(self._sim.slots_of(node.node_id) for node in serving)
        projects: dict[str, dict[str, float]] = {}
        for step in steps:
            projects.setdefault(state.jobs[step.job_key].queue, {})[str(step.step_id)] = float(self.demand(step))
        fair = fair_shares(
            {name: Wish(sum(mine.values()), self._settings(state, name)) for name, mine in projects.items()}, slots
        )
        found: list[tuple[object, ...]] = []
        for name, mine in projects.items():
            count = sum(has[StepId(int(step_id))] for step_id in mine)
            if count < math.floor(fair[name] + NEAR):
                found.append((30, "project", name, state.incarnation))
            for step_id, share in fair_shares({step: Wish(want) for step, want in mine.items()}, fair[name]).items():
                if has[StepId(int(step_id))] < math.floor(share + NEAR):
                    found.append((32, "step", step_id, state.incarnation))
        return found

    def _settings(self, state: CoreState, project: str) -> QueueSettings:
        return state.queues[project].settings if project in state.queues else QueueSettings()

    def _used(self, state: CoreState, serving: list[Node]) -> Counter[str]:
        """What projects are given, in slots."""
        used: Counter[str] = Counter()
        for node in serving:
            slots = self._sim.slots_of(node.node_id)
            for step_id, count in self._told.get((state.incarnation, node.node_id, node.stream), {}).items():
                step = state.steps[step_id]
                used[state.jobs[step.job_key].queue] += count * need_on(step.settings, slots)[PROCESSORS]  # type: ignore[assignment]
        return used

    def _check_limits(self, state: CoreState) -> None:
        """Rule 35."""
        for name, slots in self._used(state, self.serving(state)).items():
            limit = self._settings(state, name).cluster.limit
            if slots > limit + NEAR:
                raise Broken(35, f"project {name} is given {slots} slots, and may have {limit}")

    def _check_turns(self, state: CoreState) -> None:
        """Rule 31. Only where every job wants more than there is: then nothing but turns changes what a project has."""
        serving, steps = self.serving(state), self.steps(state)
        slots = sum(self._sim.slots_of(node.node_id) for node in serving)
        has, now_s = self._has(state, serving), self._sim.world.now_s
        deep = all(self.is_plain(step, serving) and self.demand(step) > slots for step in steps)
        steady = (
            state.incarnation,
            state.queue_revision,
            [node.stream for node in serving],
            [step.step_id for step in steps],
            deep,
        )
        counts: Counter[str] = Counter()
        for step in steps:
            counts[state.jobs[step.job_key].queue] += has[step.step_id]
        if steady != self._steady or not deep:
            self._gained_s.clear()
        else:
            for name, count in counts.items():
                if count > self._had[name]:
                    self._gained_s[name] = now_s
                elif count < self._had[name] and now_s - self._gained_s.get(name, -math.inf) < TURN_S - NEAR:
                    since_s = now_s - self._gained_s[name]
                    raise Broken(31, f"project {name} has a worker less, {since_s:.2f} s after it has got one")
        self._steady, self._had = steady, dict(counts)
