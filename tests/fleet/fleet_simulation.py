"""A master, an engine and the program of a fleet in one thread and in simulated time, which may be killed anywhere.

Master and engine are as simple as their contracts allow; what decides, remembers and compares is the real thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from windrow.fleet import memory as memories
from windrow.fleet import names
from windrow.fleet.decision import BEGUN, QUEUED, STARTED, Circumstances, Decision, Held, decide
from windrow.fleet.demand import Demand
from windrow.fleet.memory import Memory
from windrow.fleet.provider import Seen, State
from windrow.fleet.reconciling import Reconciling, Report
from windrow.fleet.settings import GroupSettings

FLEET = "sim"
JOIN_S = 5.0


@dataclass
class EngineJob:
    """What the engine has of one allocation."""

    name: str
    engine_id: str
    state: State
    queued_s: float
    started_s: float | None = None


class Engine:
    """An engine that starts what it is asked for after a while, if it has room."""

    def __init__(self, *, queue_s: float = 10.0, room: int = 10**6) -> None:
        self.queue_s, self.room = queue_s, room
        self.jobs: dict[str, EngineJob] = {}
        self.down = False
        self.loses_answers = False
        """It does what it is asked for, and the answer does not arrive."""
        self.refuses = ""
        self.asked: list[str] = []
        self._numbers = count(1)

    def submit(self, name: str, now: float) -> str | None:
        """Returns its id; None: no answer. Raises ValueError if it refuses."""
        if self.down:
            return None
        if self.refuses:
            raise ValueError(self.refuses)
        assert name not in self.asked, "the same name is never asked for twice"
        self.asked.append(name)
        self.jobs[name] = EngineJob(name, str(next(self._numbers)), State.QUEUED, now)
        return None if self.loses_answers else self.jobs[name].engine_id

    def tick(self, now: float) -> None:
        for job in self.jobs.values():
            running = sum(one.state is State.STARTED for one in self.jobs.values())
            if job.state is State.QUEUED and now - job.queued_s >= self.queue_s and running < self.room:
                job.state, job.started_s = State.STARTED, now

    def cancel_queued(self, name: str) -> None:
        if not self.down and name in self.jobs and self.jobs[name].state is State.QUEUED:
            self.jobs[name].state = State.CANCELLED

    def live(self) -> list[EngineJob]:
        return [job for job in self.jobs.values() if not job.state.has_ended]


@dataclass
class Agent:
    """The agent of a started allocation."""

    joined_s: float
    idle_s: float = 0.0
    busy: bool = False


class Master:
    """The rows of one fleet, and work that agents do."""

    def __init__(self, group: GroupSettings) -> None:
        self.group = group
        self.rows: dict[str, Held] = {}
        self.ended: dict[str, str] = {}
        self.agents: dict[str, Agent] = {}
        self.down = False
        self.work_s = 0.0
        """What is ready to run, in seconds of one worker."""
        self.unmeasured = 0

    def demands(self) -> list[Demand]:
        if self.work_s <= 0 and not self.unmeasured:
            return []
        ready = int(self.work_s) + self.unmeasured
        return [Demand(ready=ready, ready_seconds=self.work_s, ready_unmeasured=self.unmeasured, workers_max=10**6)]

    def begin(self, names_begun: list[str]) -> None:
        for name in names_begun:
            if name not in self.ended:
                self.rows.setdefault(name, Held(name, self.group.name))

    def take(self, report: Report) -> None:
        if report.name in self.ended:
            return
        row = self.rows.get(report.name, Held(report.name, self.group.name))
        if report.state in (QUEUED, STARTED):
            self.rows[report.name] = row._replace(state=report.state, engine_id=report.engine_id, reason=report.reason)
        else:
            self.end(report.name, report.state)

    def end(self, name: str, state: str) -> None:
        self.rows.pop(name, None)
        self.agents.pop(name, None)
        self.ended[name] = state


@dataclass
class Cluster:
    """All of it. `joins`: whether the agent of an allocation joins."""

    group: GroupSettings
    engine: Engine
    joins: Callable[[str], bool] = lambda name: True
    now: float = 0.0
    most: int = 0
    """The most allocations that lived at once."""
    busy_ended: int = 0
    master: Master = field(init=False)

    def __post_init__(self) -> None:
        self.master = Master(self.group)

    def tick(self, seconds: float = 1.0) -> None:
        """Time passes: the engine starts, agents join, work and leave."""
        self.now += seconds
        self.engine.tick(self.now)
        master = self.master
        for job in self.engine.live():
            if job.state is not State.STARTED or job.started_s is None:
                continue
            agent = master.agents.get(job.name)
            if agent is None:
                if self.joins(job.name) and self.now - job.started_s >= JOIN_S and not master.down:
                    master.agents[job.name] = Agent(self.now)
                    row = master.rows.get(job.name)
                    if row is not None:
                        master.rows[job.name] = row._replace(has_joined=True, is_alive=True)
                elif self.now - job.started_s >= self.group.exit_idle_s and not self.joins(job.name):
                    job.state = State.COMPLETED
                continue
            done = min(master.work_s, self.group.shape.slots * seconds)
            master.work_s -= done
            if done or master.unmeasured:
                master.unmeasured = max(0, master.unmeasured - 1)
            agent.busy = bool(done)
            agent.idle_s = 0.0 if agent.busy else agent.idle_s + seconds
            row = master.rows.get(job.name)
            if row is not None:
                master.rows[job.name] = row._replace(has_joined=True, is_alive=True, is_busy=agent.busy)
            if agent.idle_s >= self.group.exit_idle_s and not names.stays(job.name):
                job.state = State.COMPLETED
                master.end(job.name, "completed")
        self.most = max(self.most, len(self.engine.live()))

    def kill_agent(self, name: str) -> None:
        """The engine takes an allocation away."""
        self.engine.jobs[name].state = State.PREEMPTED


class Program:
    """What `FleetProgram` does, one step after the other: it may be dropped after each, which is a SIGKILL."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.memory = Memory()
        self.reconciling = Reconciling()
        self.decision: Decision | None = None
        self.reports: dict[str, Report] = {}
        self.unjoined: dict[str, float] = {}
        self.counted: set[str] = set()
        self.silent = "not asked yet"
        self.known: dict[str, Held] = {}
        self.answers = 0
        self.paused_by: str | None = None

    def steps(self) -> Iterator[str]:
        """Goes on for ever; yields after each step that could be its last, and "tick" when a second is to pass."""
        master, engine, group = self.cluster.master, self.cluster.engine, self.cluster.group
        prefix = names.prefix_of(FLEET, group.name)
        while True:
            if not master.down:
                self._sync()
                yield "synced"
                found = decide(
                    [group],
                    master.demands(),
                    [one._replace(unjoined_since=self.unjoined.get(one.name)) for one in self.known.values()],
                    [],
                    {group.name: self.memory},
                    self.cluster.now,
                    Circumstances(self.paused_by, {}, {group.name: self.silent} if self.silent else {}),
                )
                self.decision = decision = found[group.name]
                self.memory = decision.memory
                for name in decision.cancel:
                    engine.cancel_queued(name)
                    yield "cancelled"
                begun = [names.new_name(prefix, stays=True) for _ in range(decision.begin_staying)]
                begun += [names.new_name(prefix, stays=False) for _ in range(decision.begin)]
                master.begin(begun)
                yield "begun"
                for name in begun:
                    self.known[name] = Held(name, group.name)
                    self.memory = memories.begun(self.memory, self.cluster.now, 1)
                    self._submit(name)
                    yield "submitted"
            self._list()
            yield "listed"
            yield "tick"

    def _submit(self, name: str) -> None:
        now = self.cluster.now
        try:
            engine_id = self.cluster.engine.submit(name, now)
        except ValueError as error:
            self.memory = memories.submission_failed(self.memory, now, str(error))
            self.reports[name] = Report(name, State.FAILED.value, "", str(error))
            return
        if engine_id is None:
            self.memory = memories.submission_failed(self.memory, now, "no answer")
        else:
            self.memory = memories.submitted(self.memory)
            self.reports[name] = Report(name, QUEUED, engine_id)

    def _sync(self) -> None:
        master, now = self.cluster.master, self.cluster.now
        for report in self.reports.values():
            master.take(report)
        self.reports = {}
        self.answers += 1
        before, self.known = self.known, dict(master.rows)
        for name, one in self.known.items():
            if one.has_joined and name in before and not before[name].has_joined:
                self.memory = memories.joined(self.memory)
            if one.state == STARTED and not one.has_joined:
                self.unjoined.setdefault(name, now)
                if one._replace(unjoined_since=self.unjoined[name]).is_overdue(now):
                    self._never_joined(name)
            else:
                self.unjoined.pop(name, None)

    def _never_joined(self, name: str) -> None:
        if name not in self.counted:
            self.counted.add(name)
            self.memory = memories.never_joined(self.memory, self.cluster.now, "it left")

    def _list(self) -> None:
        engine = self.cluster.engine
        if engine.down:
            self.silent = "no answer"
            return
        if not self.answers:
            return
        self.silent = ""
        seen = [Seen(job.name, job.engine_id, job.state) for job in engine.jobs.values()]
        outcome = self.reconciling.listed(seen, self.known, (), self.answers, self.cluster.now)
        for report in outcome.reports:
            self.reports[report.name] = report
            known = self.known.get(report.name)
            if known is not None and not known.has_joined and report.state in ("failed", "completed", "expired"):
                self._never_joined(report.name)
        for one in outcome.cancel:
            engine.cancel_queued(one.name)


def run(
    cluster: Cluster,
    seconds: float,
    each: Callable[[Cluster, Program], None] = lambda cluster, program: None,
    *,
    program: Program | None = None,
) -> Program:
    """Let a program run for so long. `each` is called at each second."""
    program = program or Program(cluster)
    end = cluster.now + seconds
    for step in program.steps():
        if step == "tick":
            cluster.tick()
            each(cluster, program)
            if cluster.now >= end:
                return program
    raise AssertionError


def idle_until_empty(cluster: Cluster, program: Program, deadline_s: float = 1200.0) -> None:
    """Let the program run without demand until the engine has nothing more for the fleet but what stays."""
    cluster.master.work_s = cluster.master.unmeasured = 0
    run(cluster, deadline_s, program=program)


__all__ = ["BEGUN", "Cluster", "Engine", "Program", "idle_until_empty", "run"]
