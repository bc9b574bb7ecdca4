"""Rows of a store beyond those that the core marks dirty: where output is, and what readers page through."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Self

from windrow_master.core.ids import JobKey, LeaseId, StepId


class SegmentState(IntEnum):
    """OPEN -> SEALED. Informative: a segment is only ever written to by the incarnation in its name."""

    OPEN = 1
    SEALED = 2


class SegmentRow(NamedTuple):
    """A file of result rows: upserted, keyed by segment_id."""

    segment_id: int
    """`incarnation << 32 | n`."""
    step_id: StepId
    name: str
    """File name in the step's segments folder."""
    incarnation: int
    state: int
    """SegmentState."""
    length: int
    """Bytes synced so far."""


class RowRange(NamedTuple):
    """Where the rows of one RowBlock were appended."""

    segment_id: int
    offset: int
    length: int
    crc32: int


class CommittedRange(NamedTuple):
    """Where the committed rows of one mini-batch are."""

    mini_batch: int
    lease_id: LeaseId
    item_count: int
    ok_count: int
    row_count: int
    segment_id: int
    offset: int
    length: int
    crc32: int


class ResultRow(NamedTuple):
    """The result of one mini-batch, for another job to take over.

    `segment`: the file with its rows; empty if it has none.
    """

    mini_batch: int
    items: int
    row_count: int
    segment: str
    offset: int
    length: int
    crc32: int


class MiniBatchRow(NamedTuple):
    """One mini-batch, for reports."""

    mini_batch: int
    state: int
    """core.states.MiniBatchState; LEASED is never stored."""
    generation: int
    item_first: int
    item_count: int
    """Items as planned; 0 if the number is known only after loading."""
    items_counted: int
    """Items of the outcome that counts; 0 while there is none."""
    ok_count: int
    recipe_offset: int
    recipe_length: int
    recipe_crc32: int
    lease_id: LeaseId
    row_count: int


class AttemptFigures(NamedTuple):
    """What a job report needs of one attempt: as in core.records.AttemptRow, without its texts."""

    lease_id: LeaseId
    mini_batch: int
    node_id: str
    node_incarnation: str
    process_number: int
    state: int
    cause: int
    phase: int
    start_unix_us: int
    elapsed_us: int
    run_us: int
    cpu_us: int
    item_count: int
    peak_rss_kib: int


class BegunMiniBatch(NamedTuple):
    """An attempt in the order in which leases were given: incarnation of the master, then lease id."""

    incarnation: int
    lease_id: LeaseId
    mini_batch: int


class FailureRow(NamedTuple):
    """Items of one mini-batch that are not ok, with what a report says of them."""

    mini_batch: int
    item_count: int
    cause: int
    """core.states.Cause; NONE: `run()` returned, but fewer results than items."""
    message: str
    items: int
    """Items of the whole mini-batch; 0 if unknown."""
    recipe_offset: int
    recipe_length: int
    recipe_crc32: int
    tries: int
    """Attempts that succeeded or failed, and were not taken back."""
    node_id: str
    """The node of the attempt that counts, else of the last one; empty if there was none."""
    first: int = 0
    """Index of the first of these items in the mini-batch, from 0."""
    place: str = ""
    """Of a row of a table: its file, and its line or row there."""


class OutputRow(NamedTuple):
    """A file that Windrow wrote, or was about to rename into place. By this row, Windrow knows it again."""

    path: str
    job_key: JobKey
    step_id: StepId
    generation: int
    incarnation: int
    length: int
    digest: str
    """sha256, hexadecimal."""
    mtime_ns: int
    rows: int


class AssetRow(NamedTuple):
    """One version of a data asset or model; it never changes."""

    kind: int
    """Number of windrow.rpc.v1.AssetKind."""
    name: str
    version: str
    """Empty in a row to be registered: it gets the next number."""
    type: str
    path: str
    is_file: bool
    description: str
    tags: bytes
    """JSON, with sorted keys."""
    create_time: float
    step_id: int | None = None
    """The step that wrote it; None if a client registered it."""
    job_id: str = ""
    step_name: str = ""
    output_name: str = ""
    project: str = ""
    """That of the job or client that has registered it; empty if an earlier version did, and the job is gone."""


class AssetLimits(NamedTuple):
    """How many versions of assets of one kind there may be: in all, and of each project."""

    of_kind: int
    of_project: int


_ADDED = ("attempts", "done", "failed", "items", "items_ok", "elapsed_us", "cpu_us", "run_us")


class WorkerTotals(NamedTuple):
    """Sums over the attempts of one worker process. Times in µs; moments in µs since 1970."""

    node_id: str
    node_incarnation: str
    process_number: int
    """-1 for the sums over attempts of which no worker has told."""
    attempts: int
    done: int
    """Attempts whose outcome counts as a success."""
    failed: int
    items: int
    items_ok: int
    elapsed_us: int
    cpu_us: int
    run_us: int
    first_us: int
    last_us: int
    peak_rss_kib: int
    last_lease_id: int = 0

    def plus(self, other: Self) -> Self:
        """The sums of both, under the name of the first."""
        return self._replace(
            **{name: getattr(self, name) + getattr(other, name) for name in _ADDED},
            first_us=min(self.first_us, other.first_us),
            last_us=max(self.last_us, other.last_us),
            peak_rss_kib=max(self.peak_rss_kib, other.peak_rss_kib),
            last_lease_id=max(self.last_lease_id, other.last_lease_id),
        )


class Reopening(IntEnum):
    """What a retry does with a step."""

    KEPT = 1
    """The step is done, and stays as it is."""
    RESUMED = 2
    """Mini-batches with a result for each of their items keep it. The others are queued, with all of their tries."""
    ANEW = 3
    """The step begins from nothing."""


class Role(IntEnum):
    """What a client token allows. Each role may do what those below it may."""

    NONE = 0
    """Of join tokens."""
    VIEW = 1
    SUBMIT = 2
    OPERATE = 3
    ADMIN = 4


class TokenKind(IntEnum):
    """Who brings a token."""

    CLIENT = 1
    JOIN = 2


class TokenRow(NamedTuple):
    """A token of clients, or of nodes that join: upserted, keyed by digest. One that was revoked stays, so that no file
    brings it back.
    """

    digest: str
    """sha256 of the token, hexadecimal. The token itself is stored nowhere."""
    name: str
    kind: int
    """TokenKind."""
    role: int
    """Role."""
    project: str
    """The only project that it sees and changes; empty: all of them."""
    create_time: float
    expire_time: float | None = None
    uses_left: int | None = None
    """Nodes that it may still admit; None: any number."""
    last_use: float | None = None
    revoke_time: float | None = None


class ReopenedJob(NamedTuple):
    """A job to open again. `generation`: the one under which it ended. `document`, `run_digest`: what it is from now
    on. `warnings`: more of them."""

    job_key: JobKey
    generation: int
    document: bytes
    run_digest: str
    steps: Mapping[StepId, Reopening]
    warnings: Sequence[str] = ()
