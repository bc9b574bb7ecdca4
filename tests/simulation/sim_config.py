"""What one seed simulates: how many of everything, how slow, how unreliable. All drawn from the seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from windrow.common.queue_settings import Bounds, QueueSettings
from windrow_master.core.ids import DEFAULT_PROJECT
from windrow_master.core.settings import StepSettings
from windrow_master.core.states import Cause


@dataclass
class JobPlan:
    """One job: its settings, and what dividing its input gives."""

    job_id: str
    settings: tuple[StepSettings, ...]
    counts: tuple[tuple[int, ...], ...]
    """Items of each mini-batch of each step."""
    unknown: tuple[bool, ...]
    """Steps whose item counts only loading tells."""
    submit_s: float
    cancel_s: float | None
    continue_on_step_failure: bool = False
    retries: int = 0
    """How often it is retried when it has ended otherwise than well."""
    since: str = ""
    """The job whose results it takes over, once that has ended; "": none."""
    changed: float = 0.0
    """Share of mini-batches that are not what they were then."""
    project: str = DEFAULT_PROJECT


@dataclass
class QueuePlan:
    """What an operator sets at a time for the queues of some projects."""

    set_s: float
    queues: dict[str, QueueSettings]


@dataclass
class Config:
    """One simulated world. Rates are events a second over the whole of it, while faults last."""

    jobs: list[JobPlan] = field(default_factory=list)
    queues: list[QueuePlan] = field(default_factory=list)
    agents: int = 3
    slots: int = 2
    slots_of_each: tuple[int, ...] = ()
    """Those of each node, in turn; empty: all have `slots`."""
    memory_of_each: tuple[int, ...] = (0,)
    gpus_of_each: tuple[int, ...] = (0,)
    depth: int = 4
    """Leases held a worker, the running one included."""
    run_s: float = 0.2
    latency_s: float = 0.005
    loss: float = 0.0
    """Share of unary calls whose request or reply is lost; half as many are repeated, late."""
    assignment_loss: float = 0.0
    """Share of assignment messages that never arrive although the stream lives."""
    commit_s: float = 0.005
    commit_stall: float = 0.0
    """Share of commits that take a hundred times as long."""
    postponed: float = 0.0
    """Share of commits that are rolled back for lack of space and tried again."""
    power_loss: float = 0.5
    """Share of master deaths that lose what was not synced."""
    rot: float = 0.0
    """Share of concatenations that find damaged rows."""
    causes: dict[Cause, float] = field(default_factory=dict)
    short: float = 0.0
    poison: float = 0.0
    """Share of mini-batches that fail at every try."""
    bad_items: float = 0.0
    """Share of items that fail wherever and with whomever they run."""
    deadly_items: float = 0.0
    """Share of those that end their worker."""
    straggling: float = 0.0
    """Share of attempts that take `STRAGGLING` times as long as others."""
    bad_nodes: tuple[str, ...] = ()
    """Nodes on which every mini-batch fails, at once, until `bad_after_s` after the last other fault."""
    bad_cause: Cause = Cause.EXCEPTION
    bad_after_s: float = 0.0
    killers: float = 0.0
    """Share of mini-batches that take their node with them while faults last."""
    stream_breaks: float = 0.0
    agent_kills: float = 0.0
    agent_stalls: float = 0.0
    drains: float = 0.0
    cordons: float = 0.0
    """Nodes that an operator cordons, or uncordons: which of the two is a coin's toss."""
    removals: float = 0.0
    master_kills: float = 0.0
    master_pauses: float = 0.0
    zombies: float = 0.0
    """Share of master deaths that are none: it hangs, another starts, it comes back."""
    planner_kills: float = 0.0
    taking_over_kills: float = 0.0
    """Share of results taken over of which the master dies within a second."""
    faults_until_s: float = 20.0
    is_storm: bool = False
    """It comes from `draw_storm`."""
    patience: float = 1.0
    """The part of `ends_by_s` that is waited for."""

    @property
    def ends_by_s(self) -> float:
        """Seconds after the last fault in which every job must end: several times the work, and all graces."""
        runs = splits = stragglers = paced_s = 0.0
        for job in self.jobs:
            for step, counts in zip(job.settings, job.counts, strict=True):
                runs += (1 + job.retries) * len(counts) / min(step.instance_count or self.agents, self.agents)
                paced_s += 4 * (1 + job.retries) * len(counts) / step.rate_per_s
                stragglers += (1 + job.retries) * len(counts) * self.straggling
                if step.split:
                    # Mini-batches are split one after the other, and each death of a bad item is an attempt.
                    bad = self.bad_items * ITEMS_MAX * len(counts)
                    splits += (1 + job.retries) * bad * SPLIT_ATTEMPTS / step.split
        in_turn = 1 + sum(bool(job.since) for job in self.jobs)
        return self.patience * (
            300.0 * in_turn * (1 + max(job.retries for job in self.jobs))
            + 10 * runs * self.run_s / self.slots
            + 2 * splits * self.run_s
            + 2 * stragglers * self.run_s * STRAGGLING
            + paced_s
        )


