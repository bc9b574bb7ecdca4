"""The state of the core. Handlers (the other files of this folder) change it; nobody outside does."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

from windrow.common.device_packing import DEVICES_MAX
from windrow.common.queue_settings import QueueSettings

from windrow_master.core.causes import Budget
from windrow_master.core.commands import CutShort, IdleWorker, Moment
from windrow_master.core.counters import Counters
from windrow_master.core.effects import Effect, NotifyJob, RecallLeases
from windrow_master.core.event_allowances import EventAllowances
from windrow_master.core.ids import (
    DEFAULT_PROJECT,
    LEASE_ID_MAX,
    LEASE_PREFIX_SHIFT,
    JobKey,
    LeaseId,
    NodeId,
    StepId,
    step_identity,
)
from windrow_master.core.leases import Lease
from windrow_master.core.ledger import Entry, count_attempt, kind_of
from windrow_master.core.mini_batches import MiniBatches, Tries
from windrow_master.core.pace import Pace
from windrow_master.core.ready import ReadyQueue
from windrow_master.core.records import (
    AttemptRow,
    Dirty,
    EventRow,
    JobRow,
    NodeRow,
    QueueRow,
    StepRow,
)
from windrow_master.core.settings import StepSettings, Timing
from windrow_master.core.sharing.entitlements import Entitlements, Owed
from windrow_master.core.sharing.placing import Layout
from windrow_master.core.standing import Past, Standing
from windrow_master.core.states import ENDED_JOBS, AttemptState, Cause, JobState, NodeState, StepState
from windrow_master.core.step_parts import StepGathering, StepNodes, StepPlan, StepProgress, StepSplits, StepWorkers
from windrow_master.core.transitions import ATTEMPT, JOB, NODE, STEP, InvariantBroken
from windrow_master.limits import Limits

if TYPE_CHECKING:
    from windrow_master.core.allocations import Allocation, Fleet
    from windrow_master.core.data_places import DataPlaces
    from windrow_master.core.outlook import Outlook


@dataclass(slots=True, eq=False)
class Step:
    """One step of a job. `row()` is its stored form. Arrays are dropped when the step has ended.

    Not the agent's `Step`, which is one node's part of it, nor the client's, which is a copy of one moment.
    """

    step_id: StepId
    job_key: JobKey
    ordinal: int
    settings: StepSettings
    state: StepState = StepState.WAITING
    message: str = ""
    error_category: str = ""
    start_time: float | None = None
    end_time: float | None = None
    paths: bytes = b"{}"
    header: bytes | None = None
    counters: Counters = field(default_factory=Counters)
    plan: StepPlan = field(default_factory=StepPlan)
    mini_batches: MiniBatches = field(default_factory=MiniBatches)
    ready: ReadyQueue = field(default_factory=ReadyQueue)
    lease_ids: set[LeaseId] = field(default_factory=set)
    progress: StepProgress = field(default_factory=StepProgress)
    workers: StepWorkers = field(default_factory=StepWorkers)
    nodes: StepNodes = field(default_factory=StepNodes)
    gathering: StepGathering = field(default_factory=StepGathering)
    splits: StepSplits = field(default_factory=StepSplits)
    pace: Pace = field(default_factory=Pace)
    second_attempts: dict[int, int] = field(default_factory=dict)
    """How often mini-batches that are leased were begun once more (`speculation`). Volatile."""
    known_identity: tuple[int, bytes, int] | None = None
    """The generation and document for which `CoreState.identity_of` was computed last, and the answer. Volatile."""

    def become(self, after: StepState) -> None:
        """Change the step's state. Raises IllegalTransition."""
        STEP.check(self.state, after)
        self.state = after

    @property
    def is_read_first(self) -> bool:
        """Whether its inputs are compared with those of earlier jobs, or verified, before the step begins."""
        unplanned = self.state == StepState.RUNNING and self.plan.checkpoint is None
        return (self.settings.reuse or self.settings.reads_outputs) and unplanned and not self.progress.begun

    def row(self) -> StepRow:
        """Return the stored form."""
        return StepRow(
            step_id=self.step_id,
            job_key=self.job_key,
            ordinal=self.ordinal,
            name=self.settings.name,
            state=self.state,
            message=self.message,
            paths=self.paths,
            reader=self.plan.reader,
            checkpoint=self.plan.checkpoint,
            counters=self.counters.to_json(),
            header=self.header,
            start_time=self.start_time,
            end_time=self.end_time,
            error_category=self.error_category,
        )

    def tries_of(self, mini_batch: int) -> Tries:
        """The record of a mini-batch's trouble; makes one if there is none."""
        tries = self.mini_batches.tries.get(mini_batch)
        if tries is None:
            tries = self.mini_batches.tries[mini_batch] = Tries()
        return tries

    def standing_of(self, node_id: NodeId) -> Standing:
        """The standing of a node with this step; makes one if there is none."""
        standing = self.nodes.standings.get(node_id)
        if standing is None:
            standing = self.nodes.standings[node_id] = Standing()
        return standing

    def demand(self, now_s: float) -> int:
        """How many workers it could use now: its mini-batches that are ready or running."""
        return self.ready.ready_count(now_s) + self.counters.leased

    def past_of(self, mini_batch: int) -> Past:
        """Where a mini-batch has failed."""
        tries = self.mini_batches.tries.get(mini_batch)
        return Past(()) if tries is None else Past(tuple(tries.nodes), tries.failures[Budget.OOMS] > 0)


