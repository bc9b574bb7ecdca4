"""Answers the queries of readers, over connections of their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from windrow_master.core.ids import MINI_BATCH_SHIFT, JobKey, LeaseId, StepId, mini_batch_key
from windrow_master.core.records import AttemptRow, EventRow, ItemOutcomeRow, JobRow, LedgerRow, NodeRow, StepRow
from windrow_master.core.states import AttemptState, Cause, MiniBatchState
from windrow_master.files.errors import StateDamaged
from windrow_master.store.protocol import FAILED_PAGE_ROWS, PAGE_ROWS, SUMMED_ROWS
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
from windrow_master.store.sqlite.assets import find_asset, has_assets, list_assets
from windrow_master.store.sqlite.attempt_report import (
    LONGEST_QUERY,
    MOST_TRIED_QUERY,
    TOTALS_QUERY,
    lines_query,
)
from windrow_master.store.sqlite.check_values import (
    ATTEMPTS,
    CHECK,
    LEASED_BY,
    LEDGER,
    MINI_BATCHES,
    OUTPUT,
    SEGMENT,
    TOKEN,
    checked,
    damaged_mini_batch,
    damaged_row,
    text_crc,
)
from windrow_master.store.sqlite.loading import (
    ATTEMPT_COLUMNS,
    JOB_COLUMNS,
    JOB_FROM,
    NODE_COLUMNS,
    STEPS_OF_JOB,
    attempt_of,
    attempt_without_detail,
    damaged_attempt,
    job_of,
    node_of,
    steps_of_job,
)
from windrow_master.store.sqlite.pages import Pages, paged, typed

OUTPUTS_LOOKED_AT = 16

INDEX = f"key & {(1 << MINI_BATCH_SHIFT) - 1}"
MINI_BATCH_COLUMNS = (
    f"{INDEX}, state, generation, item_first, item_count, items_counted, ok_count, recipe_offset, recipe_length, "
    "recipe_crc32, lease_id, row_count"
).split(", ")
RANGE_COLUMNS = (
    f"{INDEX}, lease_id, items_counted, ok_count, row_count, segment_id, segment_offset, rows_length, rows_crc32"
).split(", ")
UNTOLD_COLUMNS = ATTEMPT_COLUMNS.replace("detail", "'' AS detail")
FIGURE_COLUMNS = [
    "lease_id",
    "mini_batch",
    "node_id",
    "node_incarnation",
    "process_number",
    "state",
    "cause",
    "phase",
    "start_unix_us",
    "elapsed_us",
    "run_us",
    "cpu_us",
    "item_count",
    "peak_rss_kib",
]
ITEM_OUTCOME_COLUMNS = ("o.step_id", "o.mini_batch", "o.item_first", "o.item_count", "o.cause", "o.message", "o.place")
# Two lookups each, because each of the two partial indexes of attempts covers only some states.
_OF_OUTCOME = "FROM attempt AS a WHERE a.step_id = o.step_id AND a.mini_batch = o.mini_batch AND a.state"
TRIES = f"(SELECT count(*) {_OF_OUTCOME} = 2) + (SELECT count(*) {_OF_OUTCOME} <> 2 AND a.state = 3)"
LAST_NODE = (
    f"coalesce((SELECT a.node_id {_OF_OUTCOME} = 2), (SELECT a.node_id {_OF_OUTCOME} <> 2 AND a.node_id <> '' "
    f"ORDER BY {LEASED_BY.format('a')} DESC, a.lease_id DESC LIMIT 1), '')"
)
ATTEMPTS_HELD = " AND ".join(
    f"coalesce((SELECT min({ATTEMPTS.holds('a')}) {_OF_OUTCOME} {states}), 1)" for states in ("= 2", "<> 2")
)
"""The condition that the rows read by TRIES and LAST_NODE are what was written."""
FAILURE_COLUMNS = (
    *("o.mini_batch", "o.item_count", "o.cause", "o.message", "m.items_counted", "m.recipe_offset"),
    *("m.recipe_length", "m.recipe_crc32", TRIES, LAST_NODE, "o.item_first - m.item_first", "o.place"),
)
_FAILURES = f"item_outcome AS o JOIN mini_batch AS m ON m.key = o.step_id << {MINI_BATCH_SHIFT} | o.mini_batch"
_FAILURES_HELD = f"{MINI_BATCHES.holds('m')} AND {ATTEMPTS_HELD}"

_MESSAGE_AT = AttemptRow._fields.index("message")


class SqliteReader(Pages):
    """Implements `store.protocol.StoreReader`, which says what each method returns."""

    def job_by_id(self, job_id: str) -> JobRow | None:
        return self._job("job_id = ?", job_id)

    def job_by_key(self, job_key: JobKey) -> JobRow | None:
        return self._job("job.job_key = ?", job_key)

    def job_by_request(self, request_id: str) -> JobRow | None:
        return self._job("request_id = ? AND request_id <> ''", request_id)

    def jobs_newest_first(self, size: int, before: int | None = None, project: str = "") -> list[JobRow]:
        of_project, values = (" AND queue = ?", (project,)) if project else ("", ())
        rows = self._rows(
            f"SELECT {JOB_COLUMNS} FROM {JOB_FROM} WHERE job.job_key < ?{of_project} ORDER BY job.job_key DESC LIMIT ?",
            (before if before is not None else 1 << 62, *values, size),
        )
        return [job_of(row) for row in rows]

    def steps_of(self, job_key: JobKey) -> list[StepRow]:
        return steps_of_job(self._rows(STEPS_OF_JOB, (job_key,)))

    def mini_batches_of(
        self, step_id: StepId, page_rows: int = PAGE_ROWS, first: int = 0
    ) -> Iterator[list[MiniBatchRow]]:
        for page in self._mini_batch_pages(MINI_BATCH_COLUMNS, "1", step_id, page_rows, first):
            yield typed(MiniBatchRow, page)

    def mini_batches_at(self, step_id: StepId, indices: Sequence[int]) -> list[MiniBatchRow]:
        rows = self._rows(
            f"SELECT {', '.join(MINI_BATCH_COLUMNS)}, {MINI_BATCHES.holds()} FROM mini_batch "
            "WHERE key IN (SELECT value FROM json_each(?)) ORDER BY key",
            (json.dumps([mini_batch_key(step_id, index) for index in indices]),),
        )
        return [MiniBatchRow._make(row) for row in _held(rows, partial(_damaged_mini_batch, step_id))]

    def results_at(self, step_id: StepId, indices: Sequence[int]) -> list[ResultRow]:
        rows = self._rows(
            f"SELECT m.{INDEX}, items_counted, row_count, coalesce(s.name, ''), coalesce(segment_offset, 0), "
            f"coalesce(rows_length, 0), coalesce(rows_crc32, 0), {MINI_BATCHES.holds('m')} AS held "
            "FROM mini_batch AS m LEFT JOIN segment AS s ON s.segment_id = m.segment_id "
            "WHERE m.key IN (SELECT value FROM json_each(?)) "
            f"AND (NOT held OR (m.state = {int(MiniBatchState.SUCCEEDED)} AND ok_count >= items_counted)) "
            "ORDER BY m.key",
            (json.dumps([mini_batch_key(step_id, index) for index in indices]),),
        )
        self.segments_of(step_id)  # this verifies the names of the segments
        return [ResultRow._make(row) for row in _held(rows, partial(_damaged_mini_batch, step_id))]

    def mini_batches_after(
        self, step_id: StepId, after: int, size: int, states: Sequence[int] = (), cause: int | None = None
    ) -> list[int]:
        if cause is not None:
            # Start from the smaller side: failures are few, and have an index.
            found = (
                "SELECT DISTINCT mini_batch FROM attempt INDEXED BY attempt_other "
                "WHERE step_id = :step AND mini_batch > :after AND state <> 2 AND cause = :cause"
                if cause
                else "SELECT DISTINCT mini_batch FROM item_outcome "
                "WHERE step_id = :step AND mini_batch > :after AND cause = 0"
            )
            query = (
                f"SELECT mini_batch, {MINI_BATCHES.holds('m')} AS held FROM ({found}) AS f "
                "JOIN mini_batch AS m ON m.key = :first + f.mini_batch "
                "WHERE (:any OR NOT held OR m.state IN (SELECT value FROM json_each(:states))) "
                "ORDER BY mini_batch LIMIT :size"
            )
        else:
            query = (
                f"SELECT {INDEX}, {MINI_BATCHES.holds()} AS held FROM mini_batch "
                "WHERE key > :first + :after AND key < :stop "
                "AND (:any OR NOT held OR state IN (SELECT value FROM json_each(:states))) ORDER BY key LIMIT :size"
            )
        values = {
            "step": step_id,
            "first": mini_batch_key(step_id, 0),
            "stop": mini_batch_key(StepId(step_id + 1), 0),
            "after": after,
            "cause": cause,
            "any": not states,
            "states": json.dumps([int(state) for state in states]),
            "size": size,
        }
        rows = _held(self._rows(query, values), partial(_damaged_mini_batch, step_id))
        return [index for (index,) in rows]

    def begun_before(self, step_id: StepId, before: tuple[int, int] | None, size: int) -> list[BegunMiniBatch]:
        newest, limit = before if before is not None else (1 << 62, 1 << 62)
        masters = self._rows(
            "SELECT incarnation, lease_prefix FROM master WHERE incarnation <= ? ORDER BY incarnation DESC", (newest,)
        )
        found: list[BegunMiniBatch] = []
        for incarnation, prefix in masters:
            stop = limit if incarnation == newest else prefix + 1 << 32
            rows = self._rows(
                f"SELECT lease_id, mini_batch, {ATTEMPTS.holds()} FROM attempt INDEXED BY attempt_by_step "
                "WHERE step_id = ? AND lease_id >= ? AND lease_id < ? ORDER BY lease_id DESC LIMIT ?",
                (step_id, prefix << 32, stop, size - len(found)),
            )
            found += [
                BegunMiniBatch(incarnation, LeaseId(lease_id), mini_batch)
                for lease_id, mini_batch in _held(rows, damaged_attempt)
            ]
            if len(found) >= size:
                break
        return found

    def attempts_at(self, step_id: StepId, indices: Sequence[int]) -> list[AttemptRow]:
        # Two lookups each, because each of the two partial indexes covers only some states.
        wanted = "FROM json_each(:indices) AS w CROSS JOIN attempt AS a ON a.step_id = :step AND a.mini_batch = w.value"
        rows = self._rows(
            f"SELECT {UNTOLD_COLUMNS}, message_crc32, {ATTEMPTS.holds('found')} FROM ("
            f"SELECT a.* {wanted} AND a.state = 2 UNION ALL SELECT a.* {wanted} AND a.state <> 2"
            ") AS found LEFT JOIN master ON master.lease_prefix = lease_id >> 32 ORDER BY incarnation, lease_id",
            {"step": step_id, "indices": json.dumps(list(indices))},
        )
        return [attempt_without_detail(row) for row in _held(rows, damaged_attempt)]

    def attempts_with(self, lease_ids: Sequence[int]) -> list[AttemptRow]:
        rows = self._rows(
            f"SELECT {UNTOLD_COLUMNS}, message_crc32, {ATTEMPTS.holds('attempt')} FROM attempt "
            "WHERE lease_id IN (SELECT value FROM json_each(?)) ORDER BY lease_id",
            (json.dumps(list(lease_ids)),),
        )
        return [attempt_without_detail(row) for row in _held(rows, damaged_attempt)]

    def attempt_figures_of(self, step_id: StepId, page_rows: int = PAGE_ROWS) -> Iterator[list[AttemptFigures]]:
        for page in self._attempt_pages(FIGURE_COLUMNS, step_id, page_rows):
            yield typed(AttemptFigures, page)

    def ranges_of(self, step_id: StepId, page_rows: int = PAGE_ROWS, first: int = 0) -> Iterator[list[CommittedRange]]:
        for page in self._mini_batch_pages(RANGE_COLUMNS, "segment_id IS NOT NULL", step_id, page_rows, first):
            yield typed(CommittedRange, page)

    def attempts_of(self, step_id: StepId, page_rows: int = PAGE_ROWS) -> Iterator[list[AttemptRow]]:
        for page in self._attempt_pages(ATTEMPT_COLUMNS.split(", "), step_id, page_rows):
            yield typed(AttemptRow, page)

    def attempts_of_mini_batch(self, step_id: StepId, mini_batch: int) -> list[AttemptRow]:
        # Two lookups, because each of the two partial indexes covers only some states.
        rows = self._rows(
            f"SELECT {ATTEMPT_COLUMNS}, message_crc32, texts_crc32, {ATTEMPTS.holds('found')} FROM ("
            "SELECT * FROM attempt WHERE step_id = :step_id AND mini_batch = :mini_batch AND state = 2 UNION ALL "
            "SELECT * FROM attempt WHERE step_id = :step_id AND mini_batch = :mini_batch AND state <> 2"
            ") AS found LEFT JOIN master ON master.lease_prefix = lease_id >> 32 ORDER BY incarnation, lease_id",
            {"step_id": step_id, "mini_batch": mini_batch},
        )
        return [attempt_of(row) for row in _held(rows, damaged_attempt)]

    def counted_failures_of(self, step_id: StepId, mini_batch: int) -> list[tuple[LeaseId, Cause]]:
        rows = self._rows(
            f"SELECT lease_id, cause, {ATTEMPTS.holds()} AS held FROM attempt INDEXED BY attempt_other "
            f"WHERE step_id = ? AND mini_batch = ? AND state <> {int(AttemptState.SUCCEEDED)} AND (NOT held OR "
            f"(state = {int(AttemptState.FAILED)} AND generation >= "
            f"(SELECT tries_since FROM mini_batch WHERE key = ?))) ORDER BY {LEASED_BY.format('attempt')}, lease_id",
            (step_id, mini_batch, mini_batch_key(step_id, mini_batch)),
        )
        return [(LeaseId(lease_id), Cause(cause)) for lease_id, cause in _held(rows, damaged_attempt)]

    def attempt_lines_of(
        self, step_id: StepId, folders: Mapping[tuple[str, str], str], page_rows: int = PAGE_ROWS
    ) -> Iterator[str]:
        query, values = lines_query(folders)
        after, count = -1, page_rows
        while count == page_rows:
            lines, last, count, broken = self._rows(query, [*values, step_id, after, page_rows])[0]
            if broken is not None:
                raise damaged_attempt((broken,))
            if count:
                self._check_texts(step_id, after, last)
                after = last
                yield lines

    def worker_totals_of(self, step_id: StepId, page_rows: int = SUMMED_ROWS) -> list[WorkerTotals]:
        totals: dict[tuple[str, str, int], WorkerTotals] = {}
        after, count = -1, page_rows
        while count == page_rows:
            rows = self._rows(TOTALS_QUERY, (step_id, after, page_rows))
            page = [
                WorkerTotals._make(row) for row in _held(rows, lambda row: damaged_row("attempt", f"step {step_id}"))
            ]
            if page:
                self._check_texts(step_id, after, max(row.last_lease_id for row in page))
            for row in page:
                known = totals.get(row[:3])
                totals[row[:3]] = row if known is None else known.plus(row)
            after = max((row.last_lease_id for row in page), default=after)
            count = sum(row.attempts for row in page)
        return [totals[key] for key in sorted(totals)]

    def failed_attempts_of(
        self, step_id: StepId, page_rows: int = FAILED_PAGE_ROWS, detail_chars: int = 4000
    ) -> Iterator[list[AttemptRow]]:
        end = f"substr(detail, -{int(detail_chars)})"
        columns = [end if column == "detail" else column for column in ATTEMPT_COLUMNS.split(", ")]
        columns.append("message_crc32")  # part of a detail has no checksum of its own
        mini_batch, after = -1, -1
        query = paged(
            columns,
            "FROM attempt INDEXED BY attempt_other WHERE step_id = ? AND state <> 2 AND (state = 3 OR NOT held) "
            "AND (mini_batch, lease_id) > (?, ?) ORDER BY mini_batch, lease_id LIMIT ?",
            ATTEMPTS.holds(),
            "lease_id",
        )
        while page := self._page("attempt", query, (step_id, mini_batch, after, page_rows)):
            for row in page:
                message_crc32 = row.pop()
                if text_crc(row[_MESSAGE_AT]) != message_crc32:
                    raise damaged_attempt(row)
            yield typed(AttemptRow, page)
            if len(page) < page_rows:
                return
            mini_batch, after = page[-1][2], page[-1][0]

    def most_tried_of(self, step_id: StepId, limit: int) -> list[tuple[int, int, int]]:
        return [tuple(row) for row in self._rows(MOST_TRIED_QUERY, (step_id, limit))]

    def longest_of(self, step_id: StepId, longer_than_us: int, limit: int) -> list[tuple[int, int, int]]:
        return [tuple(row) for row in self._rows(LONGEST_QUERY, (step_id, longer_than_us, limit))]

    def attempt(self, lease_id: LeaseId) -> AttemptRow | None:
        rows = self._rows(
            f"SELECT {ATTEMPT_COLUMNS}, message_crc32, texts_crc32, {ATTEMPTS.holds()} FROM attempt WHERE lease_id = ?",
            (lease_id,),
        )
        return attempt_of(_held(rows, damaged_attempt)[0]) if rows else None

    def item_outcomes_of(self, step_id: StepId, page_rows: int = PAGE_ROWS) -> Iterator[list[ItemOutcomeRow]]:
        for page in self._item_outcome_pages(ITEM_OUTCOME_COLUMNS, "item_outcome AS o", step_id, page_rows):
            yield typed(ItemOutcomeRow, page)

    def failures_of(self, step_id: StepId, page_rows: int = PAGE_ROWS) -> Iterator[list[FailureRow]]:
        for page in self._item_outcome_pages(FAILURE_COLUMNS, _FAILURES, step_id, page_rows, _FAILURES_HELD):
            yield typed(FailureRow, page)

    def failures_at(self, step_id: StepId, mini_batch: int) -> list[FailureRow]:
        pages = self._item_outcome_pages(FAILURE_COLUMNS, _FAILURES, step_id, PAGE_ROWS, _FAILURES_HELD, mini_batch)
        return [row for page in pages for row in typed(FailureRow, page)]

    def events_of(self, job_key: JobKey | None, after: int = 0, limit: int = 1000) -> list[tuple[int, EventRow]]:
        rows = self._rows(
            "SELECT id, time, job_key, kind, message FROM event WHERE job_key IS ? AND id > ? ORDER BY id LIMIT ?",
            (job_key, after, limit),
        )
        return [(number, EventRow._make(row)) for number, *row in rows]

    def nodes(self) -> list[NodeRow]:
        return [node_of(row) for row in self._rows(f"SELECT {NODE_COLUMNS} FROM node ORDER BY node_id")]

    def ledger(
        self, first_day: int, last_day: int, project: str = "", page_rows: int = PAGE_ROWS
    ) -> Iterator[list[LedgerRow]]:
        condition, values = (" AND project = ?", [project]) if project else ("", [])
        after = (first_day, -1)
        while True:
            rows = self._rows(
                f"SELECT {LEDGER}, {CHECK}, rowid FROM ledger WHERE (day, rowid) > (?, ?) AND day <= ?{condition} "
                "ORDER BY day, rowid LIMIT ?",
                (*after, last_day, *values, page_rows),
            )
            if rows:
                yield [LedgerRow._make(checked("ledger", row[:-1])) for row in rows]
                after = (rows[-1][1], rows[-1][-1])
            if len(rows) < page_rows:
                return

    def segments_of(self, step_id: StepId) -> list[SegmentRow]:
        rows = self._rows(f"SELECT {SEGMENT}, {CHECK} FROM segment WHERE step_id = ? ORDER BY segment_id", (step_id,))
        return [SegmentRow._make(checked("segment", row)) for row in rows]

    def outputs_at(self, path: str) -> list[OutputRow]:
        rows = self._rows(
            f"SELECT {OUTPUT}, {CHECK} FROM output WHERE path = ? ORDER BY id DESC LIMIT ?", (path, OUTPUTS_LOOKED_AT)
        )
        return [OutputRow._make(checked("output", row)) for row in rows]

    def asset(self, kind: int, name: str, version: str | None) -> AssetRow | None:
        return find_asset(self._rows, kind, name, version)

    def assets(self, kind: int, name: str, size: int, before: int | None = None) -> list[tuple[int, AssetRow]]:
        return list_assets(self._rows, kind, name, size, before)

    def has_assets(self, kind: int, count: int, project: str | None = None) -> bool:
        return has_assets(self._rows, kind, count, project)

    def tokens(self) -> list[TokenRow]:
        rows = self._rows(f"SELECT {TOKEN}, {CHECK} FROM token NOT INDEXED ORDER BY create_time, digest", ())
        return [TokenRow._make(checked("token", row)) for row in rows]

    def _job(self, condition: str, value: object) -> JobRow | None:
        rows = self._rows(f"SELECT {JOB_COLUMNS} FROM {JOB_FROM} WHERE {condition}", (value,))
        return job_of(rows[0]) if rows else None


def _held(rows: Sequence[Sequence[Any]], error: Callable[[Sequence[Any]], StateDamaged]) -> list[Sequence[Any]]:
    """Rows without their last column, which says whether their check value holds. Raises StateDamaged."""
    for row in rows:
        if not row[-1]:
            raise error(row)
    return [row[:-1] for row in rows]


def _damaged_mini_batch(step_id: StepId, row: Sequence[Any]) -> StateDamaged:
    return damaged_mini_batch(mini_batch_key(step_id, row[0]))
