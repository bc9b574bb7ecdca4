"""Why a job is in its current state: a code and facts for each of its steps, made from the state that decides.

Nothing is stored for this. It asks the same questions as the scheduler (`scheduling.pick`, `pools.working_nodes`), in
the same order, and the first obstacle is the reason. `rpc.reason_words` puts it into words.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from windrow_master.core.commands import ExplainJob, Moment
from windrow_master.core.ids import NodeId
from windrow_master.core.leases import Lease
from windrow_master.core.needs import Shortage, shortage
from windrow_master.core.plans import RESUMES_AT, must_wait
from windrow_master.core.pools import is_in_pool, working_nodes
from windrow_master.core.refused import Refused
from windrow_master.core.shares import ProjectShare, free_shortage, project_share
from windrow_master.core.state import CoreState, Job, Node, Step
from windrow_master.core.states import DONE_STEPS, ENDED_STEPS, JobState, NodeState, StepState

QUIET_S = 60.0
"""A running step without any result for longer is reported as making no progress."""


class Code(StrEnum):
    """Reason codes, for programs. They are never renamed. The code of an ended step is the name of its state.

    Not the `Code` of a dry run, which describes a code folder.
    """

    COMPLETED = "COMPLETED"
    SKIPPED = "SKIPPED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    CANCELLING = "CANCELLING"
    """It is cancelled, and nodes still end its workers."""
    WAITS_FOR_STEPS = "WAITS_FOR_STEPS"
    JOB_PAUSED = "JOB_PAUSED"
    MASTER_HELD = "MASTER_HELD"
    COMPARING_INPUTS = "COMPARING_INPUTS"
    VERIFYING_ROWS = "VERIFYING_ROWS"
    WAITS_FOR_PLANNER = "WAITS_FOR_PLANNER"
    DIVIDING_INPUT = "DIVIDING_INPUT"
    NO_NODE = "NO_NODE"
    NO_NODE_IN_POOL = "NO_NODE_IN_POOL"
    NODES_SET_ASIDE = "NODES_SET_ASIDE"
    """No node takes work."""
    NODES_TOO_SMALL = "NODES_TOO_SMALL"
    """No node has what a worker needs, even with no other worker."""
    NODE_FAULT = "NODE_FAULT"
    RETRY_DELAYED = "RETRY_DELAYED"
    RATE_LIMITED = "RATE_LIMITED"
    NODES_DOUBTED = "NODES_DOUBTED"
    NODES_GAVE_UP = "NODES_GAVE_UP"
    NODES_ANSWER = "NODES_ANSWER"
    """Nodes are being notified of the step."""
    NODES_FULL = "NODES_FULL"
    NODES_BUSY = "NODES_BUSY"
    PROJECT_LIMIT = "PROJECT_LIMIT"
    """Its project has as much as it may have."""
    BUILDING_ENVIRONMENT = "BUILDING_ENVIRONMENT"
    """Nodes build its environment, and take no work of it meanwhile. Only their reports tell: the core sees nodes that
    want no lease."""
    WORKERS_STARTING = "WORKERS_STARTING"
    RUNNING = "RUNNING"
    NO_PROGRESS = "NO_PROGRESS"
    ENDING_WORKERS = "ENDING_WORKERS"
    """All mini-batches are done; nodes end its workers before the output is made."""
    GATHERING_ROWS = "GATHERING_ROWS"


class OldestLease(NamedTuple):
    """Of the live leases, the one that was given first."""

    mini_batch: int
    node_id: str
    for_s: float
    attempt: int


class Doubt(NamedTuple):
    """A node that gets little or no work of a step because of its standing."""

    node_id: str
    failures: int
    """Mini-batches that failed there in a row."""
    aside: str = ""
    """Why it is set aside; empty if it is only held back."""


class AtWork(NamedTuple):
    """Workers that do the same."""

    phase: str
    """`starting`, `init`, `loading`, `running`, `returning` or `stopping`, as in a heartbeat."""
    workers: int
    for_s: float
    """The longest of them."""


class Reason(NamedTuple):
    """The reason for one step. Fields that its code does not use are empty."""

    step: str
    code: Code
    message: str = ""
    """What the job, the step, the node or the worker in question says."""
    job_id: str = ""
    nodes: tuple[str, ...] = ()
    """Nodes in question."""
    counts: tuple[tuple[str, int], ...] = ()
    """Most first: leases by node; of NODES_BUSY, workers or leases by the step that has them; of NODES_SET_ASIDE, nodes
    by their state."""
    steps: tuple[tuple[str, StepState], ...] = ()
    """Steps in question, with their states."""
    leased: int = 0
    queued: int = 0
    planned: int = 0
    divided: bool = True
    """Whether the input is divided to its end."""
    dividing_waits: bool = False
    """Its input is not divided further now, since enough mini-batches are ready."""
    for_s: float = 0.0
    """How long it stands like this."""
    limit_s: float | None = None
    """The step fails after this time; never if None."""
    oldest: OldestLease | None = None
    doubts: tuple[Doubt, ...] = ()
    given_up: tuple[str, ...] = ()
    """Nodes on which no worker could be made ready."""
    short: Shortage | None = None
    """Of NODES_TOO_SMALL: what no node has. Of others: what no node has free."""
    share: ProjectShare | None = None
    """Where its project stands, if others have the slots."""
    pool: str = ""
    """The pool that the step names."""
    pools: tuple[str, ...] = ()
    """The pools of the connected nodes."""
    next_s: float | None = None
    """The next one may begin in this time; None if that is not known."""
    rate_per_s: float = math.inf
    """The rate limit of the step."""
    rate_counts_items: bool = False
    splitting: int = 0
    """Mini-batches that are split, or wait for that: the items are looked for that fail."""
    at_work: tuple[AtWork, ...] = ()
    """What nodes report of the workers of a step whose mini-batches are leased, those nearest to a result first; empty
    before the first report.
    """


def on_explain_job(state: CoreState, command: ExplainJob, now: Moment) -> list[Reason] | Refused:
    """Explain for each step of a job why it makes no progress, or how far it is."""
    key = state.job_keys.get(command.job_id)
    if key is None:
        return Refused("JOB_UNKNOWN", f"No job named {command.job_id!r} is running.")
    job = state.jobs[key]
    return [_reason(state, job, step, now) for step in job.steps]


def _reason(state: CoreState, job: Job, step: Step, now: Moment) -> Reason:
    name = step.settings.name
    if job.state == JobState.CANCELLING and step.workers.ending_on:
        return Reason(name, Code.CANCELLING, nodes=tuple(sorted(step.workers.ending_on)))
    if step.state in ENDED_STEPS:
        return reason_of_ended(name, step.state, step.message, job.message)
    if step.state == StepState.WAITING:
        return _waiting(job, step)
    if step.state == StepState.CONCATENATING:
        if step.workers.ending_on:
            return Reason(name, Code.ENDING_WORKERS, nodes=tuple(sorted(step.workers.ending_on)))
        return Reason(name, Code.GATHERING_ROWS, step.message)
    if job.state == JobState.PAUSED:
        return Reason(name, Code.JOB_PAUSED, job.message, job.job_id)
    if state.held:
        return Reason(name, Code.MASTER_HELD)
    if step.counters.leased:
        return _running(state, step, now)
    if step.is_read_first:
        code = Code.COMPARING_INPUTS if step.settings.reuse else Code.VERIFYING_ROWS
        return Reason(name, code, for_s=now.monotonic_s - step.progress.started_s)
    if nowhere := _nowhere(state, step):
        return nowhere
    if step.counters.queued and step.settings.has_needs:
        chosen = [node for node in _serving(state.nodes.values()) if is_in_pool(node, step)]
        if short := shortage(chosen, step):
            names = tuple(node.node_id for node in chosen)
            return Reason(name, Code.NODES_TOO_SMALL, nodes=names, queued=step.counters.queued, short=short)
    if not step.counters.queued and not step.plan.is_done:
        if step.progress.waits_for_planner:
            return Reason(name, Code.WAITS_FOR_PLANNER, planned=step.counters.planned)
        return Reason(
            name,
            Code.DIVIDING_INPUT,
            planned=step.counters.planned,
            for_s=now.monotonic_s - step.progress.started_s,
            limit_s=step.settings.first_task_creation_timeout_s,
        )
    return _unleased(state, step, now)


def reason_of_ended(step: str, state: StepState, message: str, job_message: str) -> Reason:
    """The reason for a step that has ended, from its own message or, if another step ended it, from the job's."""
    return Reason(step, Code[state.name], message or ("" if state in DONE_STEPS else job_message))


