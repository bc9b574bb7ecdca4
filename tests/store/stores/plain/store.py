"""The store: one lock, and a copy of the tables for each write, which takes their place when it is whole."""

from __future__ import annotations

import secrets
import threading
from array import array
from collections import Counter
from collections.abc import Callable, Sequence

from windrow_master.core.counters import Counters
from windrow_master.core.ids import JobKey, StepId
from windrow_master.core.records import (
    CLOCK_SET_BACK,
    EVENTS_OF_NO_JOB_KEPT,
    Dirty,
    EarlierAttempt,
    Snapshot,
    StepRow,
    StepSnapshot,
)
from windrow_master.core.states import AttemptState, JobState, MiniBatchState, StepState
from windrow_master.store.errors import (
    AssetExists,
    DatabaseDamaged,
    JobNotEnded,
    NotReopened,
    OwnershipLost,
    StoreBroken,
    TooManyAssets,
)
from windrow_master.store.protocol import Store
from windrow_master.store.records import (
    AssetLimits,
    AssetRow,
    OutputRow,
    ReopenedJob,
    Reopening,
    RowRange,
    SegmentRow,
    TokenRow,
)

from stores.plain.reader import PlainReader
from stores.plain.tables import MiniBatch, Tables

OUTPUTS_KEPT = 16
"""At most this many records of a path are kept once their jobs are gone."""


