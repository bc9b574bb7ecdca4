"""What can happen to the core. Names are imperative. A mistake of a peer is refused; it never raises.

These are named tuples, not dataclasses: the code that dataclasses generate takes 20 ms of every start (measured).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from windrow.common.queue_settings import QueueSettings

from windrow_master.core.attempt_result import AttemptResult
from windrow_master.core.causes import SYSTEM_ERROR
from windrow_master.core.ids import DEFAULT_PROJECT, JobKey, LeaseId, NodeId, StepId
from windrow_master.core.records import Snapshot
from windrow_master.core.settings import JobSettings, StepSettings
from windrow_master.core.states import AllocationState, Cause

if TYPE_CHECKING:
    from windrow_master.core.allocations import FleetGroup


class Moment(NamedTuple):
    """The time of a command. `monotonic_s` decides everything; `wall_s` (since 1970) is for people only."""

    monotonic_s: float
    wall_s: float


class SubmitJob(NamedTuple):
    """Reply: JobKey, or Refused (JOB_EXISTS). The same request_id again: the first answer."""

    job_id: str
    request_id: str
    document: bytes
    run_digest: str
    steps: tuple[StepSettings, ...]
    priority: int = 0
    weight: int = 1
    warnings: tuple[str, ...] = ()
    continue_on_step_failure: bool = False
    project: str = DEFAULT_PROJECT
    submitter: str = ""
    """Name of the client token that submits it; empty where none is asked for."""
    deadline: float | None = None
    """When it should have ended (seconds since 1970): of jobs of one priority, the one with the earliest goes first."""


class AdoptJob(NamedTuple):
    """A job that had ended was opened again in the store (`Store.reopen`), to run what it has not done.

    `snapshot`: only that job, as a new master would load it. Reply: its JobKey.
    """

    snapshot: Snapshot
    settings: JobSettings


class Settle(NamedTuple):
    """Changes nothing. Reply: None, once all earlier commands are durable and agents know of them."""


class CancelJob(NamedTuple):
    """Reply: JobKey, or Refused (JOB_UNKNOWN). A job that has ended stays as it is."""

    job_id: str


class SetQueues(NamedTuple):
    """Reply: the queues that have changed, or Refused (QUEUES_CHANGED, QUEUE_INVALID, QUOTA_TOO_LARGE).

    `only`: all other queues get the default. `revision`: the one that the change was made for; any if None.
    `overcommit`: more may be guaranteed than the nodes that are known have. `by`: the name of a client token.
    """

    queues: Mapping[str, QueueSettings]
    only: bool = False
    revision: int | None = None
    overcommit: bool = False
    by: str = ""


class UpdateJob(NamedTuple):
    """Reply: JobKey, or Refused (JOB_UNKNOWN: no such job, or it has ended; LIMIT_REACHED).

    What is None stays. `deadline`: seconds since 1970; 0: none. `by`: the name of a client token.
    """

    job_id: str
    priority: int | None = None
    weight: int | None = None
    project: str | None = None
    deadline: float | None = None
    by: str = ""

    def changes(self) -> Iterator[tuple[str, object]]:
        """What is given, with its name."""
        for name in ("project", "priority", "weight", "deadline"):
            if (value := getattr(self, name)) is not None:
                yield name, value


class AllocationReport(NamedTuple):
    """What an engine says of an allocation, by its fleet's program."""

    name: str
    group: str
    state: AllocationState
    engine_id: str = ""
    reason: str = ""


class SyncFleet(NamedTuple):
    """The program of a fleet says how it stands. `groups`: without what an operator has set. `incarnation`: of the
    program. Reply: core.fleets.Synced, or Refused (FLEET_TAKEN, FLEET_INVALID, LIMIT_REACHED).
    """

    fleet: str
    incarnation: str
    program: str
    groups: "tuple[FleetGroup, ...]"
    reports: tuple[AllocationReport, ...] = ()


