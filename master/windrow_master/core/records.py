"""The durable rows that the core marks dirty, and that a store writes and loads.

One NamedTuple a table; `Dirty` is what one group of commands changed. The core fills it, the store commits it in one
transaction. Plain values only (int, float, str, bytes, None), so that a store binds them as they are.
"""

import json
import struct
from array import array
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from windrow_master.core.ids import JobKey, LeaseId, NodeId, StepId
from windrow_master.core.states import AttemptState, Cause

PLAN_RECORD = struct.Struct("<QIQII")
"""item_first, item_count, recipe_offset, recipe_length, recipe_crc32: as in docs/contracts.md, section 3."""

RANK = struct.Struct("<Q")
"""queue_rank: the higher, the sooner it runs."""


class JobRow(NamedTuple):
    """A job. `document` is the effective job as submitted (docs/contracts.md, section 1)."""

    job_key: JobKey
    job_id: str
    request_id: str
    state: int
    """core.states.JobState."""
    generation: int
    seq: int
    queue: str
    """The name of its project."""
    priority: int
    weight: int
    run_digest: str
    document: bytes
    message: str
    warnings: bytes
    """JSON list of str."""
    create_time: float
    """Seconds since 1970, wall clock: for people only."""
    end_time: float | None
    submitter: str = ""
    """Name of the client token that submitted it; empty where none was asked for."""
    deadline: float | None = None
    """When it should have ended (seconds since 1970)."""


class QueueRow(NamedTuple):
    """The settings of a project's queue: upserted, keyed by name."""

    name: str
    settings: bytes
    """JSON: windrow.common.queue_settings.QueueSettings."""
    revision: int
    """The number of the change that set them."""
    change_time: float
    """Seconds since 1970, wall clock: for people only."""
    changed_by: str
    """Name of the client token that set them; empty where none was asked for."""


class FleetRow(NamedTuple):
    """A fleet: upserted, keyed by name."""

    name: str
    groups: bytes
    """JSON list: core.allocations.FleetGroup."""
    program: str
    """Who runs it, in words."""
    program_incarnation: str
    program_time: float
    """Seconds since 1970, wall clock: for people only."""
    earlier: bytes
    """JSON list: digests of the incarnations that had it before, the newest last."""
    paused: int
    paused_by: str
    """Name of the client token that paused or resumed it; empty where none was asked for."""
    pause_time: float | None
    revision: int
    """Counted up by each change of an operator."""


class AllocationRow(NamedTuple):
    """What a fleet asks an engine for: upserted, keyed by name."""

    name: str
    fleet: str
    group_name: str
    engine_id: str
    """What the engine calls it; empty: it has not said yet."""
    state: int
    """core.states.AllocationState."""
    reason: str
    begin_time: float
    """This and the following: seconds since 1970, wall clock."""
    queue_time: float | None
    start_time: float | None
    join_time: float | None
    end_time: float | None
    node_id: str
    """The node that its agent is, or was last; empty: none has joined."""
    node_incarnation: str


class LedgerRow(NamedTuple):
    """What worker time a job has spent, on one day, in one pool, under one project: upserted, keyed by the first four.
    It stays when the job is deleted. Sums in µs.
    """

    job_key: JobKey
    day: int
    """Days since 1970-01-01, UTC."""
    project: str
    pool: str
    """The pools of the nodes, by name, with commas between; empty: they are in none."""
    job_id: str
    submitter: str
    """Name of the client token that submitted the job; empty where none was asked for."""
    useful_us: int = 0
    """Of attempts that succeeded."""
    retried_us: int = 0
    """Of attempts that failed."""
    lost_us: int = 0
    """Of attempts that were lost with their node."""
    preempted_us: int = 0
    """Of attempts that were taken back, or that another one superseded."""
    cancelled_us: int = 0
    started_us: int = 0
    """What workers took to be ready."""
    lived_us: int = 0
    """What workers lived in all."""

    @property
    def sums(self) -> tuple[int, ...]:
        """The sums alone, in their order."""
        return self[6:]


LEDGER_DAYS_KEPT: Final = 400
"""Rows of the ledger older than this may go."""


class StepRow(NamedTuple):
    """A step of a job, with its planning checkpoint and its kept counters."""

    step_id: StepId
    job_key: JobKey
    ordinal: int
    name: str
    state: int
    """core.states.StepState."""
    message: str
    paths: bytes
    """JSON object: output name -> absolute path, and "inputs": input name -> absolute path, as resolved at start."""
    reader: bytes | None
    """JSON: how recipes are read; pinned by the planner's first group."""
    checkpoint: bytes | None
    """JSON: the planner's last committed checkpoint (docs/contracts.md, section 3)."""
    counters: bytes
    """JSON: core.counters.Counters."""
    header: bytes | None
    """As core.headers keeps it."""
    start_time: float | None
    end_time: float | None
    error_category: str = ""
    """Of a step that FAILED: one of core.statuses."""


