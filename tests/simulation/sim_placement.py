"""The rules of placement, 16 to 19 and 27 of `sim_checkers`: what the master decides, compared with what agents do."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sim_config import ITEMS_MAX
from sim_planting import Broken
from windrow_master.core import effects as fx
from windrow_master.core.core import Core
from windrow_master.core.ids import NodeId
from windrow_master.core.pools import works_on
from windrow_master.core.records import Dirty
from windrow_master.core.scheduling import has_ready_worker
from windrow_master.core.speculation import LATE_AFTER_S, LATE_FACTOR, SECOND_ATTEMPTS_MAX
from windrow_master.core.state import CoreState, Node, Step
from windrow_master.core.states import AttemptState, Cause, JobState, NodeState

if TYPE_CHECKING:
    from sim_run import Simulation

HOARDED_S = 3.0
"""So long an agent may sit on what another could run: recalls are repeated every half second."""

RARELY_S = 8.0
"""The same for one that holds no more than it has slots for: it is asked every five seconds."""

PROVEN = 5
"""Successes by which a node has shown that a step's script works there."""

BAD_LEASES = 25
"""Leases that a node on which everything fails may get beyond what it runs at once: the evidence, and what was drawn to
fail on the others, too, and so is none."""

FAILING_MAX = 0.1
"""The share of mini-batches that fail on good nodes, up to which rule 19 holds."""

ALONE_S = 3.0
"""So long a straggler may run alone while another node could begin it once more, from when it is late by twice the
time that the core allows: until then, leases that have not begun may be on their way to that node."""

BLAMELESS = (Cause.NODE_LOST, Cause.PREEMPTED, Cause.CANCELLED, Cause.ROWS_LOST, Cause.NONE)