def _waiting(job: Job, step: Step) -> Reason:
    open_ = tuple(
        (other.settings.name, other.state)
        for other in job.steps
        if other.settings.name in step.settings.depends_on and other.state not in DONE_STEPS
    )
    return Reason(step.settings.name, Code.WAITS_FOR_STEPS, steps=open_)


def _running(state: CoreState, step: Step, now: Moment) -> Reason:
    leases = [state.leases[lease_id] for lease_id in step.lease_ids]
    silence_s = now.monotonic_s - step.progress.last_s
    if not step.workers.is_ready and not step.counters.ran:
        code = Code.WORKERS_STARTING
    else:
        code = Code.NO_PROGRESS if silence_s > QUIET_S else Code.RUNNING
    return Reason(
        step.settings.name,
        code,
        counts=_counted(Counter(lease.node_id for lease in leases)),
        leased=step.counters.leased,
        queued=step.counters.queued,
        divided=step.plan.is_done,
        dividing_waits=not step.plan.is_done and must_wait(state, step, RESUMES_AT),
        for_s=silence_s,
        limit_s=step.settings.progress_update_timeout_s,
        oldest=_oldest(leases, now),
        doubts=_doubts(state, step),
        given_up=_given_up(state, step),
        rate_per_s=step.settings.rate_per_s,
        rate_counts_items=step.settings.rate_counts_items,
        splitting=len(step.splits.running) + len(step.splits.waiting),
    )


