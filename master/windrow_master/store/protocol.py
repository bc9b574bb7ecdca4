"""What the master asks of its durable state. `tests/store/conformance` runs over every store behind these protocols."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from windrow_master.core.ids import JobKey, LeaseId, StepId
from windrow_master.core.records import (
    AttemptRow,
    Dirty,
    EventRow,
    ItemOutcomeRow,
    JobRow,
    LedgerRow,
    NodeRow,
    Snapshot,
    StepRow,
)
from windrow_master.core.states import Cause
from windrow_master.store.errors import DatabaseDamaged
from windrow_master.store.records import (
    AssetLimits,
    AssetRow,
    AttemptFigures,
    BegunMiniBatch,
    CommittedRange,
    FailureRow,
    MiniBatchRow,
    OutputRow,
    ReopenedJob,
    ResultRow,
    RowRange,
    SegmentRow,
    TokenRow,
    WorkerTotals,
)

PAGE_ROWS = 5000
SUMMED_ROWS = 100_000
"""How many attempts one query adds up."""
FAILED_PAGE_ROWS = 500
"""The page size for rows that carry tracebacks."""


class Traces(NamedTuple):
    """Signs beside a store that it was in use. They reveal a store that was replaced by an older or empty one."""

    incarnation: int = 0
    """The last incarnation of a master that is known to have used the store; 0 if none is known."""
    beside: str = ""
    """What belongs to the store and was found beside it, in words that follow "there is"; empty if nothing was."""


NO_TRACES = Traces()


class StoreReader(Protocol):
    """Reads what is committed, from any thread.

    Each call, and each page of an iterator, is a query of its own: no read stays open between pages. Rows that change
    meanwhile appear as they are when their page is read. Raises StoreBusy or StoreBroken.
    """

    def job_by_id(self, job_id: str) -> JobRow | None:
        """One job by its name."""

    def job_by_key(self, job_key: JobKey) -> JobRow | None:
        """One job by its number."""

    def job_by_request(self, request_id: str) -> JobRow | None:
        """The job that a submission with this request id made."""

    def jobs_newest_first(self, size: int, before: int | None = None, project: str = "") -> list[JobRow]:
        """At most `size` jobs with job_key < `before` (if None, from the newest), of a project (if empty, of all)."""

    def steps_of(self, job_key: JobKey) -> list[StepRow]:
        """The steps of a job, by ordinal."""

    def mini_batches_of(
        self, step_id: StepId, page_rows: int = PAGE_ROWS, first: int = 0
    ) -> Iterator[list[MiniBatchRow]]:
        """All mini-batches of a step from `first` on, in output order."""

    def mini_batches_at(self, step_id: StepId, indices: Sequence[int]) -> list[MiniBatchRow]:
        """The mini-batches with these indices, as far as they exist, by index."""

    def results_at(self, step_id: StepId, indices: Sequence[int]) -> list[ResultRow]:
        """The results of the mini-batches with these indices that have one for each of their items, by index."""

    def mini_batches_after(
        self, step_id: StepId, after: int, size: int, states: Sequence[int] = (), cause: int | None = None
    ) -> list[int]:
        """Indices of at most `size` mini-batches above `after`, ascending.

        `states`: only mini-batches that are stored in one of them. `cause`: only those of which an attempt ended by it;
        if 0, only those whose `run()` returned fewer results than items.
        """

    def begun_before(self, step_id: StepId, before: tuple[int, int] | None, size: int) -> list[BegunMiniBatch]:
        """At most `size` stored attempts of a step, newest first: by incarnation, then by lease id, both falling.

        `before`: continue after this (incarnation, lease id); if None, start with the newest.
        """

    def attempts_at(self, step_id: StepId, indices: Sequence[int]) -> list[AttemptRow]:
        """All stored attempts of these mini-batches, oldest first, without their `detail`."""

    def attempts_with(self, lease_ids: Sequence[int]) -> list[AttemptRow]:
        """The stored attempts under these leases (from 1 to 2**63 - 1), in their order, without their `detail`."""

    def attempt_figures_of(self, step_id: StepId, page_rows: int = PAGE_ROWS) -> Iterator[list[AttemptFigures]]:
        """All stored attempts of a step, in order of lease id, without their texts."""

    def ranges_of(self, step_id: StepId, page_rows: int = PAGE_ROWS, first: int = 0) -> Iterator[list[CommittedRange]]:
        """The committed rows of a step's mini-batches from `first` on, in output order. Mini-batches without rows are
        left out.
        """

    def attempts_of(self, step_id: StepId, page_rows: int = PAGE_ROWS) -> Iterator[list[AttemptRow]]:
        """All stored attempts of a step, in order of lease id."""

    def attempts_of_mini_batch(self, step_id: StepId, mini_batch: int) -> list[AttemptRow]:
        """All stored attempts of one mini-batch, oldest first."""

    def counted_failures_of(self, step_id: StepId, mini_batch: int) -> list[tuple[LeaseId, Cause]]:
        """The attempts of a mini-batch that failed and count against it: those since its last retry, oldest
        first."""

    def worker_totals_of(self, step_id: StepId, page_rows: int = SUMMED_ROWS) -> list[WorkerTotals]:
        """The sums over the stored attempts of each worker process of a step, by node, incarnation and number."""

    def failed_attempts_of(
        self, step_id: StepId, page_rows: int = FAILED_PAGE_ROWS, detail_chars: int = 4000
    ) -> Iterator[list[AttemptRow]]:
        """The failed attempts of a step, by mini-batch, each with only the last `detail_chars` of its detail."""

    def most_tried_of(self, step_id: StepId, limit: int) -> list[tuple[int, int, int]]:
        """(mini-batch, attempts that did not succeed, those that failed), most of them first."""

    def longest_of(self, step_id: StepId, longer_than_us: int, limit: int) -> list[tuple[int, int, int]]:
        """(length of the recipe, its crc32, duration in µs) of the longest attempts that succeeded, the longest
        first."""

    def attempt(self, lease_id: LeaseId) -> AttemptRow | None:
        """The attempt under a lease; None if it is not stored."""

    def item_outcomes_of(self, step_id: StepId, page_rows: int = PAGE_ROWS) -> Iterator[list[ItemOutcomeRow]]:
        """All items of a step that are not ok, by mini-batch, in the order in which they were written."""

    def failures_of(self, step_id: StepId, page_rows: int = PAGE_ROWS) -> Iterator[list[FailureRow]]:
        """All items of a step that are not ok, by mini-batch, with what the mini-batch and its attempts say about
        them."""

    def failures_at(self, step_id: StepId, mini_batch: int) -> list[FailureRow]:
        """Those of one mini-batch."""

    def events_of(self, job_key: JobKey | None, after: int = 0, limit: int = 1000) -> list[tuple[int, EventRow]]:
        """Events of a job (None for those without one), oldest first, with their numbers; only those above `after`."""

    def nodes(self) -> list[NodeRow]:
        """All nodes that are not forgotten, by node id."""

    def ledger(
        self, first_day: int, last_day: int, project: str = "", page_rows: int = PAGE_ROWS
    ) -> Iterator[list[LedgerRow]]:
        """What jobs have spent on these days (the last included), also deleted ones, by day; of a project (if empty, of
        all)."""

    def segments_of(self, step_id: StepId) -> list[SegmentRow]:
        """The committed segments of a step."""

    def outputs_at(self, path: str) -> list[OutputRow]:
        """The last few outputs that were written to a path, newest first."""

    def asset(self, kind: int, name: str, version: str | None) -> AssetRow | None:
        """One version of an asset; if `version` is None, the one registered last."""

    def assets(self, kind: int, name: str, size: int, before: int | None = None) -> list[tuple[int, AssetRow]]:
        """At most `size` versions of a name (the latest of each name if empty), newest first, each with its number;
        only numbers below `before`."""

    def has_assets(self, kind: int, count: int, project: str | None = None) -> bool:
        """Whether there are at least so many versions of assets of a kind, of one project or (None) of all."""

    def tokens(self) -> list[TokenRow]:
        """All tokens, also those that were revoked, oldest first."""


MESSAGE_CHARS_MAX = 1_000
"""The number of characters of an attempt's message that a line of the report shows."""