class BeginAllocations(NamedTuple):
    """The program of a fleet is about to ask engines for these. Reply: None, or Refused (FLEET_NOT_FOUND, FLEET_TAKEN,
    FLEET_PAUSED, FLEET_INVALID, TOO_MANY_ALLOCATIONS). Nothing is written if one of them is refused.
    """

    fleet: str
    incarnation: str
    allocations: tuple[tuple[str, str], ...]
    """(name, group)."""


class UpdateFleet(NamedTuple):
    """Reply: the Fleet, or Refused (FLEET_NOT_FOUND, GROUP_NOT_FOUND, FLEET_INVALID).

    `paused`: None leaves it. `bounds`: by group, how many agents it has at least and at most; None: as the fleet's file
    says. `by`: the name of a client token.
    """

    fleet: str
    paused: bool | None = None
    bounds: tuple[tuple[str, int | None, int | None], ...] = ()
    by: str = ""


class DeleteFleet(NamedTuple):
    """Reply: None, or Refused (FLEET_NOT_FOUND, FLEET_IN_USE)."""

    fleet: str


class ClockSetBack(NamedTuple):
    """The wall clock was set back by `by_s` seconds. Since then it has never been before `to_s` (since 1970). Reply:
    None.
    """

    by_s: float
    to_s: float


class ForgetJob(NamedTuple):
    """Keep an ended job no longer in memory: it is about to be deleted. Reply: None, or Refused (JOB_NOT_ENDED)."""

    job_key: JobKey


class ExplainJob(NamedTuple):
    """Reply: list of core.reasons.Reason, or Refused (JOB_UNKNOWN: no such job, or it has ended)."""

    job_id: str


class PauseJob(NamedTuple):
    """A command raised on this job: lease nothing more of it. Reply: None."""

    job_key: JobKey
    message: str


class BeginWork(NamedTuple):
    """A client wants work done: a held core begins to hand out leases. Reply: None."""


class RegisterNode(NamedTuple):
    """Reply: None, or Refused (NODE_ALREADY_LIVE, ALLOCATION_ENDED, ALLOCATION_TAKEN, LIMIT_REACHED)."""

    node_id: NodeId
    node_incarnation: str
    replaced_incarnation: str
    resources: bytes
    labels: bytes
    secret_digest: str = ""
    """sha256 of what the agent proves itself by; empty if it brings nothing."""
    held_steps: tuple[tuple[StepId, int], ...] = ()
    """Steps that are on the node, each with the identity by which the agent knows it."""
    lifetime_s: float = math.inf
    """How long the node still lives, by what its agent knows of its allocation."""
    allocation: str = ""
    """The allocation of a fleet that the agent runs in; empty: in none."""


class IdleWorker(NamedTuple):
    """A worker that uses next to nothing of the GPUs that it holds. `gpus`: how many; below 1, a part of one. `idle_s`:
    for how long. `is_working`: it has a mini-batch.
    """

    step_id: StepId
    process_number: int
    gpus: float
    idle_s: float
    is_working: bool


class GpuUse(NamedTuple):
    """What the workers of a step on one node use of their GPUs at one moment. `peak_bytes`: the most memory of one of
    them. `measured`: how many of them the driver tells how busy they are; `busy_percent`: the sum of that.
    """

    step_id: StepId
    peak_bytes: int
    measured: int
    busy_percent: int


class HeartbeatNode(NamedTuple):
    """Reply: bool (reopen the Work stream), or Refused (NODE_UNKNOWN)."""

    node_id: NodeId
    node_incarnation: str
    lease_count: int
    lease_digest: int
    ready_steps: Sequence[StepId] = ()
    """Steps of which a worker has got through `init()` there."""
    next_s: float = 0.0
    """The next heartbeat comes by then, if the node gets no work before; at the usual interval if 0."""
    gpu_count: int | None = None
    """The GPUs that can be used now; None: as registered."""
    idle_gpus: Sequence[IdleWorker] = ()
    gpu_uses: Sequence[GpuUse] = ()
    running: Sequence[tuple[LeaseId, float]] = ()
    """Leases that workers have begun, each with for how long it has been in its present phase, in seconds."""


class HeldLease(NamedTuple):
    """A lease that an agent claims to hold."""

    lease_id: LeaseId
    step_id: StepId
    mini_batch: int
    generation: int
    identity: int
    """core.ids.step_identity of its step."""
    contradicted: bool = False
    """The store has its attempt, which has ended, or is another one."""