def planned_in_checkpoint(checkpoint: bytes | None) -> bool:
    """Whether the checkpoint of a `StepRow` says that the whole input is divided."""
    return bool(checkpoint) and bool(json.loads(checkpoint or b"{}").get("done"))


class PlannedRows(NamedTuple):
    """Newly planned mini-batches of one step, as the planner's packed records: inserted, in state QUEUED (`outcomes` of
    the same group tell of those that are taken over).

    Their mini-batch ids are `step_id << 32 | index`, index counting up from `first_index`.
    """

    step_id: StepId
    first_index: int
    generation: int
    records: bytes
    """n x `<QIQII`: item_first, item_count, recipe_offset, recipe_length, recipe_crc32."""
    ranks: bytes = b""
    """n x `<Q`: the higher, the sooner it runs; empty: in their order."""


class OutcomeRow(NamedTuple):
    """The current state of one mini-batch that changed: updated in place, keyed by (step_id, mini_batch)."""

    step_id: StepId
    mini_batch: int
    """Index of the mini-batch in its step, from 0."""
    state: int
    """core.states.MiniBatchState."""
    generation: int
    item_count: int = 0
    """Items of the outcome that counts (kept apart from the number planned); 0 while there is none."""
    ok_count: int = 0
    lease_id: LeaseId = LeaseId(0)
    """The attempt whose outcome counts; 0 while there is none."""
    rows: int = -1
    """Index into the group's row blocks (`Dirty.row_blocks`); -1 if this mini-batch has no rows."""
    row_count: int = 0


class AttemptRow(NamedTuple):
    """One attempt: upserted, keyed by lease_id."""

    lease_id: LeaseId
    step_id: StepId
    mini_batch: int
    """Index of the mini-batch in its step, from 0."""
    generation: int
    node_id: str = ""
    """Empty: of an attempt that is stored already, only the state, the cause and the message change."""
    node_incarnation: str = ""
    process_number: int = 0
    """-1: no worker has told of it, so nobody knows which had it, if any."""
    state: int = AttemptState.RUNNING
    """core.states.AttemptState; SUCCEEDED at most once a mini-batch (UNIQUE in the store)."""
    cause: int = Cause.NONE
    """core.states.Cause; 0 while running or when it succeeded."""
    start_unix_us: int = 0
    elapsed_us: int = 0
    """What a worker spent on it; of one that nobody told of, what it can have spent at most."""
    run_us: int = 0
    cpu_us: int = 0
    item_count: int = 0
    result_count: int = 0
    peak_rss_kib: int = 0
    message: str = ""
    detail: str = ""
    phase: int = 0
    """core.states.Phase in which it ended; with state and cause it makes the status (core.statuses)."""


class ItemOutcomeRow(NamedTuple):
    """Items that are not ok: a run of items of one mini-batch with one outcome."""

    step_id: StepId
    mini_batch: int
    """Index of the mini-batch in its step, from 0."""
    item_first: int
    item_count: int
    cause: int
    """core.states.Cause; NONE: they have no result, and which of the mini-batch's items they are is not known."""
    message: str
    place: str = ""
    """Of one row of a table: its file, and its line or row there."""


class NodeRow(NamedTuple):
    """A node: upserted, keyed by node_id. LOST is stored only where a cordon has to outlive the node."""

    node_id: str
    node_incarnation: str
    state: int
    """core.states.NodeState."""
    message: str
    resources: bytes
    """JSON object."""
    labels: bytes
    """JSON object."""
    register_time: float
    cordoned: int
    """1: it gets nothing new; holds for the name."""
    secret_digest: str = ""
    """sha256 of the secret that the node proves itself by, hexadecimal; empty if it has none."""


CLOCK_SET_BACK: Final = "clock_set_back"
"""The kind of an event of no job: the clock was set back. Its time is the earliest that the clock has shown since."""

EVENTS_OF_NO_JOB_KEPT: Final = 20_000
"""The newest of them stay; beside these, those of CLOCK_SET_BACK."""


class EventRow(NamedTuple):
    """Something worth telling later; at most a few for a step, never one for each mini-batch. Appended."""

    time: float
    job_key: JobKey | None
    kind: str
    message: str


class RowBlock(NamedTuple):
    """Serialised rows of one accepted completion: either inline bytes, or a segment staged by UploadRows."""

    job_id: str
    step_id: StepId
    rows: bytes = b""
    staged_segment: str = ""
    """Name of the staged segment, relative to the step's segments folder; "" when the rows are inline."""
    length: int = 0
    crc32: int = 0
    source: str = ""
    """Path of the earlier job's segment that contains the rows; empty for all others."""
    offset: int = 0
    """In `source`."""


