"""A fake agent: registers, connects, heartbeats, holds leases ahead, runs them, keeps results until they are answered.

State machine of one lease on an agent: QUEUED -> RUNNING -> FINISHED -> (gone). Any but FINISHED may be taken away.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from sim_config import STRAGGLING
from sim_needs import Amounts, lacking
from sim_network import Stream, call
from sim_world import Process
from windrow_master.core import commands
from windrow_master.core.commands import HeldLease
from windrow_master.core.ids import LeaseId, NodeId, StepId
from windrow_master.core.refused import Refused

if TYPE_CHECKING:
    from sim_run import Simulation

HEARTBEAT_S = 0.5
IDLE_HEARTBEAT_S = 4.0
FLUSH_S = 0.01


class Phase(Enum):
    """Where a lease is on its agent."""

    QUEUED = 1
    RUNNING = 2
    FINISHED = 3


@dataclass(slots=True)
class Held:
    """A lease on this agent, and its result once there is one."""

    lease: HeldLease
    phase: Phase = Phase.QUEUED
    result: Any = None


class Agent(Process):
    """One incarnation of a node."""

    def __init__(self, sim: Simulation, node_id: NodeId, number: int, replaced: str, allocation: str = "") -> None:
        super().__init__(sim.world)
        self.sim, self.config = sim, sim.config
        self.node_id = node_id
        self.incarnation = f"{node_id}.{number}"
        self._replaced = replaced
        self.allocation = allocation
        """Of a fleet, in which it runs; empty: in none."""
        self._total = sim.total_of(node_id)
        self._stream: Stream | None = None
        self._connecting = False
        self._held: dict[LeaseId, Held] = {}
        self._steps: dict[StepId, tuple[str, int]] = {}
        self._identities: dict[StepId, int] = {}
        """By which it knows its steps."""
        self._taken: dict[LeaseId, Amounts] = {}
        """What those that run take of the node."""
        self._shares: dict[StepId, int] = {}
        """How many workers each step should have."""
        self._paced: set[StepId] = set()
        """Steps of which one mini-batch has run here: how long they take is known, and how many to hold ahead."""
        self._outbox: list[Held] = []
        self._released: list[LeaseId] = []
        self._flushing = False
        self.draining = False
        self._drain_heard = False
        self._beats = 0
        self._sleepy = False
        """Its last heartbeat has promised the next one for later than usual."""
        self._register()
        self._beat_after(self.world.rng.random() * HEARTBEAT_S)

    # Connection

    def _register(self) -> None:
        self._connecting = True
        slots, memory_bytes, gpu_count = self._total
        resources = json.dumps({"slots": slots, "memoryBytes": memory_bytes, "gpuCount": gpu_count}).encode()
        held = tuple((step_id, self._identities[step_id]) for step_id in self._steps)
        command = commands.RegisterNode(
            self.node_id,
            self.incarnation,
            self._replaced,
            resources,
            b"{}",
            held_steps=held,
            allocation=self.allocation,
        )

        def reply(answer: Any) -> None:
            if isinstance(answer, Refused):
                self.after(0.5, self._register)
            else:
                self._open()

        config = self.config
        call(self, self.sim.master, config.latency_s, config.loss, command, reply,
             lambda: self.after(self.world.rng.random() * 0.5, self._register))  # fmt: skip

    def _open(self) -> None:
        """Connect: hello first, then what is finished."""
        self._connecting = False
        master = self.sim.master
        if master is None or not master.alive:
            self._reconnect()
            return
        stream = self._stream = master.open_stream(self)
        self._drain_heard = False
        held = tuple(entry.lease for entry in self._held.values())
        steps = tuple(self._steps)
        workers = tuple(self._shares.items())
        stream.up.send(lambda: master.hello(stream, self.incarnation, held, steps, workers))
        self._outbox = [entry for entry in self._held.values() if entry.phase == Phase.FINISHED]
        self._released.clear()
        for step_id in self._steps:
            self._tell_capacity(step_id)
        if self.draining:
            self._tell_draining()
        self._flush_soon()

    def _reconnect(self) -> None:
        if self._connecting:
            return
        self._connecting = True
        # An agent that lost its stream does not know yet whether it is still registered.
        begin = self._open if self.world.rng.random() < 0.5 else self._register
        self.after(0.02 + self.world.around(0.2), begin)

    def stream_ended(self, stream: Stream) -> None:
        """A stream ended, as far as this side knows."""
        if self._stream is stream:
            self._stream = None
            if self.draining and not self._held:
                self.world.trace("left", self.incarnation)
                self.sim.agent_left(self)
            else:
                # Refused streams end too: register again.
                self._connecting = True
                self.after(0.02 + self.world.around(0.2), self._register)

    def _beat_after(self, delay_s: float) -> None:
        """The next heartbeat comes then, and not when it was planned before."""
        self._beats += 1
        number = self._beats
        self.after(delay_s, lambda: self._heartbeat() if number == self._beats else None)

    def _heartbeat(self) -> None:
        digest = 0
        for lease_id in self._held:
            digest ^= lease_id

        def reply(answer: Any) -> None:
            if isinstance(answer, Refused):
                if not self._connecting:
                    self._drop_stream()
                    self._register()
            elif answer:
                self._drop_stream()
                self._reconnect()

        self._sleepy = not self._held
        next_s = IDLE_HEARTBEAT_S if self._sleepy else HEARTBEAT_S
        ready = tuple(self._steps)
        command = commands.HeartbeatNode(self.node_id, self.incarnation, len(self._held), digest, ready, next_s)
        config = self.config
        call(self, self.sim.master, config.latency_s, config.loss, command, reply, self._miss)
        self._beat_after(next_s)

    def _miss(self) -> None:
        if self._stream is not None and not self._stream.master.alive:
            self._drop_stream()
            self._reconnect()

    def _drop_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close_by_agent()

    def die(self) -> None:
        """kill -9."""
        self.alive = False
        if self._stream is not None:
            self._stream.break_off()

    @property
    def stream(self) -> Stream | None:
        """The open stream, if there is one."""
        return self._stream

    def has_room_for(self, step_id: StepId) -> bool:
        """Whether it could begin another mini-batch of a step now."""
        return lacking(self._total, [*self._taken.values(), self._need(step_id)]) is None

    def _need(self, step_id: StepId) -> Amounts:
        return self.sim.need_on(self.node_id, *self._steps[step_id])

    @property
    def steps(self) -> list[StepId]:
        """What it serves: its workers wait for mini-batches of these."""
        return list(self._steps)

    def waiting(self, step_id: StepId) -> list[tuple[int, int, int]]:
        """What it holds of a step and has not begun: (step, mini-batch, generation)."""
        leases = (entry.lease for entry in self._held.values() if entry.phase == Phase.QUEUED)
        return [(at.step_id, at.mini_batch, at.generation) for at in leases if at.step_id == step_id]

    def drain(self) -> None:
        """Leave: take nothing new, hand back what has not started, finish the rest."""
        if self.draining:
            return
        self.draining = True
        for entry in [entry for entry in self._held.values() if entry.phase == Phase.QUEUED]:
            self._release(entry)
        self._tell_draining()
        self._leave_if_done()

    def _tell_draining(self) -> None:
        stream = self._stream
        if stream is not None:
            command = commands.SetCapacity(self.node_id, stream.number, (), True)
            stream.up.send(lambda: stream.master.submit(command))

    def _leave_if_done(self) -> None:
        if self.draining and self._drain_heard and not self._held and self._stream is not None and not self._released:
            self._stream.close_by_agent()
            self._stream.down.send(lambda stream=self._stream: self.stream_ended(stream))  # type: ignore[misc]

    # What the master says

    def told(self, stream: Stream, kind: str, what: Any) -> None:
        """One message of the stream; an older stream's count no more."""
        if stream is self._stream:
            getattr(self, f"_on_{kind}")(what)

    def _on_step(self, what: tuple[StepId, str, int, int]) -> None:
        step_id, job_id, ordinal, self._identities[step_id] = what
        self._steps[step_id] = (job_id, ordinal)
        self._tell_capacity(step_id)

    def _on_shares(self, what: tuple[tuple[StepId, int], ...]) -> None:
        self._shares = dict(what)
        for entry in [entry for entry in self._held.values() if entry.phase == Phase.QUEUED]:
            if entry.lease.step_id not in self._shares:
                self._release(entry)
        for step_id in self._steps:
            self._tell_capacity(step_id)
        self._start_more()

    def _on_assign(self, leases: list[HeldLease]) -> None:
        if self._sleepy:
            self._beat_after(0.0)
        for lease in leases:
            entry = self._held[lease.lease_id] = Held(lease)
            if self.draining or lease.step_id not in self._steps:
                self._release(entry)
        self._start_more()

    def _on_revoke(self, lease_ids: list[LeaseId]) -> None:
        for lease_id in lease_ids:
            entry = self._held.get(lease_id)
            if entry is not None and entry.phase != Phase.FINISHED:
                self._release(entry)

    def _on_recall(self, what: tuple[StepId, int, tuple[LeaseId, ...]]) -> None:
        step_id, leases_max, kept = what
        queued = [
            entry
            for lease_id, entry in self._held.items()
            if entry.phase == Phase.QUEUED and entry.lease.step_id == step_id and lease_id not in kept
        ]
        for entry in queued[::-1][:leases_max]:
            self._release(entry)

    def _on_end(self, what: tuple[StepId, int]) -> None:
        step_id, generation = what
        self._steps.pop(step_id, None)
        for entry in [entry for entry in self._held.values() if entry.lease.step_id == step_id]:
            if entry.phase != Phase.FINISHED:
                self._drop(entry)
        stream = self._stream
        if stream is not None:
            command = commands.ConfirmStepEnd(
                self.node_id, stream.number, step_id, generation, asked_generation=generation
            )
            stream.up.send(lambda: stream.master.submit(command))

    def _on_drain(self, what: None) -> None:
        self._drain_heard = True
        self.drain()
        self._leave_if_done()

    def acknowledged(self, verdicts: dict[Any, list[int]]) -> None:
        """Answers to completions: each lets the result go."""
        for verdict, lease_ids in verdicts.items():
            for lease_id in lease_ids:
                self.sim.checkers.on_acknowledged(verdict, lease_id)
                self._held.pop(LeaseId(lease_id), None)
        self._leave_if_done()

    # Work

    def _tell_capacity(self, step_id: StepId) -> None:
        stream = self._stream
        if stream is not None:
            depth = self.config.depth if step_id in self._paced else 1
            workers = self._shares.get(step_id, 0)
            leases_max = 0 if self.draining else workers * depth
            command = commands.SetCapacity(
                self.node_id, stream.number, ((step_id, leases_max, workers),), self.draining
            )
            stream.up.send(lambda: stream.master.submit(command))

    def _start_more(self) -> None:
        running = Counter(entry.lease.step_id for entry in self._held.values() if entry.phase == Phase.RUNNING)
        for entry in list(self._held.values()) if not self.draining else ():
            step_id = entry.lease.step_id
            if entry.phase != Phase.QUEUED or running[step_id] >= self._shares.get(step_id, 0):
                continue
            if not self.has_room_for(step_id):
                running[step_id] = len(self._held)  # nor has another one of it
                continue
            running[step_id] += 1
            self._start(entry)

    def _start(self, entry: Held) -> None:
        entry.phase = Phase.RUNNING
        self._taken[entry.lease.lease_id] = self._need(entry.lease.step_id)
        job_id, ordinal = self._steps[entry.lease.step_id]
        duration_s = self.world.around(self.config.run_s)
        if self.config.straggling and self.world.rng.random() < self.config.straggling:
            duration_s *= STRAGGLING
        if self.sim.is_bad(self.node_id):
            duration_s /= 20
        if self.sim.kills_node(job_id, ordinal, entry.lease.mini_batch):
            self.after(1.2 + duration_s, lambda: self._take_node_down(entry))
            duration_s += 1.3
        self.after(duration_s, lambda: self._finish(entry, job_id, ordinal, duration_s))

    def _take_node_down(self, entry: Held) -> None:
        if self._held.get(entry.lease.lease_id) is entry and self.world.faulty:
            self.sim.kill_agent(self)

    def _finish(self, entry: Held, job_id: str, ordinal: int, duration_s: float) -> None:
        if self._held.get(entry.lease.lease_id) is not entry:
            return  # taken away meanwhile
        del self._taken[entry.lease.lease_id]
        entry.phase = Phase.FINISHED
        entry.result = self.sim.run(job_id, ordinal, entry.lease, self.node_id)
        entry.result.elapsed_us = int(duration_s * 1e6)
        if not entry.result.cause and entry.lease.step_id not in self._paced and entry.lease.step_id in self._steps:
            self._paced.add(entry.lease.step_id)
            self._tell_capacity(entry.lease.step_id)
        self._outbox.append(entry)
        self._flush_soon()
        self._start_more()

    def _drop(self, entry: Held) -> None:
        self._taken.pop(entry.lease.lease_id, None)
        self._held.pop(entry.lease.lease_id, None)
        self.after(0.0, self._start_more)

    def _release(self, entry: Held) -> None:
        self._drop(entry)
        self._released.append(entry.lease.lease_id)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self.after(self.world.around(FLUSH_S), self._flush)

    def _flush(self) -> None:
        self._flushing = False
        stream = self._stream
        if stream is None:
            return
        results = [entry.result for entry in self._outbox if self._held.get(entry.lease.lease_id) is entry]
        released, self._released, self._outbox = self._released, [], []
        if results:
            stream.up.send(lambda: stream.master.completions(stream, results))
        if released:
            command = commands.ReleaseLeases(self.node_id, released)
            stream.up.send(lambda: stream.master.submit(command))
        self._leave_if_done()