STRAGGLING = 20

ITEMS_MAX = 4
"""Items of a mini-batch, at most."""

SPLIT_ATTEMPTS = 5
"""Attempts that it takes to find one bad item of so many: the whole, halves, quarters, and twice that item alone."""

RETRIED = (Cause.EXCEPTION, Cause.TIMEOUT, Cause.BAD_RETURN, Cause.LOAD_FAILED, Cause.CRASH, Cause.OOM)


def draw_config(rng: Random) -> Config:
    """A world; most are small and rough, few are large."""
    size = rng.random()
    config = Config()
    config.agents = rng.randint(1, 6) if size < 0.8 else rng.randint(7, 25) if size < 0.97 else rng.randint(100, 250)
    large = config.agents > 50
    config.slots, config.depth = rng.randint(1, 3), rng.choice([1, 2, 4, 16])
    config.run_s = rng.choice([0.02, 0.2, 1.0, 3.0])
    config.latency_s = rng.choice([0.0005, 0.01, 0.1])
    config.loss = rng.choice([0.0, 0.05, 0.2])
    config.assignment_loss = rng.choice([0.0, 0.1, 0.3])
    config.commit_s = rng.choice([0.001, 0.02, 0.3])
    config.commit_stall = rng.choice([0.0, 0.02])
    config.postponed = rng.choice([0.0, 0.0, 0.1])
    config.rot = rng.choice([0.0, 0.0, 0.5])
    config.causes = {cause: rng.choice([0.0, 0.0, 0.1]) for cause in (*RETRIED, Cause.NODE_FAULT, Cause.PREEMPTED)}
    config.causes[Cause.INPUT_CHANGED] = rng.choice([0.0, 0.0, 0.02])
    config.short = rng.choice([0.0, 0.1])
    config.poison = rng.choice([0.0, 0.0, 0.05])
    config.killers = rng.choice([0.0, 0.0, 0.0, 0.03])
    config.faults_until_s = rng.choice([5.0, 15.0, 30.0]) if not large else 5.0
    rough = rng.choice([0.0, 0.3, 1.0, 1.0])
    config.stream_breaks = rough * rng.choice([0.0, 0.3, 1.5])
    config.agent_kills = rough * rng.choice([0.0, 0.1, 0.6])
    config.agent_stalls = rough * rng.choice([0.0, 0.2])
    config.drains = rough * rng.choice([0.0, 0.05])
    config.master_kills = rough * rng.choice([0.0, 0.1, 0.4])
    config.master_pauses = rough * rng.choice([0.0, 0.15])
    config.zombies = rng.choice([0.0, 0.3])
    config.planner_kills = rough * rng.choice([0.0, 0.3])
    config.jobs = [_draw_job(rng, number, config.faults_until_s) for number in range(rng.choice([1, 1, 2]))]
    config.cordons = rough * rng.choice([0.0, 0.1, 0.5])
    config.removals = rough * rng.choice([0.0, 0.2])
    for job in config.jobs:
        _bound(rng, job)
    if config.agents > 1 and rng.random() < 0.4:
        bad = rng.randint(1, max(1, min(3, config.agents // 2)))
        config.bad_nodes = tuple(f"n{number}" for number in range(bad))
        config.bad_cause = rng.choice([*RETRIED, Cause.NODE_FAULT])
        config.bad_after_s = rng.choice([0.0, 100.0])
        if rng.random() < 0.5:
            config.poison, config.causes = 0.0, {}
    nights_s = config.faults_until_s
    config.taking_over_kills = rough * rng.choice([0.0, 0.02])
    for _ in range(rng.choice([0, 0, 1, 1, 2]) if not large else 0):
        config.jobs.append(_follow(rng, config.jobs, nights_s))
        # They begin when others have ended, and should not have peace.
        config.faults_until_s += nights_s
    if rng.random() > 0.75:
        config.bad_items, config.deadly_items = rng.choice([0.02, 0.1, 0.3]), rng.choice([0.0, 0.3, 1.0])
        for job in config.jobs:
            job.settings = tuple(step._replace(split=rng.choice([0, 1, 1, 3])) for step in job.settings)
    if rng.random() < 0.3:
        config.straggling = rng.choice([0.02, 0.2])
        for job in config.jobs:
            job.settings = tuple(step._replace(speculate=True) for step in job.settings)
    if not large and rng.random() < 0.15:
        for job in config.jobs:
            rate_per_s = rng.choice([3.0, 10.0, 50.0])
            job.settings = tuple(step._replace(rate_per_s=rate_per_s) for step in job.settings)
    return config


def _follow(rng: Random, jobs: list[JobPlan], faults_until_s: float) -> JobPlan:
    """The same job again, some nights later."""
    before = rng.choice([jobs[0], jobs[-1]])
    return replace(
        before,
        job_id=f"job{len(jobs)}",
        cancel_s=rng.random() * faults_until_s if rng.random() < 0.15 else None,
        retries=rng.choice([0, 1, 2]),
        since=before.job_id,
        changed=rng.choice([0.0, 0.1, 0.5]),
    )


def _bound(rng: Random, job: JobPlan) -> None:
    """Some steps run on few nodes only, and some jobs go on when a step has failed."""
    counts = [rng.choice([None, None, None, 1, 2]) for _ in job.settings]
    job.settings = tuple(step._replace(instance_count=count) for step, count in zip(job.settings, counts, strict=True))
    job.continue_on_step_failure = rng.random() < 0.3
    job.retries = rng.choice([0, 1, 2])


def _draw_job(rng: Random, number: int, faults_until_s: float) -> JobPlan:
    names = ("a", "b")[: rng.choice([1, 1, 2])]
    settings = tuple(
        StepSettings(
            name,
            depends_on=("a",) if name == "b" and rng.random() < 0.7 else (),
            append_row=rng.random() < 0.85,
            ends_workers_first=name == "b",
            error_threshold=rng.choice([-1, -1, -1, 30]),
            mini_batch_error_threshold=rng.choice([-1, -1, -1, 10]),
            allowed_failed_percent=rng.choice([100.0, 100.0, 60.0]),
            max_retries=rng.choice([0, 1, 2, 2]),
        )
        for name in names
    )
    counts = tuple(
        tuple(rng.randint(1, ITEMS_MAX) for _ in range(rng.choice([0, 3, 20, 60, 120]) if rng.random() < 0.95 else 400))
        for _ in names
    )
    return JobPlan(
        f"job{number}",
        settings,
        counts,
        tuple(rng.random() < 0.25 for _ in names),
        0.5 + rng.random() * 3,
        rng.random() * faults_until_s if rng.random() < 0.15 else None,
    )


def draw_storm(rng: Random) -> Config:
    """A world in which several projects submit many jobs at once, to nodes of different capacity."""
    agents, projects = rng.randint(2, 6), ("a", "b", "c")[: rng.choice([1, 2, 3, 3])]
    jobs = []
    for number in range(rng.randint(4, 12)):
        count = rng.choice([2, 10, 60, 300])
        settings = StepSettings("a", max_concurrency_per_instance=rng.choice([None] * 9 + [1, 4]))
        submit_s = 2.0 + rng.choice([0.0, 0.0, 1.0, 6.0]) * rng.random()
        cancel_s = rng.random() * 10 if rng.random() < 0.1 else None
        project = rng.choice(projects)
        jobs.append(
            JobPlan(f"job{number}", (settings,), ((1,) * count,), (False,), submit_s, cancel_s, project=project)
        )
    rough = rng.random() < 0.5
    config = Config(
        jobs=jobs,
        queues=[_set_queues(rng, projects, set_s) for set_s in rng.choice([(), (1.0,), (1.0, 8.0), (1.0, 6.0, 11.0)])],
        agents=agents,
        slots_of_each=tuple(rng.randint(1, 5) for _ in range(agents)),
        depth=rng.choice([1, 2, 4]),
        run_s=rng.choice([0.1, 0.3, 1.0]),
        agent_kills=rough * rng.choice([0.0, 0.1]),
        stream_breaks=rough * rng.choice([0.0, 0.2]),
        master_kills=rough * rng.choice([0.0, 0.1]),
        drains=rough * rng.choice([0.0, 0.1]),
        causes={Cause.EXCEPTION: 0.02} if rough else {},
        faults_until_s=15.0,
        is_storm=True,
    )
    if rng.random() < 0.4:
        _admit_few(rng, config, projects)
    if rng.random() < WITH_NEEDS:
        _draw_needs(rng, config)
    elif rng.random() < 0.3:
        _gather(rng, config)
    return config


def _gather(rng: Random, config: Config) -> None:
    """Some jobs begin on several nodes at once, where that is allowed to their projects."""
    for job in config.jobs:
        most = min((plan.queues[job.project].cluster.limit for plan in config.queues), default=math.inf)
        if most >= 2 and rng.random() < 0.5:
            min_nodes = rng.randint(2, int(min(most, config.agents)))
            job.settings = tuple(step._replace(min_nodes=min_nodes) for step in job.settings)


def _admit_few(rng: Random, config: Config, projects: Sequence[str]) -> None:
    """Queues that admit few jobs at a time, in half of the worlds on so few slots that most jobs have to wait."""
    if rng.random() < 0.5:
        config.slots_of_each = (1,) * config.agents
    plans = config.queues or [QueuePlan(1.0, dict.fromkeys(projects, QueueSettings()))]
    config.queues = [
        QueuePlan(
            plan.set_s,
            {name: one._replace(admitted_jobs=rng.choice([1, 1, 2, 3])) for name, one in plan.queues.items()},
        )
        for plan in plans
    ]


WITH_NEEDS = 0.4
"""The share of storms in which steps say what a worker needs."""

GB = 1 << 30


def _draw_needs(rng: Random, config: Config) -> None:
    """Nodes have memory and GPUs, and most steps say what a worker needs: what one of the nodes has."""
    config.memory_of_each = tuple(rng.choice([4, 8, 16]) * GB for _ in range(config.agents))
    with_gpus = rng.random() < 0.5
    config.gpus_of_each = tuple(rng.choice([1, 2, 4] if with_gpus else [0]) for _ in range(config.agents))
    largest = 1.0
    for job in config.jobs:
        if rng.random() < 0.3:
            continue
        at = rng.randrange(config.agents)
        slots, memory, gpus = config.slots_of_each[at], config.memory_of_each[at], config.gpus_of_each[at]
        cpus = rng.choice([None, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0])
        needs = job.settings[0]._replace(
            cpus_per_worker=None if cpus is None else min(cpus, slots),
            memory_per_worker=min(rng.choice([0, 0, 0, 1, 3, 6, 16]) * GB, memory),
            gpus_per_worker=min(rng.choice([0, 0.25, 0.3, 0.6, 0.6, 1, 2]), gpus),
        )
        job.settings, largest = (needs,), max(largest, needs.cpus_per_worker or 1.0)
        # Large workers run one after the other, on few nodes.
        job.counts = (job.counts[0][:60],)
    for plan in config.queues:
        for name, queue in plan.queues.items():
            if queue.cluster.limit < largest:
                plan.queues[name] = queue._replace(cluster=Bounds(queue.cluster.quota))


def _set_queues(rng: Random, projects: Sequence[str], set_s: float) -> QueuePlan:
    """Settings for some of the projects, all of whose queues have had others before."""
    queues = {}
    for name in projects:
        quota = rng.choice([0.0, 0.0, 1.0, 2.5, 4.0])
        bounds = Bounds(quota, quota + rng.choice([math.inf, math.inf, 0.0, 1.0, 2.0, 4.5]))
        if bounds.limit < 1:
            # Whoever may have nothing waits for ever.
            bounds = Bounds(quota)
        queues[name] = QueueSettings(rng.choice([1.0, 1.0, 2.0, 3.0]), rng.choice([0, 0, 0, 5]), bounds)
    return QueuePlan(set_s, queues)