@dataclass
class Dirty:
    """Everything that one group of commands changed; if it is empty, there is nothing to commit."""

    jobs: list[JobRow] = field(default_factory=list)
    steps: list[StepRow] = field(default_factory=list)
    planned: list[PlannedRows] = field(default_factory=list)
    """Inserted before `outcomes` are applied."""
    outcomes: list[OutcomeRow] = field(default_factory=list)
    attempts: list[AttemptRow] = field(default_factory=list)
    item_outcomes: list[ItemOutcomeRow] = field(default_factory=list)
    item_outcomes_cleared: list[tuple[StepId, int]] = field(default_factory=list)
    """Mini-batches (step, mini_batch) whose earlier item outcomes go (applied before `item_outcomes`)."""
    cancelled_steps: list[StepId] = field(default_factory=list)
    """Steps whose mini-batches that are still QUEUED become CANCELLED (applied after `outcomes`)."""
    nodes: list[NodeRow] = field(default_factory=list)
    nodes_removed: list[NodeId] = field(default_factory=list)
    """Nodes whose rows go; none of them is in `nodes`."""
    queues: list[QueueRow] = field(default_factory=list)
    fleets: list[FleetRow] = field(default_factory=list)
    fleets_removed: list[str] = field(default_factory=list)
    """Fleets whose rows go; none of them is in `fleets`."""
    allocations: list[AllocationRow] = field(default_factory=list)
    allocations_removed: list[str] = field(default_factory=list)
    """Allocations whose rows go; none of them is in `allocations`."""
    ledger: list[LedgerRow] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    row_blocks: list[RowBlock] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(
            (
                self.jobs,
                self.steps,
                self.planned,
                self.outcomes,
                self.attempts,
                self.item_outcomes,
                self.item_outcomes_cleared,
                self.cancelled_steps,
                self.nodes,
                self.nodes_removed,
                self.queues,
                self.fleets,
                self.fleets_removed,
                self.allocations,
                self.allocations_removed,
                self.ledger,
                self.events,
            )
        )


class EarlierAttempt(NamedTuple):
    """What a new master must know about an attempt that did not succeed."""

    mini_batch: int
    lease_id: LeaseId
    state: int
    """core.states.AttemptState."""
    cause: int
    """core.states.Cause."""
    node_id: str


class OpenSums(NamedTuple):
    """What a master must know of the QUEUED mini-batches of a step to cancel them."""

    items: int
    """Those that are counted."""
    retries: int
    """Mini-batches that failed and were to run again."""


@dataclass
class StepSnapshot:
    """One unfinished step as a store loads it. Arrays are indexed by mini-batch index."""

    step: StepRow
    states: bytearray = field(default_factory=bytearray)
    """MiniBatchState, one byte each."""
    item_firsts: "array[int]" = field(default_factory=lambda: array("Q"))
    item_counts: "array[int]" = field(default_factory=lambda: array("I"))
    recipe_offsets: "array[int]" = field(default_factory=lambda: array("Q"))
    recipe_lengths: "array[int]" = field(default_factory=lambda: array("I"))
    recipe_crcs: "array[int]" = field(default_factory=lambda: array("I"))
    lease_ids: "array[int]" = field(default_factory=lambda: array("Q"))
    """The attempt whose outcome counts, 0 while there is none."""
    ranks: "array[int]" = field(default_factory=lambda: array("Q"))
    """The higher, the sooner it runs; empty: the mini-batches of this step have none."""
    attempts: list[EarlierAttempt] = field(default_factory=list)
    """Of QUEUED mini-batches, oldest first."""
    sums: OpenSums | None = None
    """In place of the arrays and the attempts, if the job is CANCELLING: nothing of the step runs again."""


@dataclass
class Snapshot:
    """The stored state from which a new master starts."""

    job_key_last: int = 0
    step_id_last: int = 0
    jobs: list[JobRow] = field(default_factory=list)
    """Jobs that have not ended."""
    steps: list[StepSnapshot] = field(default_factory=list)
    """All steps of those jobs, by job and ordinal; arrays are empty for steps that have ended."""
    nodes: list[NodeRow] = field(default_factory=list)
    lease_prefixes: frozenset[int] = frozenset()
    """Of all incarnations so far."""
    queues: list[QueueRow] = field(default_factory=list)
    fleets: list[FleetRow] = field(default_factory=list)
    """By name."""
    allocations: list[AllocationRow] = field(default_factory=list)
    """Those that have ended too, by name."""
    ledger: list[LedgerRow] = field(default_factory=list)
    """Those of the jobs."""
