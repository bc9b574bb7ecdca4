"""Why a job is in its current state: a code and facts for each of its steps, made from the state that decides.

Nothing is stored for this. It asks the same questions as the scheduler (`scheduling.pick`, `pools.working_nodes`), in
the same order, and the first obstacle is the reason. `rpc.reason_words` puts it into words.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from windrow_master.core.admission import Admission, standing_of
from windrow_master.core.commands import ExplainJob, Moment
from windrow_master.core.gathering import gathers, needed, nodes_that_take_work
from windrow_master.core.gpus import IdleGpu, idle_gpus
from windrow_master.core.ids import NodeId, StepId
from windrow_master.core.leases import Lease
from windrow_master.core.lifetimes import TWICE, can_finish, left_s, wanted_s
from windrow_master.core.needs import Shortage, shortage
from windrow_master.core.plans import RESUMES_AT, must_wait
from windrow_master.core.pools import is_in_pool, working_nodes
from windrow_master.core.refused import Refused
from windrow_master.core.shares import ProjectShare, free_shortage, project_share
from windrow_master.core.state import CoreState, Job, Node, Step
from windrow_master.core.states import DONE_STEPS, ENDED_STEPS, AllocationState, JobState, NodeState, StepState

if TYPE_CHECKING:
    from windrow_master.core.allocations import Fleet, FleetGroup

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
    NOT_ADMITTED = "NOT_ADMITTED"
    """Its job is queued: nothing of it has begun."""
    WAITS_FOR_STEPS = "WAITS_FOR_STEPS"
    JOB_PAUSED = "JOB_PAUSED"
    MASTER_HELD = "MASTER_HELD"
    COMPARING_INPUTS = "COMPARING_INPUTS"
    VERIFYING_ROWS = "VERIFYING_ROWS"
    WAITS_FOR_PLANNER = "WAITS_FOR_PLANNER"
    DIVIDING_INPUT = "DIVIDING_INPUT"
    NO_NODE = "NO_NODE"
    NO_NODE_IN_POOL = "NO_NODE_IN_POOL"
    WAITS_FOR_AGENTS = "WAITS_FOR_AGENTS"
    """No node may work on it, and a fleet gets agents that may."""
    NODES_SET_ASIDE = "NODES_SET_ASIDE"
    """No node takes work."""
    NODES_TOO_SMALL = "NODES_TOO_SMALL"
    """No node has what a worker needs, even with no other worker."""
    NODES_END_TOO_SOON = "NODES_END_TOO_SOON"
    """No node lives long enough for a mini-batch (`lifetimes`)."""
    NODE_FAULT = "NODE_FAULT"
    RETRY_DELAYED = "RETRY_DELAYED"
    RATE_LIMITED = "RATE_LIMITED"
    NODES_DOUBTED = "NODES_DOUBTED"
    NODES_GAVE_UP = "NODES_GAVE_UP"
    NODES_ANSWER = "NODES_ANSWER"
    """Nodes are being notified of the step."""
    GATHERING_NODES = "GATHERING_NODES"
    """It begins on several nodes at once, and has not all of them yet."""
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


WAIT_FOR_A_NODE = frozenset(
    (
        Code.NO_NODE,
        Code.NO_NODE_IN_POOL,
        Code.NODES_SET_ASIDE,
        Code.NODES_TOO_SMALL,
        Code.NODES_END_TOO_SOON,
        Code.GATHERING_NODES,
    )
)
"""Codes of steps for which another node may be what they wait for."""


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


class FleetAsk(NamedTuple):
    """What a group of a fleet does for agents that may work on a step. `asked`, `starting`: its allocations that its
    engine has not started, and those whose agent has not joined yet. `engine_says`: why the engine has not started the
    one that waits longest; `why_not_more`: why the group has not more. `paused`: somebody has paused it; by whom.
    `silent_s`: since when its program has not been heard; inf if this master has never heard it.
    """

    fleet: str
    group: str
    provider: str
    asked: int = 0
    starting: int = 0
    engine_says: str = ""
    why_not_more: str = ""
    paused: bool = False
    paused_by: str = ""
    silent_s: float = 0.0


class Gathering(NamedTuple):
    """How far a step is that begins on `needed` nodes at once. `able`: nodes that may have its workers; `nodes`: those
    on which it holds a place, of which `ready` take its work. `held_s`: for how long it has held some and not all;
    `rests_s`: for how long it holds none; `is_behind`: another step gathers on these nodes first. `entitled`: how many
    workers it is entitled to; None if that is not what it lacks.
    """

    needed: int
    able: int
    nodes: int
    ready: int
    entitled: int | None
    held_s: float | None
    rests_s: float
    is_behind: bool


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
    gathering: Gathering | None = None
    """Of GATHERING_NODES."""
    admission: Admission | None = None
    """Of NOT_ADMITTED: what goes before its job."""
    fleets: tuple[FleetAsk, ...] = ()
    """Of a step for which there is no node: what fleets do that may get one."""
    pool: str = ""
    """The pool that the step names."""
    pools: tuple[str, ...] = ()
    """The pools of the connected nodes."""
    next_s: float | None = None
    """The next one may begin in this time; None if that is not known."""
    wanted_s: float = 0.0
    """Of NODES_END_TOO_SOON: how long a worker takes for its next mini-batch, nearly always."""
    ran_s: float = 0.0
    """Of NODES_END_TOO_SOON: how long the one that waits had run when the end of its node cut it off; 0.0 if that is
    not why."""
    rate_per_s: float = math.inf
    """The rate limit of the step."""
    rate_counts_items: bool = False
    splitting: int = 0
    """Mini-batches that are split, or wait for that: the items are looked for that fail."""
    at_work: tuple[AtWork, ...] = ()
    """What nodes report of the workers of a step whose mini-batches are leased, those nearest to a result first; empty
    before the first report.
    """
    idle_gpus: tuple[IdleGpu, ...] = ()
    """Workers that hold GPUs and do not use them: of this step; where it waits for GPUs, of all."""


def on_explain_job(state: CoreState, command: ExplainJob, now: Moment) -> list[Reason] | Refused:
    """Explain for each step of a job why it makes no progress, or how far it is."""
    key = state.job_keys.get(command.job_id)
    if key is None:
        return Refused("JOB_UNKNOWN", f"No job named {command.job_id!r} is running.")
    job = state.jobs[key]
    idle = idle_gpus(state, now)
    found = (_with_idle_gpus(_reason(state, job, step, now), step, idle) for step in job.steps)
    return [_with_fleets(state, reason, step, now) for reason, step in zip(found, job.steps, strict=True)]


def _with_fleets(state: CoreState, reason: Reason, step: Step, now: Moment) -> Reason:
    """The reason of a step, with what fleets do where it waits for a node."""
    if reason.code not in WAIT_FOR_A_NODE or not state.fleets:
        return reason
    compute = step.settings.compute
    asks = tuple(
        _ask(state, fleet, group, now)
        for _, fleet in sorted(state.fleets.items())
        for group in fleet.groups
        if not compute or not group.pool or group.pool == compute
    )
    if asks and reason.code in (Code.NO_NODE, Code.NO_NODE_IN_POOL):
        return reason._replace(code=Code.WAITS_FOR_AGENTS, fleets=asks, pool=compute)
    return reason._replace(fleets=asks)


def _ask(state: CoreState, fleet: Fleet, group: FleetGroup, now: Moment) -> FleetAsk:
    own = [one for one in state.allocations.values() if (one.fleet, one.group) == (fleet.name, group.name)]
    asked = [one for one in own if one.state != AllocationState.STARTED]
    heard_s = state.fleet_view.heard_s.get(fleet.name, -math.inf)
    return FleetAsk(
        fleet.name,
        group.name,
        group.provider,
        len(asked),
        sum(one.join_time is None for one in own) - len(asked),
        next((one.reason for one in asked if one.reason), ""),
        group.status.reason,
        fleet.paused,
        fleet.paused_by,
        now.monotonic_s - heard_s,
    )


def _with_idle_gpus(reason: Reason, step: Step, idle: Sequence[IdleGpu]) -> Reason:
    """The reason of a step, with the workers that hold GPUs without using them, as far as they concern it."""
    waits = step.settings.gpus_per_worker > 0 and reason.code in (Code.NODES_BUSY, Code.NODES_FULL, Code.PROJECT_LIMIT)
    found = tuple(one for one in idle if waits or one.step_id == step.step_id) if idle else ()
    return reason._replace(idle_gpus=found) if found else reason


def _reason(state: CoreState, job: Job, step: Step, now: Moment) -> Reason:
    name = step.settings.name
    if job.state == JobState.CANCELLING and step.workers.ending_on:
        return Reason(name, Code.CANCELLING, nodes=tuple(sorted(step.workers.ending_on)))
    if step.state in ENDED_STEPS:
        return reason_of_ended(name, step.state, step.message, job.message)
    if job.state == JobState.QUEUED and not step.settings.depends_on:
        return Reason(name, Code.NOT_ADMITTED, job_id=job.job_id, admission=standing_of(state, job))
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
        project = state.jobs[step.job_key].queue

        def sees(other: StepId) -> bool:
            """Whether a step is of the same project: who may ask about one sees the other."""
            found = state.steps.get(other)
            return found is not None and state.jobs[found.job_key].queue == project

        return Reason(
            name,
            Code.NODES_SET_ASIDE,
            message="" if sick is None else sick.fault_text(sees),
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
    if not step.ready.ready_count(now.monotonic_s) and not step.ready.long:
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
    if gathers(step):
        gathering = _gathering(step, chosen, now)
        return Reason(name, Code.GATHERING_NODES, queued=queued, gathering=gathering, share=project_share(state, step))
    names = tuple(node.node_id for node in chosen)
    if chosen and not any(can_finish(node, step, now) for node in chosen):
        last = max(chosen, key=lambda node: node.ends_s)
        is_long = step.ready.has_only_long
        return Reason(
            name,
            Code.NODES_END_TOO_SOON,
            nodes=(last.node_id,),
            queued=queued,
            next_s=left_s(last, now),
            wanted_s=max(wanted_s(last, step), step.ready.least_life_s if is_long else 0.0),
            ran_s=step.ready.least_life_s / TWICE if is_long else 0.0,
        )
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


def _gathering(step: Step, nodes: Iterable[Node], now: Moment) -> Gathering:
    known = step.gathering
    return Gathering(
        needed(step),
        known.able,
        known.nodes,
        nodes_that_take_work(step, nodes),
        known.entitled,
        None if known.since_s is None else now.monotonic_s - known.since_s,
        max(0.0, known.rests_until_s - now.monotonic_s),
        known.is_behind,
    )


def _counted(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(counts.most_common())
