"""What the steps need of agents: what a fleet asks its engine for follows from it.

Only what another agent would run counts. A step asks for nothing

- while its job is queued behind others that its project's queue admits first and its project has all that it may have,
  or while its job is paused or ends;
- beyond what its project may still have (`Queue`), or beyond the nodes that may work on it (`instance_count`): where
  that many serve it, another one gets nothing of it;
- for mini-batches whose retry is not due;
- beyond the workers that its rate limit keeps busy.

How many mini-batches there will be is not known of a job that is not admitted, and of a step whose input is not divided
to its end. Such steps are counted: for them, one agent is of use.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from windrow.common.queue_settings import WHOLE_CLUSTER

from windrow_master.core.admission import first_steps
from windrow_master.core.commands import Moment
from windrow_master.core.forecasts import rate_bound
from windrow_master.core.gathering import gathers, needed
from windrow_master.core.lifetimes import life_s, longest_s
from windrow_master.core.outlook import Demand, Outlook, Worker
from windrow_master.core.shares import rank_of, slots_held
from windrow_master.core.state import CoreState, Job, Step
from windrow_master.core.states import JobState, StepState

OUTLOOK_S = 0.5
"""The least time between two computations."""
AHEAD_S = 120.0
"""Of a step that may not have all the workers that it could use, no more is asked for than they run in this time."""
_MANY = 1 << 40


def outlook_of(state: CoreState, now: Moment) -> Outlook:
    """What the steps need now. Nothing while a master only answers questions."""
    if state.held:
        return Outlook()
    found: dict[tuple[str, Worker], _Sum] = {}
    shortest_s: dict[str, float] = {}
    rights = _Rights(state)
    for job, step in _steps(state):
        key = (step.settings.compute, _worker_of(step))
        total = found.setdefault(key, _Sum())
        if job.state == JobState.QUEUED:
            if rights.workers(job.queue, step, 1):
                total.unknown_steps += 1
                total.min_nodes = max(total.min_nodes, step.settings.min_nodes)
            continue
        waiting = _add(state, total, job, step, rights, now)
        if waiting:
            pool = step.settings.compute
            least_s = step.ready.least_life_s if step.ready.has_only_long else longest_s(step)
            shortest_s[pool] = min(shortest_s.get(pool, math.inf), least_s)
    demands = (total.demand(pool, worker) for (pool, worker), total in sorted(found.items()))
    return Outlook(tuple(one for one in demands if one.asks or one.leased), shortest_s)


def _steps(state: CoreState) -> Iterable[tuple[Job, Step]]:
    """The steps that may need agents, those of jobs that go first before others."""
    jobs = [job for job in state.jobs.values() if job.state in (JobState.QUEUED, JobState.RUNNING)]
    for job in sorted(jobs, key=lambda job: (*(-at for at in rank_of(job)), job.job_key)):
        if job.state == JobState.QUEUED:
            yield from ((job, step) for step in first_steps(job))
        else:
            yield from ((job, step) for step in job.steps if step.state == StepState.RUNNING)


def _worker_of(step: Step) -> Worker:
    settings = step.settings
    cpus = 1.0 if settings.cpus_per_worker is None else settings.cpus_per_worker
    return Worker(cpus, settings.memory_per_worker, settings.gpus_per_worker)


@dataclass(slots=True)
class _Sum:
    """A demand while it is added up."""

    ready: int = 0
    leased: int = 0
    ready_s: float = 0.0
    unmeasured: int = 0
    starts_s: list[float] = field(default_factory=list)
    workers_max: int = 0
    min_nodes: int = 0
    unknown_steps: int = 0
    longest_s: float = 0.0

    def demand(self, pool: str, worker: Worker) -> Demand:
        return Demand(
            pool,
            worker,
            ready=self.ready,
            leased=self.leased,
            ready_s=self.ready_s,
            unmeasured=self.unmeasured,
            init_s=sum(self.starts_s) / len(self.starts_s) if self.starts_s else 0.0,
            workers_max=self.workers_max,
            min_nodes=self.min_nodes,
            unknown_steps=self.unknown_steps,
            longest_s=self.longest_s,
        )


def _add(state: CoreState, total: _Sum, job: Job, step: Step, rights: _Rights, now: Moment) -> int:
    """Add what a running step needs; return how many of its mini-batches wait, whatever bounds it has."""
    counters = step.counters
    total.leased += counters.leased
    step.ready.release_due(now.monotonic_s)
    # Also what no node lives long enough for that is there.
    waiting = len(step.ready) - len(step.ready.delayed)
    each_s = _each_s(state, step, now)
    total.longest_s = max(total.longest_s, life_s(step))
    if counters.starts.get("workers"):
        total.starts_s.append(counters.mean_start_s())
    # Where an earlier job may have made its output, no agent is asked for before that is known.
    room = _more_workers(state, step, each_s)
    is_unknown = room > 0 and not step.plan.is_done and not (step.settings.reuse and step.is_read_first)
    bound = min(waiting, room)
    more = rights.workers(job.queue, step, max(bound, int(is_unknown)))
    total.workers_max += min(more, bound) + counters.leased
    if not more:
        return waiting
    total.unknown_steps += is_unknown
    if gathers(step) and (waiting or is_unknown):
        total.min_nodes = max(total.min_nodes, needed(step))
    ready = min(waiting, more)
    total.ready += ready
    if each_s:
        total.ready_s += waiting * each_s if ready == waiting else min(waiting * each_s, ready * max(each_s, AHEAD_S))
    else:
        total.unmeasured += ready
    return waiting


def _each_s(state: CoreState, step: Step, now: Moment) -> float:
    """How long a mini-batch of a step takes, in seconds, with what fails and runs again; 0.0 while nobody knows. Those
    that run say something, too, if they have run for long.
    """
    counters = step.counters
    if counters.measured:
        return counters.mean_s() * (1 + counters.retries / max(1, counters.ran))
    if not step.lease_ids or not step.workers.is_ready:
        return 0.0
    granted_s = min(state.leases[lease_id].granted_s for lease_id in step.lease_ids)
    runs_s = now.monotonic_s - granted_s - counters.mean_start_s()
    return runs_s if runs_s >= AHEAD_S else 0.0


def _more_workers(state: CoreState, step: Step, each_s: float) -> int:
    """How many workers a step may have on nodes that are not there yet, by its own settings."""
    settings, most = step.settings, _MANY
    if settings.rate_per_s < math.inf:
        has = sum(node.workers.get(step.step_id, 0) for node in state.nodes.values())
        most = max(0, rate_bound(step, each_s) - has)
    if settings.instance_count is None:
        return most
    serving = sum(1 for node_id in step.nodes.chosen if (node := state.nodes.get(node_id)) is not None and node.serves)
    return min(most, max(0, settings.instance_count - serving) * _workers_of_an_agent(state, step))


def _workers_of_an_agent(state: CoreState, step: Step) -> int:
    """How many workers of a step an agent has that a fleet may ask for: the fewest of any group of its pool; where no
    group says, as many as the largest node has.
    """
    worker, settings = _worker_of(step), step.settings
    counts = [
        _fitting(worker, group.shape.slots, group.shape.memory_bytes or _MANY, group.shape.gpus)
        for fleet in state.fleets.values()
        for group in fleet.groups
        if not settings.compute or not group.pool or group.pool == settings.compute
    ]
    least = min((count for count in counts if count), default=0)
    if not least:
        nodes = ((node.slots, node.memory_bytes or _MANY, node.gpu_count) for node in state.nodes.values())
        least = max((_fitting(worker, *node) for node in nodes), default=0)
    bound = settings.max_concurrency_per_instance
    if bound is not None:
        least = bound if not settings.has_needs else min(bound, least)
    return max(1, least)


def _fitting(worker: Worker, slots: float, memory_bytes: int, gpus: float) -> int:
    """How many workers fit on what is offered."""
    counts = [math.floor(slots / worker.cpus + 1e-9)] if worker.cpus else []
    if worker.memory_bytes:
        counts.append(memory_bytes // worker.memory_bytes)
    if worker.gpus:
        counts.append(math.floor(gpus / worker.gpus + 1e-9))
    return max(0, min(counts, default=1))


class _Rights:
    """What projects may still have, in slots, while demands are added up: of the whole cluster, and of each pool for
    which their queues have limits.
    """

    def __init__(self, state: CoreState) -> None:
        self._left: dict[str, dict[str, float]] = {}
        held: dict[str, dict[str, float]] = {}
        for name, queue in state.queues.items():
            for pool, bounds in queue.settings.bounds():
                if bounds.limit < math.inf:
                    if pool not in held:
                        held[pool] = slots_held(state, pool)
                    self._left.setdefault(name, {})[pool] = bounds.limit - held[pool].get(name, 0.0)

    def workers(self, project: str, step: Step, wanted: int) -> int:
        """How many workers more a step may have, of those that it wants. They come off what its project has left."""
        left = self._left.get(project)
        if not left or not wanted:
            return wanted
        pools = [pool for pool in {WHOLE_CLUSTER, step.settings.compute} if pool in left]
        cost = _worker_of(step).cpus or 1.0
        count = min([wanted, *(max(0, math.floor(left[pool] / cost + 1e-9)) for pool in pools)])
        for pool in pools:
            left[pool] -= count * cost
        return count
