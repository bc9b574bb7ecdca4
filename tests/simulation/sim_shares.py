"""The rules of shares, 29 to 33 and 35 of `sim_checkers`: what nodes are told, compared with fair shares computed here.

Here is no code of the core's own arithmetic: fair shares are filled in by the plainest loop.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from sim_planting import Broken
from windrow.common.queue_settings import QueueSettings
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

NEAR = 1e-6


class Wish(NamedTuple):
    """How many slots somebody could use, and by which settings it gets them."""

    demand: float
    settings: QueueSettings = QueueSettings()

    @property
    def most(self) -> float:
        """What it may get."""
        return min(self.demand, self.settings.cluster.limit)


def fair_shares(wishes: Mapping[str, Wish], capacity: float) -> dict[str, float]:
    """Divide a capacity: first what is guaranteed, then by priority, then by weight. Who wants less than its part
    leaves the rest to the others.
    """
    shares = {name: min(wish.most, wish.settings.cluster.quota) for name, wish in wishes.items()}
    guaranteed = sum(shares.values())
    if guaranteed > capacity:
        return {name: share * capacity / guaranteed for name, share in shares.items()}
    for priority in sorted({wish.settings.priority for wish in wishes.values()}, reverse=True):
        tier = {name: wish for name, wish in wishes.items() if wish.settings.priority == priority}
        while True:
            rising = {name: wish for name, wish in tier.items() if wish.most > shares[name] + NEAR}
            left = capacity - sum(shares.values())
            if not rising or left <= NEAR:
                break
            level = left / sum(wish.settings.weight for wish in rising.values())
            level = min(level, *((wish.most - shares[name]) / wish.settings.weight for name, wish in rising.items()))
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
            serving, steps = self._serving(state), self._steps(state)
            short += self._idle(state, serving, steps)
            if serving and all(self._is_plain(step, serving) for step in steps):
                short += self._starved(state, serving, steps)
        self._short = Counter({key: self._short[key] + 1 for key in short})
        for key, ticks in self._short.items():
            if ticks > LATE_TICKS:
                rule = key[0]
                assert isinstance(rule, int)
                raise Broken(rule, f"{key[1:]} for {ticks} ticks")

    def _serving(self, state: CoreState) -> list[Node]:
        return [
            node for node in state.nodes.values() if node.state == NodeState.READY and node.stream and not node.cordoned
        ]

    def _steps(self, state: CoreState) -> list[Step]:
        return [
            step
            for step in state.steps.values()
            if step.state == StepState.RUNNING
            and step.plan.reader is not None
            and state.jobs[step.job_key].state == JobState.RUNNING
        ]

    def _is_plain(self, step: Step, serving: list[Node]) -> bool:
        """Whether it may have any number of workers on each node."""
        settings = step.settings
        bounded = settings.instance_count is not None or settings.max_concurrency_per_instance is not None
        return not (bounded or settings.compute or step.nodes.doubted) and not any(
            step.step_id in node.given_up or step.step_id in node.aside_for for node in serving
        )

    def _demand(self, step: Step) -> int:
        return len(step.ready) - len(step.ready.delayed) + step.counters.leased

    def _has(self, state: CoreState, serving: list[Node]) -> Counter[StepId]:
        has: Counter[StepId] = Counter()
        for node in serving:
            has.update(self._told.get((state.incarnation, node.node_id, node.stream), {}))
        return has

    def _check_room(self, state: CoreState, effect: fx.SendShares) -> None:
        """Rule 29."""
        node, used = state.nodes[effect.node_id], 0.0
        slots = self._sim.slots_of(node.node_id)
        for step_id, count in effect.shares:
            most = state.steps[step_id].settings.max_concurrency_per_instance
            if most is not None and count > most:
                raise Broken(29, f"{node.node_id} is told {effect.shares}, and may have {most} of step {step_id}")
            used += count * min(1.0, slots / most if most is not None else 1.0)
        if used > slots + NEAR:
            raise Broken(29, f"{node.node_id} is told {effect.shares}, and has {slots} slots")

    def _idle(self, state: CoreState, serving: list[Node], steps: list[Step]) -> list[tuple[object, ...]]:
        """Rule 33: nodes with room for workers that a step lacks, and may have."""
        has, found, used = self._has(state, serving), list[tuple[object, ...]](), self._used(state, serving)
        lacking = [
            step
            for step in steps
            if self._demand(step) > has[step.step_id]
            and self._is_plain(step, serving)
            and used[name := state.jobs[step.job_key].queue] + 1 <= self._settings(state, name).cluster.limit
        ]
        for node in serving if lacking else ():
            told = self._told.get((state.incarnation, node.node_id, node.stream), {})
            if sum(told.values()) < self._sim.slots_of(node.node_id):
                found += [(33, "idle", node.node_id, node.stream, "lacking", step.step_id) for step in lacking]
        return found

    def _starved(self, state: CoreState, serving: list[Node], steps: list[Step]) -> list[tuple[object, ...]]:
        """Rules 30 and 32: projects that have less than their fair share, and steps with less than theirs of it."""
        has, slots = self._has(state, serving), sum(self._sim.slots_of(node.node_id) for node in serving)
        projects: dict[str, dict[str, float]] = {}
        for step in steps:
            projects.setdefault(state.jobs[step.job_key].queue, {})[str(step.step_id)] = float(self._demand(step))
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
                most = step.settings.max_concurrency_per_instance
                used[state.jobs[step.job_key].queue] += count * (1.0 if most is None else min(1.0, slots / most))  # type: ignore[assignment]
        return used

    def _check_limits(self, state: CoreState) -> None:
        """Rule 35."""
        for name, slots in self._used(state, self._serving(state)).items():
            limit = self._settings(state, name).cluster.limit
            if slots > limit + NEAR:
                raise Broken(35, f"project {name} is given {slots} slots, and may have {limit}")

    def _check_turns(self, state: CoreState) -> None:
        """Rule 31. Only where every job wants more than there is: then nothing but turns changes what a project has."""
        serving, steps = self._serving(state), self._steps(state)
        slots = sum(self._sim.slots_of(node.node_id) for node in serving)
        has, now_s = self._has(state, serving), self._sim.world.now_s
        deep = all(self._is_plain(step, serving) and self._demand(step) > slots for step in steps)
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