class OpenWork(NamedTuple):
    """A Work stream begins. Reply: None, or Refused (NODE_UNKNOWN)."""

    node_id: NodeId
    node_incarnation: str
    stream: int
    held: tuple[HeldLease, ...]
    step_ids: tuple[StepId, ...]
    workers: tuple[tuple[StepId, int], ...] = ()
    """Steps that have workers there, and how many."""


class CloseWork(NamedTuple):
    """A Work stream ended. Reply: None."""

    node_id: NodeId
    stream: int


class SetCapacity(NamedTuple):
    """The number of leases wanted for each step, as absolute numbers. Reply: None."""

    node_id: NodeId
    stream: int
    capacities: tuple[tuple[StepId, int, int], ...]
    """(step, leases_max, workers)."""
    draining: bool = False
    given_up: tuple[StepId, ...] = ()
    """Those of the steps for which the node no longer starts workers."""


class ConfirmStepEnd(NamedTuple):
    """A node no longer has workers of a step, and has saved what they had written. Reply: None."""

    node_id: NodeId
    stream: int
    step_id: StepId
    generation: int = 0
    """The generation that the node had of the step; 0 if it had none."""
    unsaved: str = ""
    """Why something is not in its store; "" when all is."""
    shutdown_failures: int = 0
    """Workers whose `shutdown()` failed, or did not come to its end."""
    shutdown_failure: str = ""
    """What the first of them says."""
    asked_generation: int = 0
    """The generation of the EndStep that this answers; 0 if unknown."""


class CompleteAttempts(NamedTuple):
    """Reply: dict Verdict -> lease ids; released when the outcomes are durable."""

    node_id: NodeId
    results: Sequence[AttemptResult]


class NoteProgress(NamedTuple):
    """Large rows of a step are arriving, or wait for room, so the step makes progress. Reply: None."""

    step_id: StepId


class CutShort(NamedTuple):
    """What a worker had spent on a lease that is given back."""

    elapsed_us: int
    process_number: int


class ReleaseLeases(NamedTuple):
    """Leases are given back, either not started or revoked; nobody is charged. `cut_short`: of those that a worker had
    begun. Reply: None.
    """

    node_id: NodeId
    lease_ids: Sequence[int]
    cut_short: Mapping[int, CutShort] = MappingProxyType({})


class ReportWorkerFailure(NamedTuple):
    """A worker could not be made ready. `number` counts these in one incarnation of the node. Reply: None."""

    node_id: NodeId
    step_id: StepId
    cause: int
    message: str
    detail: str
    process_number: int
    number: int


class DrainNode(NamedTuple):
    """Reply: the Node, or Refused (NODE_UNKNOWN)."""

    node_id: NodeId


class CordonNode(NamedTuple):
    """Reply: the Node, or Refused (NODE_UNKNOWN)."""

    node_id: NodeId
    cordoned: bool


class RemoveNode(NamedTuple):
    """Reply: None, or Refused (NODE_UNKNOWN, NODE_CONNECTED). `force`: also while it is connected."""

    node_id: NodeId
    force: bool = False


class TakenOver(NamedTuple):
    """The outcome that a mini-batch of an earlier job gives one of this job: every item had a result.

    `source`, `offset`, `length`, `crc32`: the place of its rows in a segment (an absolute path); without rows, `source`
    is empty.

    Not the planner's `TakenOver`, which finds such mini-batches in lists of files.
    """

    mini_batch: int
    item_count: int
    row_count: int
    source: str
    offset: int
    length: int
    crc32: int