@runtime_checkable
class AttemptLinesReader(Protocol):
    """An extra that a reader may offer: it makes the lines of a report where the rows are, which is faster."""

    def attempt_lines_of(
        self, step_id: StepId, folders: Mapping[tuple[str, str], str], page_rows: int = PAGE_ROWS
    ) -> Iterator[str]:
        """All stored attempts of a step, in order of lease id, as lines of `processed_mini-batches.csv`.

        `folders`: (node id, node incarnation) -> what the node is called there, where that is not its id.
        """


class Store(Protocol):
    """The durable state, owned by one master incarnation.

    Not a store of data (`s3://…`), which `windrow.storage` reads and writes.

    Invariants:
    1. A group is committed whole or not at all, and is durable (survives loss of power) when `commit` returns.
    2. Only the newest incarnation writes: `commit`, `record_output`, `record_asset`, `record_token`, `delete_job`,
       `delete_rows` and `delete_old` of an older one raise OwnershipLost.
    3. Incarnations rise by one at each open; no two have the same lease prefix.
    4. A mini-batch has at most one attempt in state SUCCEEDED.
    5. `load` gives what the last committed group made of the state.
    """

    @property
    def incarnation(self) -> int:
        """This master's number, from 1."""

    @property
    def lease_prefix(self) -> int:
        """The high 31 bits of this incarnation's lease ids: random, not 0, distinct from all earlier ones."""

    def load(self, job_key: JobKey | None = None) -> Snapshot:
        """The state that a new master starts from. `job_key`: only that job, and no nodes. Open steps of a job that is
        CANCELLING may have `sums` in place of their mini-batches.
        """

    def commit(self, dirty: Dirty, ranges: Sequence[RowRange], segments: Sequence[SegmentRow]) -> None:
        """Write one group. `ranges[i]` says where `dirty.row_blocks[i]` is; `segments` are the segments they name.

        Raises StoreFull or StoreBusy (certainly rolled back: try the same group again), OwnershipLost (nothing was
        written), StoreBroken (unknown: end).
        """

    def record_output(self, row: OutputRow) -> None:
        """Remember a file that is about to be renamed into place. Callable from any thread. Raises as `commit`."""

    def reopen(self, job: ReopenedJob) -> Snapshot:
        """Open a job that has ended again, and return it as `load` would. Callable from any thread.

        Raises NotReopened where it has not ended under that generation (nothing was changed), else as `commit`.
        """

    def record_asset(self, row: AssetRow, most: AssetLimits | None = None) -> AssetRow:
        """Register a version of an asset; return what is registered then, durably. Callable from any thread.

        Without a version it gets the next number. An existing one that is the same in everything is returned; so is
        the one of the same output of the same step. `most`: how many versions of this kind there may be; None for any
        number. Raises AssetExists, TooManyAssets, and as `commit`.
        """

    def record_token(self, row: TokenRow) -> None:
        """Add a token, or replace the one with the same digest. Durable on return; callable from any thread.

        Raises as `commit`.
        """

    def delete_job(self, job_key: JobKey) -> None:
        """Delete an ended job, its documents and its steps, all at once: nothing finds it any more. Nothing happens if
        there is no such job. Callable from any thread.

        The rows below its steps stay until `delete_rows`. What it has spent stays in the ledger. Records of written
        outputs stay, so that a later job may replace those files. Raises JobNotEnded, else as `commit`.
        """

    def delete_rows(self, job_key: JobKey, steps: Sequence[StepId], rows_max: int = 10_000) -> bool:
        """Delete at most `rows_max` rows of the steps of a deleted job, and its events; return whether some may be left
        (then call again). Callable from any thread.

        Raises ValueError for a job that was not deleted, else as `commit`.
        """

    def delete_old(self, events_before: float, ledger_before: int = 0, rows_max: int = 10_000) -> bool:
        """Delete at most `rows_max` rows that nobody asks for: events of no job before that time or beyond the newest
        EVENTS_OF_NO_JOB_KEPT, all but the last few records of a path that deleted jobs have written, and rows of the
        ledger of days before `ledger_before`. Return whether some may be left. Callable from any thread.

        Raises as `commit`.
        """

    def reader(self) -> StoreReader:
        """A reader of this store, usable until `close`."""

    def on_damage(self, listener: Callable[[DatabaseDamaged], None]) -> None:
        """Call `listener` with damage that is found from now on, from whatever thread finds it."""

    def close(self) -> None:
        """Close the store. May be repeated."""
