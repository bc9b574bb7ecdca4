"""What the tables tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from windrow_master.core.ids import JobKey, LeaseId, StepId
from windrow_master.core.records import AttemptRow, EventRow, ItemOutcomeRow, JobRow, LedgerRow, NodeRow, StepRow
from windrow_master.core.states import AttemptState, Cause, MiniBatchState, Phase
from windrow_master.store.protocol import FAILED_PAGE_ROWS, PAGE_ROWS, SUMMED_ROWS, StoreReader
from windrow_master.store.records import (
    AssetRow,
    AttemptFigures,
    BegunMiniBatch,
    CommittedRange,
    FailureRow,
    MiniBatchRow,
    OutputRow,
    ResultRow,
    SegmentRow,
    TokenRow,
    WorkerTotals,
)

from stores.plain.tables import MiniBatch, Tables

T = TypeVar("T")


class PlainReader(StoreReader):
    """Reads the tables as they are when it is asked."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def job_by_id(self, job_id: str) -> JobRow | None:
        return next((job for job in self._tables.jobs.values() if job.job_id == job_id), None)

    def job_by_key(self, job_key: JobKey) -> JobRow | None:
        return self._tables.jobs.get(job_key)

    def job_by_request(self, request_id: str) -> JobRow | None:
        jobs = self._tables.jobs.values()
        return next((job for job in jobs if request_id and job.request_id == request_id), None)

    def jobs_newest_first(self, size: int, before: int | None = None, project: str = "") -> list[JobRow]:
        jobs = sorted(self._tables.jobs.items(), reverse=True)
        older = (job for key, job in jobs if before is None or key < before)
        return [job for job in older if project in ("", job.queue)][:size]

    def steps_of(self, job_key: JobKey) -> list[StepRow]:
        steps = (step for step in self._tables.steps.values() if step.job_key == job_key)
        return sorted(steps, key=lambda step: step.ordinal)

    def mini_batches_of(
        self, step_id: StepId, page_rows: int = PAGE_ROWS, first: int = 0
    ) -> Iterator[list[MiniBatchRow]]:
        return _pages((_told(index, row) for index, row in self._mini_batches(step_id) if index >= first), page_rows)

    def mini_batches_at(self, step_id: StepId, indices: Sequence[int]) -> list[MiniBatchRow]:
        return [_told(index, row) for index, row in self._mini_batches(step_id) if index in indices]

    def results_at(self, step_id: StepId, indices: Sequence[int]) -> list[ResultRow]:
        found = []
        for index, row in self._mini_batches(step_id):
            if index not in indices or row.state != MiniBatchState.SUCCEEDED or row.ok_count < row.items_counted:
                continue
            place = (row.range.offset, row.range.length, row.range.crc32) if row.range is not None else (0, 0, 0)
            name = self._tables.segments[row.range.segment_id].name if row.range is not None else ""
            found.append(ResultRow(index, row.items_counted, row.row_count, name, *place))
        return found

    def mini_batches_after(
        self, step_id: StepId, after: int, size: int, states: Sequence[int] = (), cause: int | None = None
    ) -> list[int]:
        wanted: set[int] | None = None
        if cause == 0:
            wanted = {row.mini_batch for row in self._item_outcomes(step_id) if not row.cause}
        elif cause is not None:
            wanted = {row.mini_batch for row in self._attempts(step_id) if not _succeeded(row) and row.cause == cause}
        return [
            index
            for index, row in self._mini_batches(step_id)
            if index > after and (not states or row.state in states) and (wanted is None or index in wanted)
        ][:size]

    def begun_before(self, step_id: StepId, before: tuple[int, int] | None, size: int) -> list[BegunMiniBatch]:
        begun = self._tables.begun
        attempts = sorted(self._attempts(step_id), key=begun, reverse=True)
        return [
            BegunMiniBatch(begun(row)[0], row.lease_id, row.mini_batch)
            for row in attempts
            if before is None or begun(row) < before
        ][:size]

    def attempts_at(self, step_id: StepId, indices: Sequence[int]) -> list[AttemptRow]:
        return [row._replace(detail="") for row in self._oldest_first(step_id) if row.mini_batch in indices]

    def attempts_with(self, lease_ids: Sequence[int]) -> list[AttemptRow]:
        rows = sorted(row for row in self._tables.attempts.values() if row.lease_id in lease_ids)
        return [row._replace(detail="") for row in rows]

    def attempt_figures_of(self, step_id: StepId, page_rows: int = PAGE_ROWS) -> Iterator[list[AttemptFigures]]:
        names = AttemptFigures._fields
        figures = (AttemptFigures(*(getattr(row, name) for name in names)) for row in self._attempts(step_id))
        return _pages(figures, page_rows)

    def ranges_of(self, step_id: StepId, page_rows: int = PAGE_ROWS, first: int = 0) -> Iterator[list[CommittedRange]]:
        return _pages(
            (
                CommittedRange(index, LeaseId(row.lease_id), row.items_counted, row.ok_count, row.row_count, *row.range)
                for index, row in self._mini_batches(step_id)
                if row.range is not None and index >= first
            ),
            page_rows,
        )

    def attempts_of(self, step_id: StepId, page_rows: int = PAGE_ROWS) -> Iterator[list[AttemptRow]]:
        return _pages(self._attempts(step_id), page_rows)

    def attempts_of_mini_batch(self, step_id: StepId, mini_batch: int) -> list[AttemptRow]:
        return [row for row in self._oldest_first(step_id) if row.mini_batch == mini_batch]

    def counted_failures_of(self, step_id: StepId, mini_batch: int) -> list[tuple[LeaseId, Cause]]:
        since = self._tables.mini_batches[step_id][mini_batch].tries_since
        failed = [
            row
            for row in self._tables.attempts_of(step_id, mini_batch)
            if row.state == AttemptState.FAILED and row.generation >= since
        ]
        return [(row.lease_id, Cause(row.cause)) for row in sorted(failed, key=self._tables.begun)]

    def worker_totals_of(self, step_id: StepId, page_rows: int = SUMMED_ROWS) -> list[WorkerTotals]:
        totals: dict[tuple[str, str, int], WorkerTotals] = {}
        for row in self._attempts(step_id):
            ok = _succeeded(row)
            number = -1 if row.phase == Phase.FETCHING else row.process_number
            one = WorkerTotals(
                row.node_id, row.node_incarnation, number, 1, int(ok), int(row.state == AttemptState.FAILED),
                row.item_count, min(row.result_count, row.item_count) if ok else 0, row.elapsed_us, row.cpu_us,
                row.run_us, row.start_unix_us, row.start_unix_us + row.elapsed_us, row.peak_rss_kib, row.lease_id,
            )  # fmt: skip
            known = totals.get(one[:3])
            totals[one[:3]] = one if known is None else known.plus(one)
        return [totals[key] for key in sorted(totals)]

    def failed_attempts_of(
        self, step_id: StepId, page_rows: int = FAILED_PAGE_ROWS, detail_chars: int = 4000
    ) -> Iterator[list[AttemptRow]]:
        failed = (row for row in self._attempts(step_id) if row.state == AttemptState.FAILED)
        by_mini_batch = sorted(failed, key=lambda row: (row.mini_batch, row.lease_id))
        return _pages((row._replace(detail=row.detail[-detail_chars:]) for row in by_mini_batch), page_rows)

    def most_tried_of(self, step_id: StepId, limit: int) -> list[tuple[int, int, int]]:
        tries: dict[int, list[AttemptRow]] = {}
        for row in self._attempts(step_id):
            if not _succeeded(row):
                tries.setdefault(row.mini_batch, []).append(row)
        counted = (
            (index, len(rows), sum(row.state == AttemptState.FAILED for row in rows)) for index, rows in tries.items()
        )
        return sorted(counted, key=lambda one: (-one[1], one[0]))[:limit]

    def longest_of(self, step_id: StepId, longer_than_us: int, limit: int) -> list[tuple[int, int, int]]:
        long = [row for row in self._attempts(step_id) if _succeeded(row) and row.elapsed_us > longer_than_us]
        long.sort(key=lambda row: (-row.elapsed_us, row.mini_batch))
        batches = self._tables.mini_batches[step_id]
        return [
            (batches[row.mini_batch].recipe_length, batches[row.mini_batch].recipe_crc32, row.elapsed_us)
            for row in long[:limit]
        ]

    def attempt(self, lease_id: LeaseId) -> AttemptRow | None:
        return self._tables.attempts.get(lease_id)

    def item_outcomes_of(self, step_id: StepId, page_rows: int = PAGE_ROWS) -> Iterator[list[ItemOutcomeRow]]:
        return _pages(self._item_outcomes(step_id), page_rows)

    def failures_of(self, step_id: StepId, page_rows: int = PAGE_ROWS) -> Iterator[list[FailureRow]]:
        return _pages((self._failure(row) for row in self._item_outcomes(step_id)), page_rows)

    def failures_at(self, step_id: StepId, mini_batch: int) -> list[FailureRow]:
        return [self._failure(row) for row in self._item_outcomes(step_id) if row.mini_batch == mini_batch]

    def events_of(self, job_key: JobKey | None, after: int = 0, limit: int = 1000) -> list[tuple[int, EventRow]]:
        events = sorted(self._tables.events.items())
        return [(number, row) for number, row in events if row.job_key == job_key and number > after][:limit]

    def nodes(self) -> list[NodeRow]:
        return sorted(self._tables.nodes.values())

    def ledger(
        self, first_day: int, last_day: int, project: str = "", page_rows: int = PAGE_ROWS
    ) -> Iterator[list[LedgerRow]]:
        rows = sorted(self._tables.ledger.values(), key=lambda row: row.day)
        asked = (row for row in rows if first_day <= row.day <= last_day and project in ("", row.project))
        return _pages(asked, page_rows)

    def segments_of(self, step_id: StepId) -> list[SegmentRow]:
        return sorted(row for row in self._tables.segments.values() if row.step_id == step_id)

    def outputs_at(self, path: str) -> list[OutputRow]:
        return [row for row in reversed(self._tables.outputs) if row.path == path]

    def asset(self, kind: int, name: str, version: str | None) -> AssetRow | None:
        found = (row for row in reversed(self._tables.assets) if (row.kind, row.name) == (kind, name))
        return next((row for row in found if version in (None, row.version)), None)

    def has_assets(self, kind: int, count: int, project: str | None = None) -> bool:
        return sum(row.kind == kind and project in (None, row.project) for row in self._tables.assets) >= count

    def assets(self, kind: int, name: str, size: int, before: int | None = None) -> list[tuple[int, AssetRow]]:
        found = []
        seen: set[str] = set()
        for number, row in reversed(list(enumerate(self._tables.assets))):
            if row.kind == kind and (row.name == name or (not name and row.name not in seen)):
                seen.add(row.name)
                if before is None or number < before:
                    found.append((number, row))
        return found[:size]

    def tokens(self) -> list[TokenRow]:
        return sorted(self._tables.tokens.values(), key=lambda row: (row.create_time, row.digest))

    def _mini_batches(self, step_id: StepId) -> list[tuple[int, MiniBatch]]:
        return sorted(self._tables.mini_batches.get(step_id, {}).items())

    def _attempts(self, step_id: StepId) -> list[AttemptRow]:
        return sorted(row for row in self._tables.attempts.values() if row.step_id == step_id)

    def _oldest_first(self, step_id: StepId) -> list[AttemptRow]:
        return sorted(self._attempts(step_id), key=self._tables.begun)

    def _item_outcomes(self, step_id: StepId) -> list[ItemOutcomeRow]:
        rows = (row for row in self._tables.item_outcomes if row.step_id == step_id)
        return sorted(rows, key=lambda row: row.mini_batch)

    def _failure(self, row: ItemOutcomeRow) -> FailureRow:
        batch = self._tables.mini_batches[row.step_id][row.mini_batch]
        attempts = self._tables.attempts_of(row.step_id, row.mini_batch)
        ended = [one for one in attempts if one.state in (AttemptState.SUCCEEDED, AttemptState.FAILED)]
        by_age = sorted(
            (one for one in attempts if one.node_id), key=lambda one: (_succeeded(one), self._tables.begun(one))
        )
        recipe = (batch.recipe_offset, batch.recipe_length, batch.recipe_crc32)
        node = by_age[-1].node_id if by_age else ""
        told = (row.mini_batch, row.item_count, row.cause, row.message, batch.items_counted)
        return FailureRow(*told, *recipe, len(ended), node, row.item_first - batch.item_first, row.place)


def _succeeded(row: AttemptRow) -> bool:
    return row.state == AttemptState.SUCCEEDED


def _told(index: int, row: MiniBatch) -> MiniBatchRow:
    return MiniBatchRow(
        index, row.state, row.generation, row.item_first, row.item_count, row.items_counted, row.ok_count,
        row.recipe_offset, row.recipe_length, row.recipe_crc32, LeaseId(row.lease_id), row.row_count,
    )  # fmt: skip


def _pages(rows: Iterable[T], page_rows: int) -> Iterator[list[T]]:
    everything = list(rows)
    for at in range(0, len(everything), page_rows):
        yield everything[at : at + page_rows]