@dataclass(slots=True, eq=False)
class Job:
    """One job. Not the client's `Job`, which is a copy of one moment."""

    job_key: JobKey
    job_id: str
    request_id: str
    run_digest: str
    document: bytes
    steps: list[Step]
    state: JobState = JobState.QUEUED
    generation: int = 1
    seq: int = 1
    queue: str = DEFAULT_PROJECT
    """The name of its project."""
    priority: int = 0
    weight: int = 1
    continue_on_step_failure: bool = False
    message: str = ""
    warnings: list[str] = field(default_factory=list)
    create_time: float = 0.0
    end_time: float | None = None
    submitter: str = ""
    """Name of the client token that submitted it; empty where none was asked for."""
    deadline: float | None = None
    """When it should have ended (seconds since 1970)."""
    forget_s: float = 0.0
    """Monotonic: until when it stays in memory once it has ended."""
    ledger: dict[tuple[int, str, frozenset[str]], Entry] = field(default_factory=dict)
    """By day, project and pools (`ledger`)."""

    def become(self, after: JobState) -> None:
        """Change the job's state. Raises IllegalTransition."""
        JOB.check(self.state, after)
        self.state = after

    def row(self) -> JobRow:
        """Return the stored form."""
        return JobRow(
            job_key=self.job_key,
            job_id=self.job_id,
            request_id=self.request_id,
            state=self.state,
            generation=self.generation,
            seq=self.seq,
            queue=self.queue,
            priority=self.priority,
            weight=self.weight,
            run_digest=self.run_digest,
            document=self.document,
            message=self.message,
            warnings=json.dumps(self.warnings).encode(),
            create_time=self.create_time,
            end_time=self.end_time,
            submitter=self.submitter,
            deadline=self.deadline,
        )


class Queue(NamedTuple):
    """The queue of a project that an operator has set (`queues`). `revision`: that of the change that set it last; by
    whom (the name of a token) and when (seconds since 1970, for people).
    """

    name: str
    settings: QueueSettings
    revision: int
    change_time: float
    changed_by: str

    def row(self) -> QueueRow:
        """Return the stored form."""
        return QueueRow(self.name, self.settings.to_json().encode(), self.revision, self.change_time, self.changed_by)


@dataclass(slots=True, eq=False)
class Group:
    """How the nodes that are in the same pools are shared out (`shares`)."""

    nodes: list[Node] = field(default_factory=list)
    slots: int = 0
    """Of all of them."""
    is_wide: bool = False
    """Memory and GPUs are counted, too: a step needs some."""
    capacity: tuple[float, ...] = ()
    """What the nodes in `layout` have together, of each resource that is counted."""
    most: dict[object, tuple[int, int]] = field(default_factory=dict)
    """How many workers fit on these nodes, and how many of them a step may have; by what one needs, and how many one
    node may have.
    """
    is_placed: bool = False
    """`layout` has these nodes."""
    layout: Layout = field(default_factory=Layout)
    owed: Owed = field(default_factory=Owed)
    last: Entitlements | None = None
    """The last decision."""