def _oldest(leases: Iterable[Lease], now: Moment) -> OldestLease:
    lease = min(leases, key=lambda lease: lease.granted_s)
    return OldestLease(lease.mini_batch, lease.node_id, now.monotonic_s - lease.granted_s, lease.attempt)


def _doubts(state: CoreState, step: Step) -> tuple[Doubt, ...]:
    """Nodes that get little or no work of a step."""
    found = []
    for node_id in sorted(step.nodes.doubted):
        node, standing = state.nodes.get(node_id), step.nodes.standings[node_id]
        if node is not None and (step.step_id in node.aside_for or standing.doubted_s is not None):
            found.append(Doubt(node_id, len(standing.evidence), node.aside_for.get(step.step_id, "")))
    return tuple(found)


def _given_up(state: CoreState, step: Step) -> tuple[str, ...]:
    return tuple(sorted(node.node_id for node in state.nodes.values() if step.step_id in node.given_up))


def _nowhere(state: CoreState, step: Step) -> Reason | None:
    """The reason if no node takes work of the step."""
    name = step.settings.name
    nodes = [*state.nodes.values(), *state.absent.values()]
    if not nodes:
        return Reason(name, Code.NO_NODE)
    pool = [node for node in nodes if is_in_pool(node, step)]
    if not pool:
        there = tuple(sorted({name for node in nodes for name in node.pools}))
        return Reason(name, Code.NO_NODE_IN_POOL, pool=step.settings.compute, pools=there)
    if not _serving(pool):
        states = Counter("cordoned" if node.cordoned else node.state.name.lower() for node in pool)
        sick = next((node for node in pool if node.state == NodeState.QUARANTINED and node.message), None)
        return Reason(
            name,
            Code.NODES_SET_ASIDE,
            message="" if sick is None else sick.message,
            nodes=() if sick is None else (sick.node_id,),
            counts=tuple(sorted(states.items())),
        )
    return None


def _serving(nodes: Iterable[Node]) -> list[Node]:
    return [node for node in nodes if node.serves]


def _by_name(nodes: Iterable[Node]) -> dict[NodeId, Node]:
    return {node.node_id: node for node in nodes}


def _unleased(state: CoreState, step: Step, now: Moment) -> Reason:
    """The reason if mini-batches wait and none is leased: what keeps the scheduler from leasing them."""
    name, queued = step.settings.name, step.counters.queued
    if step.progress.fault_message:
        limit_s = step.settings.progress_update_timeout_s
        return Reason(name, Code.NODE_FAULT, step.progress.fault_message, queued=queued, limit_s=limit_s)
    if not step.ready.ready_count(now.monotonic_s):
        due_s = step.ready.delayed[0][0]
        next_s = None if math.isinf(due_s) else due_s - now.monotonic_s
        return Reason(name, Code.RETRY_DELAYED, queued=queued, next_s=next_s)
    if step.pace.due_s > now.monotonic_s:
        return Reason(
            name,
            Code.RATE_LIMITED,
            queued=queued,
            next_s=step.pace.due_s - now.monotonic_s,
            rate_per_s=step.settings.rate_per_s,
            rate_counts_items=step.settings.rate_counts_items,
        )
    doubts, given_up = _doubts(state, step), _given_up(state, step)
    if doubts or given_up:
        chosen = working_nodes(state, step, _by_name(_serving(state.nodes.values())))
        if not doubts and chosen and all(step.step_id in node.given_up for node in chosen):
            return Reason(name, Code.NODES_GAVE_UP, step.counters.main_failure(), queued=queued, given_up=given_up)
        return Reason(name, Code.NODES_DOUBTED, queued=queued, doubts=doubts, given_up=given_up)
    chosen = working_nodes(state, step, _by_name(_serving(state.nodes.values())))
    names = tuple(node.node_id for node in chosen)
    having = [node for node in chosen if step.step_id in node.shares]
    if any(step.step_id not in node.capacity for node in having) or not chosen:
        return Reason(name, Code.NODES_ANSWER, nodes=names, queued=queued)
    share = project_share(state, step)
    if not having and share.limit is not None:
        return Reason(name, Code.PROJECT_LIMIT, queued=queued, share=share)
    # Other steps have the slots: they have them as their share, or still run what they hold there.
    others: Counter[str] = Counter()
    for node in chosen:
        for step_id in node.shares.keys() | node.held.keys():
            other = state.steps.get(step_id)
            count = node.held.get(step_id, 0) if having else node.shares.get(step_id, 0)
            if count and other is not None and other is not step:
                others[f"{state.jobs[other.job_key].job_id}/{other.settings.name}"] += count
    code = Code.NODES_BUSY if others else Code.NODES_FULL
    return Reason(
        name, code, nodes=names, counts=_counted(others), queued=queued, short=free_shortage(state, step), share=share
    )


def _counted(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(counts.most_common())
