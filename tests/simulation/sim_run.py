"""One simulated history: the world of a seed, from the first submission to the end of the last job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any
from zlib import crc32

from sim_agent import Agent
from sim_checkers import Checkers
from sim_client import Client
from sim_config import Config, draw_config
from sim_disk import Disk
from sim_master import SimMaster
from sim_needs import Amounts, need_on
from sim_planting import Broken
from sim_splitting import Ordered, run_items
from sim_tables import MemoryTables, MiniBatchRow, SegmentRange
from sim_view import settings_of
from sim_world import World
from windrow.rpc.v1 import work_pb2
from windrow_master.core import commands
from windrow_master.core.commands import HeldLease, TakenOver
from windrow_master.core.ids import NodeId
from windrow_master.core.settings import StepSettings
from windrow_master.core.states import ENDED_JOBS, Cause, JobState, MiniBatchState


class SimulationFailed(AssertionError):
    """A seed broke a rule; the message says which, when, and how to see it again."""


@dataclass(frozen=True)
class Report:
    """What a history came to."""

    seed: int
    digest: int
    virtual_s: float
    commits: int
    attempts: int
    masters: int
    states: tuple[str, ...]
    taken_over: int


def config_of(seed: int) -> Config:
    """The world of a seed."""
    return draw_config(Random(seed ^ 0x57494E44))


class Simulation:
    """Owns the world, the disk, the master and the agents."""

    def __init__(
        self, seed: int, config: Config | None = None, *, tables: MemoryTables | None = None, keep_trace: bool = False
    ) -> None:
        self.world = World(seed, keep_trace=keep_trace)
        self.config = config if config is not None else config_of(seed)
        self.world.faults_until_s = self.world.now_s + self.config.faults_until_s
        self.disk = Disk(tables if tables is not None else MemoryTables())
        self.checkers = Checkers(self)
        self.rows: dict[int, bytes] = {}
        self.orders: dict[int, Ordered] = {}
        """How leases are to be split, by lease."""
        """The rows that each lease's run returned."""
        self.master: SimMaster | None = None
        self.master_since_s = self.world.now_s
        self._pauses: list[tuple[float, float]] = []
        self._prefixes: set[int] = set()
        self._agents: dict[NodeId, Agent] = {}
        self._numbers: dict[NodeId, int] = {}
        self._client = Client(self)
        self._jobs = {job.job_id: job for job in self.config.jobs}

    # The input and the script

    def planned_counts(self, job_id: str, ordinal: int) -> tuple[int, ...]:
        """What dividing the input gives: item counts, 0 where only loading tells."""
        job = self._jobs[job_id]
        return (0,) * len(job.counts[ordinal]) if job.unknown[ordinal] else job.counts[ordinal]

    def taken_over(self, job_id: str, ordinal: int, mini_batch: int) -> TakenOver | None:
        """The result that a mini-batch has in an earlier job, as shell.earlier finds it; None: it has to run."""
        job, tables = self._jobs[job_id], self.disk.tables
        if not job.since or self._draw(job_id, ordinal, mini_batch, "changed") < job.changed:
            return None
        key = next(row.job_key for row in tables.jobs.values() if row.job_id == job.since)
        step_id = next(row.step_id for row in tables.steps.values() if (row.job_key, row.ordinal) == (key, ordinal))
        rows = tables.mini_batches[step_id]
        row = rows[mini_batch] if mini_batch < len(rows) else None
        if row is None or not self.is_whole(row):
            return None
        if self.world.chance(self.config.taking_over_kills):
            self.world.after(self.world.rng.random(), self.end_master)
        place = row.range or SegmentRange("", 0, 0, 0)
        return TakenOver(mini_batch, row.items_counted, row.row_count, *place)

    def is_whole(self, row: MiniBatchRow) -> bool:
        """Whether it has a result for each item."""
        return row.state == MiniBatchState.SUCCEEDED and row.ok_count >= row.items_counted

    def origins(self, job_id: str) -> list[str]:
        """The jobs in which a result of a job may have been made: those before it."""
        found = [job_id]
        while before := self._jobs[found[-1]].since:
            found.append(before)
        return found[1:]

    def items(self, job_id: str, ordinal: int, mini_batch: int) -> int:
        """How many it holds."""
        return self._jobs[job_id].counts[ordinal][mini_batch]

    def _draw(self, job_id: str, ordinal: int, mini_batch: int, what: str) -> float:
        """A number of a mini-batch that does not depend on the history."""
        return crc32(f"{self.world.seed}/{job_id}/{ordinal}/{mini_batch}/{what}".encode()) / 2**32

    def kills_node(self, job_id: str, ordinal: int, mini_batch: int) -> bool:
        """Whether running it takes the node down, while faults last."""
        return self.world.faulty and self._draw(job_id, ordinal, mini_batch, "kills") < self.config.killers

    def is_bad(self, node_id: NodeId) -> bool:
        """Whether every mini-batch fails on a node at the moment."""
        config = self.config
        return node_id in config.bad_nodes and self.world.now_s < self.world.faults_until_s + config.bad_after_s

    def slots_of(self, node_id: NodeId) -> int:
        """How many workers a node runs at a time."""
        of_each = self.config.slots_of_each
        return of_each[int(node_id[1:]) % len(of_each)] if of_each else self.config.slots

    def total_of(self, node_id: NodeId) -> Amounts:
        """What a node has: slots, bytes of memory, GPUs."""
        config, at = self.config, int(node_id[1:])
        memory, gpus = config.memory_of_each, config.gpus_of_each
        return float(self.slots_of(node_id)), float(memory[at % len(memory)]), float(gpus[at % len(gpus)])

    def need_on(self, node_id: NodeId, job_id: str, ordinal: int) -> Amounts:
        """What a worker of a step takes of a node."""
        return need_on(self._jobs[job_id].settings[ordinal], self.slots_of(node_id))

    def agent_of(self, node_id: NodeId) -> Agent | None:
        """The living agent of this name."""
        agent = self._agents.get(node_id)
        return agent if agent is not None and agent.alive else None

    def run(self, job_id: str, ordinal: int, lease: HeldLease, node_id: NodeId) -> Any:
        """What running a mini-batch gives."""
        config, rng = self.config, self.world.rng
        items = self._jobs[job_id].counts[ordinal][lease.mini_batch]
        cause = Cause.NONE
        if self.is_bad(node_id):
            cause = config.bad_cause
        elif self._draw(job_id, ordinal, lease.mini_batch, "poison") < config.poison:
            cause = Cause.EXCEPTION
        else:
            for candidate, share in config.causes.items():
                if self.world.chance(share):
                    cause = candidate
                    break
        if cause:
            return work_pb2.Completion(
                lease_id=lease.lease_id,
                cause=int(cause),  # type: ignore[arg-type]
                item_count=items,
                message=cause.name,
                phase=5,  # type: ignore[arg-type]
            )
        bad = self.bad_items(job_id, ordinal, lease.mini_batch)
        if bad or lease.lease_id in self.orders:
            result = run_items(lease.lease_id, items, bad, self.orders.get(lease.lease_id))
            if not result.cause:
                named = {one.first + at for one in result.failed_items for at in range(one.count)}
                self._give_rows(job_id, ordinal, lease, result, [at for at in range(items) if at not in named])
            return result
        results = rng.randint(0, items) if rng.random() < config.short else items
        result = work_pb2.Completion(lease_id=lease.lease_id, item_count=items)
        self._give_rows(job_id, ordinal, lease, result, range(results))
        return result

    def bad_items(self, job_id: str, ordinal: int, mini_batch: int) -> dict[int, Cause]:
        """The items of a mini-batch that always fail, each with its cause."""
        found = {}
        for at in range(self._jobs[job_id].counts[ordinal][mini_batch] if self.config.bad_items else 0):
            if self._draw(job_id, ordinal, mini_batch, f"item {at}") < self.config.bad_items:
                deadly = self._draw(job_id, ordinal, mini_batch, f"deadly {at}") < self.config.deadly_items
                found[at] = Cause.CRASH if deadly else Cause.EXCEPTION
        return found

    def _give_rows(self, job_id: str, ordinal: int, lease: HeldLease, result: Any, good: Sequence[int]) -> None:
        name = f"{job_id}/{ordinal}:{lease.mini_batch}"
        rows = b"".join(f"{name}:{at}:{lease.lease_id:x}\n".encode() for at in good)
        self.rows[lease.lease_id] = rows
        result.result_count = result.row_count = len(good)
        result.rows, result.rows_length, result.rows_crc32 = rows, len(rows), crc32(rows)

    def settings_of(self, step_id: int) -> StepSettings:
        """The settings of a stored step."""
        step = self.disk.tables.steps[step_id]
        return settings_of(self.disk.tables.jobs[step.job_key].document).steps[step.ordinal]

    # The master

    def next_prefix(self) -> int:
        """31 random bits that no earlier master had."""
        while (prefix := self.world.rng.getrandbits(31)) in self._prefixes:
            pass
        self._prefixes.add(prefix)
        return prefix

    def _start_master(self) -> None:
        self.checkers.on_restart()
        self.master_since_s = self.world.now_s
        self._pauses.clear()
        self.master = SimMaster(self)

    def end_master(self) -> None:
        """The master dies, or hangs for so long that another takes its place."""
        master, self.master, rng = self.master, None, self.world.rng
        if master is None:
            return
        if self.world.chance(self.config.zombies):
            self.world.trace("master hangs", master.core.state.incarnation)
            master.pause(3 + rng.random() * 10)
            for agent in self._agents.values():
                if agent.stream is not None:
                    agent.stream.break_off()
        else:
            power = rng.random() < self.config.power_loss
            self.world.trace("master dies", master.core.state.incarnation, power)
            self._kill(master)
            if power:
                self.disk.lose_power(rng)
        self.world.after(rng.choice([0.1, 1.0, 5.0, 20.0]), self._start_master)

    def _kill(self, master: SimMaster) -> None:
        master.alive = False
        for agent in self._agents.values():
            if agent.stream is not None and agent.stream.master is master:
                agent.stream.break_off()

    def _pause_master(self) -> None:
        if self.master is not None:
            duration_s = self.world.rng.choice([0.3, 1.0, 6.0, 100.0])
            self.world.trace("master pauses", duration_s)
            self.master.pause(duration_s)
            if duration_s > 0.6:
                self._pauses.append((self.world.now_s, self.world.now_s + duration_s))

    def awake_s(self, since_s: float) -> float:
        """Seconds since then in which the master was awake."""
        now_s = self.world.now_s
        awake_s, at_s = now_s - since_s, since_s
        for begin_s, end_s in self._pauses:
            asleep_s = min(end_s, now_s) - max(begin_s, at_s)
            if asleep_s > 0:
                awake_s -= asleep_s
                at_s = end_s
        return awake_s

    # Agents

    def _start_agent(self, node_id: NodeId) -> None:
        number = self._numbers[node_id] = self._numbers.get(node_id, 0) + 1
        replaced = f"{node_id}.{number - 1}" if number > 1 and self.world.rng.random() < 0.6 else ""
        self.world.trace("agent starts", node_id, number)
        self._agents[node_id] = Agent(self, node_id, number, replaced, self.allocation_of(node_id, number))

    def allocation_of(self, node_id: NodeId, number: int) -> str:
        """The allocation of a fleet in which an agent runs; empty: in none."""
        return ""

    def kill_agent(self, agent: Agent) -> None:
        """kill -9, and a new one after a while."""
        if agent.alive:
            self.world.trace("agent dies", agent.incarnation)
            agent.die()
            self._restart_agent(agent.node_id)

    def agent_left(self, agent: Agent) -> None:
        """It had drained."""
        if agent.alive:
            agent.alive = False
            self._restart_agent(agent.node_id)

    def _restart_agent(self, node_id: NodeId) -> None:
        self.world.after(self.world.rng.choice([0.05, 1.0, 8.0]), lambda: self._start_agent(node_id))

    def _any_agent(self) -> Agent:
        return self.world.rng.choice(list(self._agents.values()))

    # The history

    def _every(self, rate: float, fault: Any) -> None:
        """A fault that strikes at random, so often a second, until faults stop."""
        if not rate:
            return

        def strike() -> None:
            if self.world.faulty:
                fault()
                self.world.after(self.world.around(1 / rate), strike)

        self.world.after(self.world.around(1 / rate), strike)

    def _stall_agent(self) -> None:
        self._any_agent().pause(self.world.rng.choice([0.5, 3.0, 12.0]))

    def _break_stream(self) -> None:
        agent = self._any_agent()
        if agent.stream is not None:
            agent.stream.break_off()

    def _drain(self) -> None:
        agent = self._any_agent()
        if self.master is not None and self.world.rng.random() < 0.5:
            self.master.submit(commands.DrainNode(agent.node_id))
        else:
            agent.after(0.0, agent.drain)

    def _cordon(self) -> None:
        if self.master is not None:
            cordoned = self.world.rng.random() < 0.5
            self.master.submit(commands.CordonNode(self._any_agent().node_id, cordoned))

    def _remove(self) -> None:
        if self.master is not None:
            self.master.submit(commands.RemoveNode(self._any_agent().node_id))

    def _uncordon_all(self) -> None:
        """When faults have stopped, an operator sees to it that the fleet serves."""
        for node in list(self.disk.tables.nodes.values()):
            if node.cordoned and self.master is not None:
                self.master.submit(commands.CordonNode(NodeId(node.node_id), False))
        if not self._done():
            self.world.after(1.0, self._uncordon_all)

    def _done(self) -> bool:
        jobs = self.disk.tables.jobs.values()
        return len(jobs) == len(self._jobs) and all(
            job.state in ENDED_JOBS and (job.state == JobState.COMPLETED or not self._jobs[job.job_id].retries)
            for job in jobs
        )

    def _serving(self) -> list[str]:
        """What agents still serve."""
        serving = ((agent.incarnation, agent.steps) for agent in self._agents.values() if agent.alive)
        return [f"{name} serves {sorted(steps)}" for name, steps in serving if steps]

    def play(self) -> Report:
        """Let it happen. Raises SimulationFailed."""
        config, world = self.config, self.world
        try:
            self._start_master()
            for number in range(config.agents):
                node_id = NodeId(f"n{number}")
                world.after(world.rng.random() * 2, lambda node_id=node_id: self._start_agent(node_id))  # type: ignore[misc]
            world.after(2.1, self._schedule_faults)
            world.after(config.faults_until_s, self._uncordon_all)
            for job in config.jobs:
                world.after(job.submit_s, lambda job=job: self._client.submit(job))  # type: ignore[misc]
                if job.cancel_s is not None:
                    world.after(job.submit_s + job.cancel_s, lambda job=job: self._client.cancel(job))  # type: ignore[misc]
                if job.retries:
                    world.after(job.submit_s, lambda job=job: self._client.retry(job))  # type: ignore[misc]
            for plan in config.queues:
                world.after(plan.set_s, lambda plan=plan: self._client.set_queues(plan))  # type: ignore[misc]
            ends_by_s = world.faults_until_s + config.ends_by_s
            ended = world.run(self._done, ends_by_s)
            if not ended:
                raise Broken(13, f"not every job ended: {self._standing()}")
            world.run(lambda: False, world.now_s + 2.0)
            if not world.run(lambda: not self._serving(), ends_by_s):
                raise Broken(14, f"all jobs have ended, and {', '.join(self._serving())}")
            self.checkers.on_end()
        except Exception as error:
            raise SimulationFailed(self._story(error)) from error
        tables = self.disk.tables
        states = tuple(JobState(job.state).name for job in tables.jobs.values())
        return Report(
            world.seed,
            world.digest,
            world.now_s,
            tables.commits,
            len(self.checkers.leases),
            tables.incarnation,
            states,
            sum(tables.counters(step_id).taken_over for step_id in tables.steps),
        )

    def _schedule_faults(self) -> None:
        config = self.config
        self._every(config.stream_breaks, self._break_stream)
        self._every(config.agent_kills, lambda: self.kill_agent(self._any_agent()))
        self._every(config.agent_stalls, self._stall_agent)
        self._every(config.drains, self._drain)
        self._every(config.cordons, self._cordon)
        self._every(config.removals, self._remove)
        self._every(config.master_kills, self.end_master)
        self._every(config.master_pauses, self._pause_master)
        self._every(config.planner_kills, lambda: self.master.kill_planners() if self.master else None)

    def _standing(self) -> str:
        lines = [f"{job.job_id}: {JobState(job.state).name}" for job in self.disk.tables.jobs.values()]
        if self.master is not None:
            state = self.master.core.state
            for step in state.steps.values():
                lines.append(f"step {step.step_id} {step.state.name} {step.counters} ready {len(step.ready)}")
            for node in state.nodes.values():
                lines.append(f"{node.node_id} {node.state.name} holds {len(node.lease_ids)} of {node.capacity}")
        return "; ".join(lines)

    def _story(self, error: Exception) -> str:
        """What broke, and how to see it again."""
        storms = " --storms" if self.config.is_storm else ""
        last = "\n".join(f"  {at}" for at in list(self.world.history)[-40:])
        return (
            f"seed {self.world.seed} at {self.world.now_s:.3f} s: {type(error).__name__}: {error}\n"
            f"Reproduce: python tests/simulation/run.py --first {self.world.seed} --seeds 1 --trace{storms}\n"
            f"What came before:\n{last}"
        )