@dataclass(slots=True, eq=False)
class Shares:
    """How the cluster is shared out (`shares`). Volatile."""

    groups: dict[frozenset[str], Group] = field(default_factory=dict)
    """By the pools of their nodes."""
    streams: list[int] = field(default_factory=list)
    """Of the nodes in `groups`. A node that stays on its stream has the slots and pools that it had."""
    there: object = None
    """The steps and nodes of the last decision; None: the next one must not wait."""
    decided_s: float = -math.inf
    due_s: float = math.inf
    """When the next decision may differ, though no command comes (monotonic)."""
    awaited: set[NodeId] = field(default_factory=set)
    """The nodes that steps count on that gather more than there are (`gathering`)."""


class Charge(NamedTuple):
    """An attempt that counted against its mini-batch since its node was lost. `kind`: as `Counters.kinds` has it."""

    step_id: StepId
    mini_batch: int
    lease_id: LeaseId
    generation: int
    kind: str


@dataclass(slots=True, eq=False)
class FleetView:
    """What this master knows of fleets beside their rows. Volatile."""

    heard_s: dict[str, float] = field(default_factory=dict)
    """When a fleet's program was heard last (monotonic), by fleet."""
    outlook: Outlook | None = None
    """What the steps need, as of `outlook_s` (monotonic): it is not computed anew for each fleet that asks."""
    outlook_s: float = -math.inf
    charged: dict[str, list[Charge]] = field(default_factory=dict)
    """By allocation, what was charged for the loss of its node before the engine said what became of it."""


LOST_SECRETS_KEPT = 10_000
TOLD_STEPS_KEPT = 1_000
"""Steps that are gone and a node may still be noted to know of."""


_ASIDE = "Set aside for a step of another project."


