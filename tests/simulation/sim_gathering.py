"""The rules of steps that begin on several nodes at once, 39 and 40 of `sim_checkers`, and planted faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING
from unittest.mock import patch

from sim_planting import Broken, fault
from sim_shares import Shares
from windrow_master.core import effects as fx
from windrow_master.core import scheduling, shares
from windrow_master.core.core import Core
from windrow_master.core.ids import StepId
from windrow_master.core.state import CoreState, Step
from windrow_master.core.states import JobState, StepState

if TYPE_CHECKING:
    from sim_run import Simulation

HELD_MAX_S = 65.0
"""How long a step may hold places that are not all."""


class Gathered:
    """Knows which steps have begun, and since when the others hold places."""

    def __init__(self, sim: Simulation, shares: Shares) -> None:
        self._sim, self._shares = sim, shares
        self._begun: set[tuple[int, int]] = set()
        """(generation, step)."""
        self._since_s: dict[tuple[int, StepId], float] = {}

    def on_effects(self, core: Core, effects: list[fx.Effect]) -> None:
        """After each group of commands: rules 39 and 40."""
        state = core.state
        given = Counter[StepId]()
        for effect in effects:
            if isinstance(effect, fx.SendAssignments):
                given[effect.step_id] += len(effect.leases)
        for effect in effects:
            if isinstance(effect, fx.SendAssignments):
                step = state.steps[effect.step_id]
                if step.settings.min_nodes > 1 and not self._has_begun(state, step, given[step.step_id]):
                    ready = sum(
                        bool(self._shares.told(state, node).get(step.step_id)) and step.step_id in node.capacity
                        for node in self._shares.serving(state)
                    )
                    if ready < self._needed(step):
                        raise Broken(39, f"step {step.step_id} is leased, and {ready} nodes take its work")
                self._begun.add((state.jobs[step.job_key].generation, step.step_id))
        partial = {
            (state.incarnation, step.step_id)
            for step in state.steps.values()
            if step.settings.min_nodes > 1
            and step.state == StepState.RUNNING
            and state.jobs[step.job_key].state == JobState.RUNNING
            and not self._has_begun(state, step)
            and 0 < self._places(state, step) < self._needed(step)
        }
        now_s = self._sim.world.now_s
        self._since_s = {key: self._since_s.get(key, now_s) for key in partial}
        for key, since_s in self._since_s.items():
            if self._sim.awake_s(since_s) > HELD_MAX_S:
                raise Broken(40, f"step {key[1]} holds places on too few nodes for {now_s - since_s:.0f} s")

    def _places(self, state: CoreState, step: Step) -> int:
        return sum(bool(self._shares.told(state, node).get(step.step_id)) for node in self._shares.serving(state))

    def _has_begun(self, state: CoreState, step: Step, given: int = 0) -> bool:
        """Also under an earlier master. `given`: leases that do not count."""
        began = (state.jobs[step.job_key].generation, step.step_id) in self._begun
        return began or step.counters.leased > given or bool(step.counters.ran)

    def _needed(self, step: Step) -> int:
        """It does not begin on more nodes than it has mini-batches."""
        left = step.counters.planned - step.counters.ended
        return min(step.settings.min_nodes, max(1, left)) if step.plan.is_done else step.settings.min_nodes


@fault(39, storm=True)
def steps_begin_on_one_node_after_the_other() -> Iterator[None]:
    """`min_nodes` is not looked at."""
    with patch.object(scheduling, "gathers", lambda step: False):
        yield


@fault(40, storm=True)
def what_is_held_is_never_released() -> Iterator[None]:
    """A step asks for one place only, and holds that for ever."""
    with patch.object(shares, "needed", lambda step: 1), patch.object(shares, "note_places", lambda *arguments: False):
        yield