class Placement:
    """Knows where mini-batches have failed, and for how long what was possible has not been done."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self.failed_on: dict[tuple[int, int, int], set[str]] = {}
        """(step, mini-batch, generation) -> nodes where it failed, as is durable."""
        self._handled: dict[tuple[int, int, int], set[str]] = {}
        """The same, as soon as a master has heard of it."""
        self._hoarded: dict[tuple[Any, ...], int] = {}
        """(step, stream of the agent that hoards, of the one with a free slot, what is hoarded) -> ticks in a row."""
        self._alone: dict[tuple[int, int], int] = {}
        """(lease, stream of a node that could begin its mini-batch once more) -> ticks in a row."""
        self._bad: Counter[tuple[Any, ...]] = Counter()
        self._bad_since: dict[tuple[Any, ...], float] = {}
        self._succeeded: Counter[tuple[int, str, int]] = Counter()
        """(master incarnation, node incarnation, step) -> successes."""

    def on_commit(self, dirty: Dirty) -> None:
        """Where attempts failed."""
        for attempt in dirty.attempts:
            key = (attempt.step_id, attempt.mini_batch, attempt.generation)
            if attempt.node_id and Cause(attempt.cause) not in BLAMELESS and attempt.state != AttemptState.RUNNING:
                self.failed_on.setdefault(key, set()).add(attempt.node_id)

    def forget(self, step_id: int, mini_batch: int, generation: int) -> None:
        """Its rows were lost; a master that was started since its success does not know where it had failed before."""
        self.failed_on.pop((step_id, mini_batch, generation), None)

    def on_completed(
        self, core: Core, node_id: NodeId, results: Iterable[Any], leases: dict[int, tuple[int, int, int]]
    ) -> None:
        """Results arrive. `leases`: all that were ever given."""
        node = core.state.nodes.get(node_id)
        for result in results:
            key = leases.get(result.lease_id)
            if node is None or key is None:
                continue
            if result.cause:
                self._handled.setdefault(key, set()).add(node_id)
            else:
                self._succeeded[core.state.incarnation, node.node_incarnation, key[0]] += 1

    def on_effects(self, core: Core, effects: list[fx.Effect]) -> None:
        """Rules 17, 18 and 19 at the moment at which leases are handed out."""
        state = core.state
        for effect in effects:
            if isinstance(effect, fx.SendAssignments):
                step, node = state.steps[effect.step_id], state.nodes[effect.node_id]
                if step.step_id not in {lease.step_id for lease in effect.leases}:
                    continue
                others = [other for other in self._able(state, step) if other is not node]
                free = [other for other in others if self._free(step, other) > 0]
                self._check_retries(step, node, effect, free)
                if free and node.held.get(step.step_id, 0) > max(1, node.workers.get(step.step_id, 1)):
                    fresh = [lease for lease in effect.leases if self._key(lease) not in self._handled]
                    if len(fresh) > node.workers.get(step.step_id, 1):
                        raise Broken(17, f"{node.node_id} is handed {fresh}, and {free[0].node_id} has free slots")
                self._check_bad(core, step, node, effect, others)

    def on_tick(self, core: Core) -> None:
        """Rules 16 and 27."""
        self._check_hoarding(core)
        self._check_stragglers(core)

    def _check_stragglers(self, core: Core) -> None:
        """Rule 27: a straggler that runs alone while another node could begin its mini-batch once more."""
        state, seen = core.state, set[tuple[int, int]]()
        for step in state.steps.values():
            if state.held or state.settle_until_s or not step.settings.speculate or len(step.ready):
                continue
            # What succeeded before a retry, or in another job, was not measured here.
            measured = step.counters.measured
            if not step.plan.is_done or not measured or state.jobs[step.job_key].state != JobState.RUNNING:
                continue
            mean_s = step.counters.elapsed_us / 1e6 / measured
            able = [node for node in self._able(state, step) if node.capacity.get(step.step_id, 0)]
            if any(node.held.get(step.step_id, 0) > node.workers.get(step.step_id, 1) for node in able):
                continue
            free = [node for node in able if self._free(step, node) > 0]
            for lease in map(state.leases.__getitem__, step.lease_ids):
                late_s = self._sim.world.now_s - lease.granted_s
                often = step.second_attempts.get(lease.mini_batch, 0) >= SECOND_ATTEMPTS_MAX
                tries = step.mini_batches.tries.get(lease.mini_batch)
                whole = tries is None or (tries.split is None and not lease.exclusive)
                if lease.rival is not None or often or not whole or lease.trial:
                    continue
                if late_s < 2 * LATE_FACTOR * max(LATE_AFTER_S, mean_s * ITEMS_MAX):
                    continue
                past = self._handled.get(self._key(lease), set()) | self._past(lease)
                for node in free:
                    if node.node_id != lease.node_id and node.node_id not in past:
                        seen.add((lease.lease_id, node.stream))
        self._alone = {key: self._alone.get(key, 0) + 1 for key in seen}
        for key, ticks in self._alone.items():
            if ticks * 0.25 > ALONE_S + 20 * self._sim.config.latency_s:
                raise Broken(27, f"(lease, stream of the idle) {key} for {ticks} ticks")

    def _check_hoarding(self, core: Core) -> None:
        """Rule 16: what an agent has not begun while another could run it."""
        state, seen, beyond = core.state, set[tuple[Any, ...]](), set[tuple[Any, ...]]()
        if state.held or state.settle_until_s:
            self._hoarded.clear()
            return
        now_s = self._sim.world.now_s
        for step in state.steps.values():
            if step.settings.rate_per_s < math.inf and len(step.ready):
                continue  # the rate holds it up, and free slots get what waits
            able = self._able(state, step)
            # An agent's slots are shared by all steps, and the master counts those of each step alone: a slot that is
            # free by its books may be busy with another step.
            free = [node for node in able if self._free(step, node) > 0 and self._has_room(step, node)]
            for node in able:
                agent = self._sim.agent_of(node.node_id)
                if agent is None or agent.paused_until_s > now_s or agent.stream is None or not free:
                    continue
                if agent.stream.number != node.stream or agent.stream.broken:
                    continue
                waiting = agent.waiting(step.step_id)
                for other in free if waiting else ():
                    fits = (at for at in waiting if other.node_id not in self._handled.get(at, ()))
                    if other is not node and any(fits):
                        seen.add(key := (step.step_id, node.stream, other.stream, tuple(waiting)))
                        if self._free(step, node) < 0:
                            beyond.add(key)
        self._hoarded = {key: self._hoarded.get(key, 0) + 1 for key in seen}
        for key, ticks in self._hoarded.items():
            limit_s = HOARDED_S if key in beyond else RARELY_S
            if ticks * 0.25 > limit_s + 20 * self._sim.config.latency_s:
                raise Broken(16, f"(step, stream of the hoarder, of the idle) {key} for {ticks} ticks")

    def _able(self, state: CoreState, step: Step) -> list[Node]:
        """Nodes in good standing that take work of a step. Others may still say so: their shares are on the way."""
        return [
            node
            for node in state.nodes.values()
            if node.state == NodeState.READY
            and node.stream
            and not node.cordoned
            and node.node_id not in step.nodes.doubted
            and step.step_id not in node.given_up
            and works_on(node, step)
            and step.step_id in node.shares
        ]

    def _free(self, step: Step, node: Node) -> int:
        slots = min(node.workers.get(step.step_id, 0), node.capacity.get(step.step_id, 0))
        if step.settings.rate_per_s < math.inf and not has_ready_worker(step, node):
            # The pace of leases is that of calls: until a worker is ready, one waits.
            slots = min(slots, 1)
        return slots - node.held.get(step.step_id, 0)

    def _has_room(self, step: Step, node: Node) -> bool:
        agent = self._sim.agent_of(node.node_id)
        return agent is not None and step.step_id in agent.steps and agent.has_room_for(step.step_id)

    def _key(self, lease: Any) -> tuple[int, int, int]:
        return lease.step_id, lease.mini_batch, lease.generation

    def _past(self, lease: Any) -> set[str]:
        return self.failed_on.get(self._key(lease), set())

    def _check_retries(self, step: Step, node: Node, effect: fx.SendAssignments, free: list[Node]) -> None:
        for lease in effect.leases:
            past = self._past(lease)
            handled = self._handled.get(self._key(lease), set())
            better = [other.node_id for other in free if other.node_id not in past | handled]
            if node.node_id in past and better:
                raise Broken(18, f"{lease} goes where it failed ({sorted(past)}), and {better} have free slots")

    def _check_bad(self, core: Core, step: Step, node: Node, effect: fx.SendAssignments, others: list[Node]) -> None:
        state, config, now_s = core.state, self._sim.config, self._sim.world.now_s
        # Where the others fail often as well, the core needs longer to tell a bad node from bad luck or bad data, and
        # no number bounds how long. One bad item is enough for a mini-batch to fail.
        failing = sum(config.causes.values()) + config.bad_items * ITEMS_MAX
        if not self._sim.is_bad(node.node_id) or config.poison or failing > FAILING_MAX:
            return
        good = [
            other
            for other in others
            if not self._sim.is_bad(other.node_id)
            and other.capacity.get(step.step_id, 0) > 0
            and self._succeeded[state.incarnation, other.node_incarnation, step.step_id] >= PROVEN
        ]
        if not good:
            return
        key = (state.incarnation, node.node_incarnation, step.step_id, effect.leases[0].generation)
        since_s = self._bad_since.setdefault(key, now_s)
        self._bad[key] += len(effect.leases)
        trials = (now_s - since_s) / state.timing.retry_wait_s
        if self._bad[key] > BAD_LEASES + config.slots + trials:
            raise Broken(
                19,
                f"{node.node_id}, where everything fails, was given {self._bad[key]} leases of step "
                f"{step.step_id}, while {good[0].node_id} does well",
            )