@dataclass(slots=True, eq=False)
class Node:
    """One node, in its present incarnation.

    Not the client's `Node`, which is a copy of one moment, nor a node of a YAML tree (`windrow.spec.reading`).
    """

    node_id: NodeId
    node_incarnation: str
    state: NodeState = NodeState.DISCONNECTED
    message: str = ""
    resources: bytes = b"{}"
    labels: bytes = b"{}"
    pools: frozenset[str] = frozenset()
    """It works on steps that name one of these, or none; empty: on any. From its label `pool`."""
    register_time: float = 0.0
    secret_digest: str = ""
    """sha256 of the secret that its agent proves itself by; empty if it brought none."""
    expires_s: float = 0.0
    """Monotonic: when it counts as lost unless it is heard of."""
    beat_due_s: float = 0.0
    """Monotonic: when its next sign of life is due."""
    stream: int = 0
    """The Work stream that is open; 0 if there is none."""
    cordoned: bool = False
    """It gets nothing new, whatever its state. A property of the name: the next incarnation inherits it."""
    draining: bool = False
    """It says that it leaves."""
    seen: bool = True
    """False: known from an earlier master, not heard of yet."""
    has_reported: bool = True
    """False: known from an earlier master, has not said yet what it holds."""
    capacity: dict[StepId, int] = field(default_factory=dict)
    given_up: set[StepId] = field(default_factory=set)
    """Steps for which it no longer starts workers; reported by its stream, like its capacity."""
    workers: dict[StepId, int] = field(default_factory=dict)
    """Those that it reports for each step; changed by `ledger` alone."""
    noted_s: float = 0.0
    """When what they lived was counted last (monotonic)."""
    held: dict[StepId, int] = field(default_factory=dict)
    offered: set[StepId] = field(default_factory=set)
    told_steps: set[StepId] = field(default_factory=set)
    """Steps that it was ever offered, as far as this master knows: it may fetch their code, and send their logs."""
    ready_steps: set[StepId] = field(default_factory=set)
    """Steps of which a worker has got through `init()` on the node, as reported by heartbeats."""
    lease_ids: set[LeaseId] = field(default_factory=set)
    claims: dict[LeaseId, tuple[StepId, int]] = field(default_factory=dict)
    """Leases it named when its stream began, or that were taken from it: what a late completion is of."""
    faults: int = 0
    """Attempts in a row that failed by a fault of the node itself."""
    last_fault: tuple[StepId, str] | None = None
    """While it is quarantined: the step of the last of them, and what that said, which may name files of its job."""
    aside_for: dict[StepId, str] = field(default_factory=dict)
    """Steps for which it is set aside, each with the reason, for people."""
    recalled_s: dict[StepId, float] = field(default_factory=dict)
    """When it was asked for leases of a step last and has not given any back since (monotonic)."""
    quarantined_until_s: float = 0.0
    digests: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))
    """The master's and the agent's view of the leases held, at the last heartbeat: (count, exclusive or)."""
    digest_mismatches: int = 0
    slots: int = 1
    """The workers that it runs at a time; from its resources."""
    memory_bytes: int = 0
    """The memory that its workers may use; 0 if it has not reported it."""
    gpu_count: int = 0
    allocation: str = ""
    """The allocation of a fleet that it runs in, by its agent's account; empty: in none."""
    ends_s: float = math.inf
    """Monotonic: when the engine ends it that it comes from; inf if its agent knows of no end (`lifetimes`)."""
    idle_gpus: tuple[IdleWorker, ...] = ()
    """Workers that do not use the GPUs that they hold, as of the last heartbeat (`gpus`)."""
    idle_gpus_heard_s: float = 0.0
    gave_gpus_back_s: dict[StepId, float] = field(default_factory=dict)
    """When it last lost places of a step whose workers did not use their GPUs (monotonic)."""
    shares: dict[StepId, int] = field(default_factory=dict)
    """How many workers each step should have there (`shares`)."""
    shares_since: dict[StepId, float] = field(default_factory=dict)
    """When a step got its last one there (monotonic)."""
    shares_told: dict[StepId, int] | None = None
    """What its agent was told on this stream; None: nothing yet."""

    def become(self, after: NodeState) -> None:
        """Change the node's state. Raises IllegalTransition."""
        if after != self.state:
            NODE.check(self.state, after)
            self.state = after

    def has(self, resources: bytes) -> None:
        """Note what the node offers."""
        self.resources = resources
        offered = json.loads(resources or b"{}")
        self.slots = max(1, int(offered.get("slots", 1)))
        self.memory_bytes = int(offered.get("memoryBytes", 0))
        self.has_gpus(int(offered.get("gpuCount", 0)))

    def has_gpus(self, count: int) -> bool:
        """Note how many GPUs can be used there; return whether that has changed. More than a step can ask for count for
        nothing: they would only cost the master memory.
        """
        before, self.gpu_count = self.gpu_count, min(count, DEVICES_MAX)
        return self.gpu_count != before

    @property
    def serves(self) -> bool:
        """Whether it may be handed leases: it is ready and connected, and nobody has cordoned it."""
        return self.state == NodeState.READY and bool(self.stream) and not self.cordoned

    def note_told(self, step_id: StepId, known: Collection[StepId]) -> None:
        """Note that the node knows of a step. `known`: the steps that the state has; others are dropped at times."""
        self.told_steps.add(step_id)
        if len(self.told_steps) > 2 * len(known) + TOLD_STEPS_KEPT:
            self.told_steps.intersection_update(known)

    def status_text(self, sees: Callable[[StepId], bool]) -> str:
        """Why the node is in its state, and why it is set aside for steps; for people. `sees`: whether they see the job
        of a step. Of other jobs, they get no word.
        """
        asides = [text if sees(step_id) else _ASIDE for step_id, text in self.aside_for.items()]
        return " ".join((self.fault_text(sees), *dict.fromkeys(asides))).strip()

    def fault_text(self, sees: Callable[[StepId], bool]) -> str:
        """Why the node is in its state. `sees`: as of `status_text`."""
        if self.last_fault is None or not sees(self.last_fault[0]):
            return self.message
        return f"{self.message} The last: {self.last_fault[1].rstrip('.')}."

    def row(self) -> NodeRow:
        """Return the stored form."""
        return NodeRow(
            node_id=self.node_id,
            node_incarnation=self.node_incarnation,
            state=self.state,
            message=self.message,
            resources=self.resources,
            labels=self.labels,
            register_time=self.register_time,
            cordoned=int(self.cordoned),
            secret_digest=self.secret_digest,
        )