class PlanGroup(NamedTuple):
    """The planner hands over a group. A compare-and-swap on the checkpoint.

    Reply: True, or False when `start` is not the stored one.
    """

    step_id: StepId
    start: bytes | None
    """Canonical JSON of the checkpoint that the planner continued from."""
    end: bytes
    first_mini_batch: int
    records: bytes
    """n x `<QIQII`: item_first, item_count, recipe_offset, recipe_length, recipe_crc32."""
    done: bool
    reader: bytes | None = None
    warnings: tuple[str, ...] = ()
    ranks: bytes = b""
    """n x `<Q`: the higher, the sooner it runs; empty: in their order."""
    taken: tuple[TakenOver, ...] = ()
    """Ascending; of the group's mini-batches, those that have an outcome already."""
    header: bytes | None = None
    """What the rows of those taken over agree on."""
    misfits: int = 0
    """How many values planning met that did not fit their column."""
    notes: tuple[str, ...] = ()
    """What people should know, and need not be warned of."""


class FailStep(NamedTuple):
    """Planning, resolving or finishing a step failed for good. Reply: None."""

    step_id: StepId
    message: str
    category: str = SYSTEM_ERROR
    """One of core.statuses."""
    generation: int | None = None
    """The generation of what failed, if that can be an earlier one; None for the current one."""


class StartStep(NamedTuple):
    """The shell has resolved the step's paths and made its folders. Reply: None."""

    step_id: StepId
    paths: bytes


class AwaitPlanner(NamedTuple):
    """A step waits until it may be divided, or need not wait any more. Reply: None."""

    step_id: StepId
    waits: bool


class ReuseStep(NamedTuple):
    """The outputs of an earlier job replace those of a step that has not begun. Reply: None."""

    step_id: StepId
    paths: bytes
    message: str


class FinishStep(NamedTuple):
    """The step's output is complete. Reply: None."""

    step_id: StepId
    generation: int
    message: str = ""
    paths: bytes | None = None
    """Its paths with the values that its outputs hold; None if no other step needs one."""
    warnings: tuple[str, ...] = ()
    """What the user should know about its rows."""


class LostRows(NamedTuple):
    """A mini-batch whose committed rows could not be read again, and what it had added to the counters."""

    mini_batch: int
    lease_id: LeaseId
    item_count: int
    ok_count: int
    row_count: int
    rows_length: int
    failures: tuple[tuple[LeaseId, Cause], ...] = ()
    """Its attempts that failed before, as stored: a master that was started since does not know them."""


class PostponeFinish(NamedTuple):
    """A step's output cannot be written at the moment, and is tried again later. `message` says why. Reply: None."""

    step_id: StepId
    generation: int
    message: str


class RequeueLostRows(NamedTuple):
    """Committed rows are lost: their mini-batches run again. Reply: None."""

    step_id: StepId
    generation: int
    lost: tuple[LostRows, ...]


class Tick(NamedTuple):
    """Time has passed. Due at `Core.next_due`, or sooner. Reply: None."""

    interval_s: float = 0.25
    """How long after the last tick this one was meant to come. If it comes much later, the process stood still, and
    all deadlines move by the gap."""


class StepsRaised(Exception):
    """A command about many steps raised at some of them: a bug. The other steps are not affected.

    `errors`: what was raised, by step. `reply`: the command's reply, if the rest of it was done; otherwise
    UNANSWERED.
    """

    def __init__(self, errors: Mapping[StepId, Exception], reply: object) -> None:
        super().__init__(", ".join(f"step {step_id}: {error!r}" for step_id, error in errors.items()))
        self.errors = errors
        self.reply = reply


UNANSWERED = object()
"""In place of a reply: there is none."""


Command = (
    SubmitJob
    | AdoptJob
    | Settle
    | CancelJob
    | SetQueues
    | UpdateJob
    | SyncFleet
    | BeginAllocations
    | UpdateFleet
    | DeleteFleet
    | ForgetJob
    | ClockSetBack
    | ExplainJob
    | PauseJob
    | BeginWork
    | RegisterNode
    | HeartbeatNode
    | OpenWork
    | CloseWork
    | SetCapacity
    | ConfirmStepEnd
    | CompleteAttempts
    | NoteProgress
    | ReleaseLeases
    | ReportWorkerFailure
    | DrainNode
    | CordonNode
    | RemoveNode
    | PlanGroup
    | FailStep
    | StartStep
    | AwaitPlanner
    | ReuseStep
    | FinishStep
    | PostponeFinish
    | RequeueLostRows
    | Tick
)