class PlainStore(Store):
    """One incarnation over the tables."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._turn = threading.RLock()
        self._closed = False
        tables.masters.append(next(prefix for prefix in iter(_prefix, None) if prefix not in tables.masters))
        self._incarnation = len(tables.masters)

    @property
    def incarnation(self) -> int:
        return self._incarnation

    @property
    def lease_prefix(self) -> int:
        return self._tables.masters[self._incarnation - 1]

    def load(self, job_key: JobKey | None = None) -> Snapshot:
        return _snapshot(self._tables, job_key)

    def commit(self, dirty: Dirty, ranges: Sequence[RowRange], segments: Sequence[SegmentRow]) -> None:
        if len(ranges) != len(dirty.row_blocks):
            raise ValueError(f"{len(dirty.row_blocks)} row blocks came with {len(ranges)} ranges")
        self._write(lambda tables: tables.apply(dirty, list(ranges), list(segments)))

    def record_output(self, row: OutputRow) -> None:
        self._write(lambda tables: tables.outputs.append(row))

    def reopen(self, job: ReopenedJob) -> Snapshot:
        self._write(lambda tables: _reopen(tables, job))
        return _snapshot(self._tables, job.job_key)

    def record_asset(self, row: AssetRow, most: AssetLimits | None = None) -> AssetRow:
        made: list[AssetRow] = []
        self._write(lambda tables: made.append(_add_asset(tables, row, most)))
        return made[0]

    def record_token(self, row: TokenRow) -> None:
        self._write(lambda tables: tables.tokens.update({row.digest: row}))

    def delete_job(self, job_key: JobKey) -> None:
        self._write(lambda tables: _delete_job(tables, job_key))

    def delete_rows(self, job_key: JobKey, steps: Sequence[StepId], rows_max: int = 10_000) -> bool:
        left: list[bool] = []
        self._write(lambda tables: left.append(_delete_rows(tables, job_key, steps, rows_max)))
        return left[0]

    def delete_old(self, events_before: float, ledger_before: int = 0, rows_max: int = 10_000) -> bool:
        left: list[bool] = []
        self._write(lambda tables: left.append(_delete_old(tables, events_before, ledger_before, rows_max)))
        return left[0]

    def reader(self) -> PlainReader:
        return PlainReader(self._tables)

    def on_damage(self, listener: Callable[[DatabaseDamaged], None]) -> None:
        """Nothing damages what is in memory."""

    def close(self) -> None:
        self._closed = True

    def _write(self, work: Callable[[Tables], object]) -> None:
        with self._turn:
            if self._closed:
                raise StoreBroken("the store is closed")
            owner = len(self._tables.masters)
            if owner != self._incarnation:
                raise OwnershipLost(f"the store belongs to master incarnation {owner} by now")
            changed = self._tables.copy()
            work(changed)
            self._tables.replace(changed)


def _prefix() -> int:
    return 1 + secrets.randbelow((1 << 31) - 1)


def _snapshot(tables: Tables, job_key: JobKey | None = None) -> Snapshot:
    jobs = [
        job
        for key, job in sorted(tables.jobs.items())
        if job.state < JobState.COMPLETED and job_key in (None, job.job_key)
    ]
    open_keys = {job.job_key for job in jobs}
    steps = sorted(
        (step for step in tables.steps.values() if step.job_key in open_keys),
        key=lambda step: (step.job_key, step.ordinal),
    )
    return Snapshot(
        tables.job_key_last,
        tables.step_id_last,
        jobs,
        [_step_snapshot(tables, step) for step in steps],
        sorted(tables.nodes.values()) if job_key is None else [],
        frozenset(tables.masters),
        sorted(tables.queues.values()) if job_key is None else [],
        sorted(tables.fleets.values()) if job_key is None else [],
        sorted(tables.allocations.values()) if job_key is None else [],
        [row for _, row in sorted(tables.ledger.items()) if row.job_key in open_keys],
    )


def _step_snapshot(tables: Tables, step: StepRow) -> StepSnapshot:
    ended = step.state >= StepState.COMPLETED
    found = {} if ended else tables.mini_batches.get(step.step_id, {})
    rows = [row for _, row in sorted(found.items())]
    attempts = [
        attempt
        for attempt in sorted(tables.attempts.values(), key=tables.begun)
        if attempt.step_id == step.step_id
        and attempt.state != AttemptState.SUCCEEDED
        and attempt.mini_batch in found
        and found[attempt.mini_batch].state == MiniBatchState.QUEUED
        and attempt.generation >= found[attempt.mini_batch].tries_since
    ]
    return StepSnapshot(
        step,
        bytearray(row.state for row in rows),
        array("Q", (row.item_first for row in rows)),
        array("I", (row.item_count for row in rows)),
        array("Q", (row.recipe_offset for row in rows)),
        array("I", (row.recipe_length for row in rows)),
        array("I", (row.recipe_crc32 for row in rows)),
        array("Q", (row.lease_id for row in rows)),
        array("Q", (row.rank for row in rows if row.rank is not None)),
        [EarlierAttempt(row.mini_batch, row.lease_id, row.state, row.cause, row.node_id) for row in attempts],
    )


def _reopen(tables: Tables, job: ReopenedJob) -> None:
    found = tables.jobs.get(job.job_key)
    if found is None or found.state < JobState.COMPLETED or found.generation != job.generation:
        raise NotReopened(f"job {job.job_key}")
    generation = job.generation + 1
    tables.jobs[job.job_key] = found._replace(
        state=JobState.RUNNING, generation=generation, seq=found.seq + 1, message="", end_time=None,
        run_digest=job.run_digest, document=job.document,
    )  # fmt: skip
    for step_id, how in job.steps.items():
        if how != Reopening.KEPT:
            _reopen_step(tables, tables.steps[step_id], generation, resumed=how == Reopening.RESUMED)


def _reopen_step(tables: Tables, step: StepRow, generation: int, *, resumed: bool) -> None:
    rows = tables.mini_batches.setdefault(step.step_id, {})
    for index, row in list(rows.items()):
        if resumed and row.state == MiniBatchState.SUCCEEDED and row.ok_count >= row.items_counted:
            continue
        for attempt in tables.attempts_of(step.step_id, index):
            if not resumed:
                del tables.attempts[attempt.lease_id]
            elif attempt.state == AttemptState.SUCCEEDED:
                tables.attempts[attempt.lease_id] = attempt._replace(state=AttemptState.ABANDONED)
        rows[index] = MiniBatch(*row[:5], generation, row.rank, tries_since=generation)
    tables.item_outcomes = [row for row in tables.item_outcomes if row.step_id != step.step_id]
    if not resumed:
        rows.clear()
        tables.segments = {key: row for key, row in tables.segments.items() if row.step_id != step.step_id}
        step = step._replace(paths=b"{}", reader=None, header=None, checkpoint=None, start_time=None)
    kept = [row for row in rows.values() if row.state == MiniBatchState.SUCCEEDED]
    taken = [row for row in kept if not row.lease_id]
    counters = Counters(
        planned=len(rows),
        succeeded=len(kept),
        items_total=sum(row.item_count or row.items_counted for row in rows.values()),
        items_ok=sum(row.ok_count for row in kept),
        rows=sum(row.row_count for row in kept),
        output_bytes=sum(row.range.length for row in kept if row.range is not None),
        taken_over=len(taken),
        items_taken_over=sum(row.ok_count for row in taken),
    )
    tables.steps[step.step_id] = step._replace(
        state=StepState.RUNNING if resumed else StepState.WAITING, message="", end_time=None, error_category="",
        counters=counters.to_json(), header=step.header if counters.rows else None,
    )  # fmt: skip


def _add_asset(tables: Tables, wanted: AssetRow, most: AssetLimits | None) -> AssetRow:
    of_name = [row for row in tables.assets if (row.kind, row.name) == (wanted.kind, wanted.name)]
    if wanted.step_id is not None:
        for row in tables.assets:
            if (row.step_id, row.output_name) == (wanted.step_id, wanted.output_name):
                return row
    same = of_name[-1:] if not wanted.version else [row for row in of_name if row.version == wanted.version]
    if same and wanted.step_id is None and _content(same[0]) == _content(wanted):
        return same[0]
    if same and wanted.version:
        raise AssetExists(same[0])
    if most is not None:
        of_kind = [row for row in tables.assets if row.kind == wanted.kind]
        if sum(row.project == wanted.project for row in of_kind) >= most.of_project:
            raise TooManyAssets(of_project=True)
        if len(of_kind) >= most.of_kind:
            raise TooManyAssets(of_project=False)
    if not wanted.version:
        numbers = [int(row.version) for row in of_name if row.version.isdecimal()]
        wanted = wanted._replace(version=str(max(numbers, default=0) + 1))
    tables.assets.append(wanted)
    return wanted


def _content(row: AssetRow) -> tuple[object, ...]:
    return (row.type, row.path, row.is_file, row.description, row.tags)


def _delete_job(tables: Tables, job_key: JobKey) -> None:
    job = tables.jobs.get(job_key)
    if job is None:
        return
    if job.state < JobState.COMPLETED:
        raise JobNotEnded(f"Job {job.job_id} has not ended. Cancel it before you delete it.")
    for step_id in [step.step_id for step in tables.steps.values() if step.job_key == job_key]:
        del tables.steps[step_id]
    del tables.jobs[job_key]


def _delete_rows(tables: Tables, job_key: JobKey, steps: Sequence[StepId], rows_max: int) -> bool:
    if job_key in tables.jobs:
        raise ValueError(f"job {job_key} was not deleted, so its rows stay")
    batches = [(step_id, index) for step_id in steps for index in tables.mini_batches.get(step_id, ())]
    attempts = [row.lease_id for row in tables.attempts.values() if row.step_id in steps]
    items = [row for row in tables.item_outcomes if row.step_id in steps]
    segments = [row.segment_id for row in tables.segments.values() if row.step_id in steps]
    events = [number for number, row in tables.events.items() if row.job_key == job_key]
    left = rows_max
    for rows, delete in (
        (batches, lambda key: tables.mini_batches[key[0]].pop(key[1])),
        (attempts, tables.attempts.pop),
        (items, tables.item_outcomes.remove),
        (segments, tables.segments.pop),
        (events, tables.events.pop),
    ):
        for key in rows[:left]:
            delete(key)
        left -= len(rows[:left])
    return not left


def _delete_old(tables: Tables, events_before: float, ledger_before: int, rows_max: int) -> bool:
    left = rows_max
    of_no_job = [n for n, row in tables.events.items() if row.job_key is None and row.kind != CLOCK_SET_BACK]
    many = {*of_no_job[:-EVENTS_OF_NO_JOB_KEPT]}
    for number, row in list(tables.events.items()):
        is_old = number in many or (row.job_key is None and row.time < events_before and row.kind != CLOCK_SET_BACK)
        if left and is_old:
            del tables.events[number]
            left -= 1
    newer: Counter[str] = Counter()
    for row in reversed(list(tables.outputs)):
        newer[row.path] += 1
        if left and newer[row.path] > OUTPUTS_KEPT and row.job_key not in tables.jobs:
            tables.outputs.remove(row)
            left -= 1
    for key, spent in list(tables.ledger.items()):
        if left and spent.day < ledger_before:
            del tables.ledger[key]
            left -= 1
    return not left