class Contained:
    """A context that keeps what is raised in it at a step (`CoreState.contained`). There are hundreds for each group of
    commands, so it is no generator.
    """

    __slots__ = ("_raised", "_step_id")

    def __init__(self, raised: dict[StepId, Exception], step_id: StepId) -> None:
        self._raised, self._step_id = raised, step_id

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self._raised.setdefault(self._step_id, error)
        return True


@dataclass(slots=True, eq=False)
class CoreState:
    """All that the core knows.

    Invariants:
    1. `leases`, the steps' and the nodes' `lease_ids` and `held` name the same leases.
    2. A lease's mini-batch is LEASED, and no two leases name one mini-batch, unless they are rivals (`speculation`).
    3. Lease ids are never given twice: the prefix belongs to this incarnation, the rest is counted.
    4. A name is in `nodes` or in `absent`, never in both; those in `absent` are LOST and cordoned.
    """

    incarnation: int
    lease_prefix: int
    timing: Timing = field(default_factory=Timing)
    limits: Limits = field(default_factory=Limits)
    lease_prefixes: frozenset[int] = frozenset()
    """Those of all earlier incarnations that this state knows."""
    jobs: dict[JobKey, Job] = field(default_factory=dict)
    """Jobs that have not ended, and those that ended under this master, for a while (`Job.forget_s`)."""
    job_keys: dict[str, JobKey] = field(default_factory=dict)
    steps: dict[StepId, Step] = field(default_factory=dict)
    """Steps of those jobs."""
    nodes: dict[NodeId, Node] = field(default_factory=dict)
    absent: dict[NodeId, Node] = field(default_factory=dict)
    """Nodes that are gone while their names are cordoned, in their last incarnation."""
    lost_secrets: dict[NodeId, str] = field(default_factory=dict)
    """Digests of the secrets of nodes that were lost under this master: they may come back, also when the token that
    admitted them has ended. The last LOST_SECRETS_KEPT."""
    data_places: DataPlaces | None = None
    """Which nodes have read which data last; None: none has kept any, under this master."""
    node_events: EventAllowances = field(default_factory=EventAllowances)
    update_events: EventAllowances = field(default_factory=lambda: EventAllowances("this job"))
    queues: dict[str, Queue] = field(default_factory=dict)
    """Those that an operator has set, by the name of their project (`queues`)."""
    queue_revision: int = 0
    """The number of the last change of queues."""
    fleets: dict[str, Fleet] = field(default_factory=dict)
    allocations: dict[str, Allocation] = field(default_factory=dict)
    """Those that have not ended, by name, in the order in which they began."""
    ended_allocations: dict[str, Allocation] = field(default_factory=dict)
    """Those that have ended, and are not forgotten yet, in the order in which they ended."""
    fleet_view: FleetView = field(default_factory=FleetView)
    leases: dict[LeaseId, Lease] = field(default_factory=dict)
    adopted: set[int] = field(default_factory=set)
    """Leases of earlier masters that this one has taken up, or that were given back: each runs at most once, since it
    is the key of its attempt."""
    unstored: deque[LeaseId] = field(default_factory=deque)
    """Leases without an attempt row, oldest first (some may be gone already)."""
    job_key_last: int = 0
    step_id_last: int = 0
    lease_count: int = 0
    held: bool = False
    """Until BeginWork, no lease is handed out, and no step of an earlier master is taken up (embedded mode): a command
    that is refused has run nothing, and a failure is reported to somebody."""
    unprepared: set[StepId] = field(default_factory=set)
    """Steps that wait for BeginWork to be taken up."""
    settle_until_s: float = 0.0
    tick_s: float | None = None
    heard_s: float = 0.0
    """When a node was heard of last (monotonic)."""
    dirty: Dirty = field(default_factory=Dirty)
    dirty_jobs: set[JobKey] = field(default_factory=set)
    taken_jobs: set[JobKey] = field(default_factory=set)
    """Those of the rows that were taken last: their commit may be under way."""
    dirty_steps: set[StepId] = field(default_factory=set)
    dirty_nodes: set[NodeId] = field(default_factory=set)
    dirty_fleets: set[str] = field(default_factory=set)
    dirty_allocations: set[str] = field(default_factory=set)
    dirty_entries: set[Entry] = field(default_factory=set)
    """Of the ledger."""
    effects: list[Effect] = field(default_factory=list)
    raised: dict[StepId, Exception] = field(default_factory=dict)
    """What the current command raised at steps, for `Core.handle` to report (`contained`)."""
    scheduling_wanted: bool = False
    shares: Shares = field(default_factory=Shares)
    queued: set[JobKey] = field(default_factory=set)
    """Jobs that wait to be admitted, and perhaps others: `admission` drops these when it meets them."""
    admission_wanted: bool = False
    """A job has come, begun, ended or changed, or a queue has: others may be admitted."""
    admission_due_s: float = math.inf
    """When others may be admitted, though nothing changes (monotonic)."""
    admission_next: JobKey | None = None
    """The queued job that is looked at first in the next round; None: that which is next in line."""
    admission_looked_s: float = -math.inf
    """When it was computed last which queued jobs would get a worker (monotonic)."""
    admitted_s: float = -math.inf
    """When it was looked at last which jobs may be admitted (monotonic)."""
    picked_s: float = -math.inf
    """When leases were last handed out, or might have been."""

    def contained(self, step: Step) -> Contained:
        """Contain what is raised at one step, so that the others continue. The step's job is paused at the end of the
        command.
        """
        return Contained(self.raised, step.step_id)

    def take_raised(self) -> dict[StepId, Exception]:
        """Return what `contained` has caught since the last call."""
        raised, self.raised = self.raised, {}
        return raised

    def next_lease_ids(self, count: int) -> Sequence[LeaseId]:
        """Lease ids that were never given before."""
        first = (self.lease_prefix << LEASE_PREFIX_SHIFT | self.lease_count) + 1
        self.lease_count += count
        return cast("Sequence[LeaseId]", range(first, first + count))

    def may_be_adopted(self, lease_id: int) -> bool:
        """Whether a peer may be right that an earlier master of this state gave it this lease. This master knows all
        of its own that have not ended."""
        prefix = lease_id >> LEASE_PREFIX_SHIFT
        is_earlier = prefix != self.lease_prefix and prefix in self.lease_prefixes
        return 0 < lease_id <= LEASE_ID_MAX and is_earlier and lease_id not in self.adopted

    def identity_of(self, step: Step) -> int:
        """The identity of a step, whatever its number: see `ids.step_identity`."""
        job, known = self.jobs[step.job_key], step.known_identity
        if known is None or known[0] != job.generation or known[1] is not job.document:
            # It takes a pass over the whole document, and nodes ask for it with each lease that they say they hold.
            identity = step_identity(
                job.job_id, job.request_id, job.create_time, job.generation, job.document, step.ordinal
            )
            known = step.known_identity = (job.generation, job.document, identity)
        return known[2]

    def is_foreign(self, step_id: StepId, identity: int) -> bool:
        """Whether a step on a node certainly does not belong to this state."""
        step = self.steps.get(step_id)
        return step_id > self.step_id_last if step is None else identity != self.identity_of(step)

    def knows_secret(self, node_id: NodeId, secret_digest: str) -> bool:
        """Whether a node of this name is known by this secret: one that is here, is gone while its name is cordoned, or
        was lost.
        """
        node = self.nodes.get(node_id) or self.absent.get(node_id)
        known = self.lost_secrets.get(node_id, "") if node is None else node.secret_digest
        return bool(known) and known == secret_digest

    def touch_job(self, job: Job) -> None:
        """Mark a job as changed, and wake its watchers."""
        if job.job_key not in self.dirty_jobs:
            job.seq += 1
            self.dirty_jobs.add(job.job_key)
            self.effects.append(NotifyJob(job.job_key, job.state in ENDED_JOBS))

    def touch_step(self, step: Step) -> None:
        """Mark a step and its job as changed. Raises InvariantBroken if the step's counters make no sense."""
        step.counters.check()
        self.dirty_steps.add(step.step_id)
        self.touch_job(self.jobs[step.job_key])

    def share_out_anew(self) -> None:
        """Have the nodes shared out anew at the end of this command: some slots are free, or are gone."""
        self.shares.there = None
        self.scheduling_wanted = True

    def touch_queue(self, queue: Queue) -> None:
        """Mark the settings of a queue as changed."""
        self.dirty.queues.append(queue.row())

    def touch_fleet(self, fleet: Fleet) -> None:
        """Put a fleet in its place, and mark it as changed."""
        self.fleets[fleet.name] = fleet
        self.dirty_fleets.add(fleet.name)

    def touch_allocation(self, allocation: Allocation) -> None:
        """Put an allocation in its place, and mark it as changed. One that has ended does not come back."""
        if allocation.has_ended:
            self.allocations.pop(allocation.name, None)
            self.ended_allocations[allocation.name] = allocation
        else:
            self.allocations[allocation.name] = allocation
        self.dirty_allocations.add(allocation.name)

    def touch_node(self, node: Node) -> None:
        """Mark a node as changed or forgotten."""
        self.dirty_nodes.add(node.node_id)

    def add_event(self, now: Moment, job_key: JobKey | None, kind: str, message: str) -> None:
        """Record something worth telling later."""
        self.dirty.events.append(EventRow(now.wall_s, job_key, kind, message))

    def add_node_event(self, now: Moment, node_id: NodeId, kind: str, message: str) -> None:
        """Record something about a node, unless too much was recorded of it lately (`event_allowances`)."""
        if (words := self.node_events.words(node_id, message, now.monotonic_s)) is not None:
            self.add_event(now, None, kind, words)

    def add_leases(self, leases: list[Lease], node: Node, step: Step) -> None:
        """Enter leases of one node and step everywhere (CoreState invariant 1)."""
        if not leases:
            return
        entered = {lease.lease_id: lease for lease in leases}
        if step.state != StepState.RUNNING or not self.leases.keys().isdisjoint(entered):
            raise InvariantBroken(f"step {step.step_id} ({step.state.name}) must not be given these leases: {leases}")
        self.leases.update(entered)
        node.lease_ids.update(entered)
        node.held[step.step_id] = node.held.get(step.step_id, 0) + len(leases)
        step.lease_ids.update(entered)
        step.gathering.is_done = True
        if not step.counters.leased and not step.progress.fault_message:
            # Waiting for a node is not a lack of progress; waiting after a node's fault is.
            step.progress.last_s = max(step.progress.last_s, leases[0].granted_s)
        step.counters.leased += sum(lease.rival is None for lease in leases)

    def drop_lease(self, lease: Lease, step: Step) -> None:
        """Remove a lease everywhere (CoreState invariant 1). Its mini-batch stays leased if the lease has a rival."""
        del self.leases[lease.lease_id]
        step.lease_ids.discard(lease.lease_id)
        if lease.rival is None:
            step.counters.leased -= 1
        else:
            lease.rival.rival = None
        node = self.nodes.get(lease.node_id)
        if node is not None:
            node.lease_ids.discard(lease.lease_id)
            node.held[lease.step_id] -= 1
            step.nodes.hungry.add(node.node_id)
            if node.held[lease.step_id] < 0:
                raise InvariantBroken(f"node {node.node_id} gives back more leases of step {step.step_id} than it held")

    def recall_unstarted(self, node: Node, step_id: StepId | None = None) -> None:
        """Ask a node to return everything that it has not started, of one step or of all."""
        if not node.stream:
            return
        for held_id, held in node.held.items():
            if held and step_id in (None, held_id):
                self.effects.append(RecallLeases(node.node_id, node.stream, held_id, held))

    def store_attempt(
        self,
        lease: Lease,
        state: AttemptState,
        now: Moment,
        cause: int = 0,
        message: str = "",
        *,
        elapsed_us: int | None = None,
        cut_short: CutShort | None = None,
    ) -> None:
        """Mark an attempt row dirty for a lease without a result of its own. Raises IllegalTransition.

        `elapsed_us`: how long the attempt took. None: it ran from when its lease was handed out until now, as far as
        this master knows. `cut_short`: what its node has told instead; no more than that is believed.
        """
        if lease.stored:
            ATTEMPT.check(AttemptState.RUNNING, state)
        node = self.nodes.get(lease.node_id)
        if state == AttemptState.RUNNING:
            elapsed_us = 0
        elif elapsed_us is None or cut_short is not None:
            held_us = max(0, int((now.monotonic_s - lease.granted_s) * 1e6))
            elapsed_us = held_us if cut_short is None else min(cut_short.elapsed_us, held_us)
        if elapsed_us:
            job = self.jobs[self.steps[lease.step_id].job_key]
            count_attempt(self, job, node, kind_of(state, cause), elapsed_us, now)
            if lease.lease_id >> LEASE_PREFIX_SHIFT != self.lease_prefix:
                self.adopted.add(lease.lease_id)  # it has ended, and its time is counted: no node goes on with it
        self.dirty.attempts.append(
            AttemptRow(
                lease_id=lease.lease_id,
                step_id=lease.step_id,
                mini_batch=lease.mini_batch,
                generation=lease.generation,
                node_id=lease.node_id,
                node_incarnation=node.node_incarnation if node is not None else "",
                process_number=-1 if cut_short is None else cut_short.process_number,
                state=state,
                cause=cause,
                start_unix_us=int((now.wall_s - (now.monotonic_s - lease.granted_s)) * 1e6)
                if cut_short is None
                else int(now.wall_s * 1e6) - elapsed_us,
                elapsed_us=elapsed_us,
                message=message,
            )
        )
        lease.stored = True

    def abandon_failed(self, step: Step, mini_batch: int, lease_id: LeaseId, cause: Cause, message: str) -> None:
        """Mark a finished attempt as charged to nobody, whether its row is durable already or not. Attempts of its
        mini-batch are counted as if it had not been.
        """
        self._store_as_abandoned(step, mini_batch, lease_id, cause, message)
        attempts = step.mini_batches.attempts
        if attempts.get(mini_batch, 0) > 1:
            attempts[mini_batch] -= 1
        else:
            attempts.pop(mini_batch, None)
        for held in step.lease_ids:
            lease = self.leases[held]
            if lease.mini_batch == mini_batch:
                lease.attempt -= 1

    def _store_as_abandoned(self, step: Step, mini_batch: int, lease_id: LeaseId, cause: Cause, message: str) -> None:
        rows = self.dirty.attempts
        for at, row in enumerate(rows):
            if row.lease_id == lease_id:
                rows[at] = row._replace(state=AttemptState.ABANDONED)
                return
        rows.append(
            AttemptRow(
                lease_id=lease_id,
                step_id=step.step_id,
                mini_batch=mini_batch,
                generation=self.jobs[step.job_key].generation,
                state=AttemptState.ABANDONED,
                cause=cause,
                message=message,
            )
        )

    def take_dirty(self) -> Dirty:
        """The rows that changed since the last call, as they are now. Those of the last call must be durable."""
        dirty = self.dirty
        dirty.jobs = [self.jobs[key].row() for key in sorted(self.dirty_jobs)]
        dirty.steps = [self.steps[step_id].row() for step_id in sorted(self.dirty_steps) if step_id in self.steps]
        for node_id in sorted(self.dirty_nodes):
            node = self.nodes.get(node_id) or self.absent.get(node_id)
            if node is not None:
                dirty.nodes.append(node.row())
            else:
                dirty.nodes_removed.append(node_id)
        self._take_dirty_fleets(dirty)
        dirty.ledger = sorted(entry.row() for entry in self.dirty_entries)
        self.dirty = Dirty()
        self.dirty_entries.clear()
        self.taken_jobs, self.dirty_jobs = self.dirty_jobs, set()
        self.dirty_steps.clear()
        self.dirty_nodes.clear()
        return dirty

    def _take_dirty_fleets(self, dirty: Dirty) -> None:
        for name in sorted(self.dirty_fleets):
            if (fleet := self.fleets.get(name)) is not None:
                dirty.fleets.append(fleet.row())
            else:
                dirty.fleets_removed.append(name)
        for name in sorted(self.dirty_allocations):
            allocation = self.allocations.get(name) or self.ended_allocations.get(name)
            if allocation is not None:
                dirty.allocations.append(allocation.row())
            else:
                dirty.allocations_removed.append(name)
        self.dirty_fleets.clear()
        self.dirty_allocations.clear()
