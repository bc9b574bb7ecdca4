"""A value that is not what was written is never handed out: whoever reads the row gets StateDamaged instead."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from store_groups import attempt_row, begun, completed, job_row, lease, outcome_row, planned, step_row
from store_harness import StoreHarness
from stores.sqlite import HARNESSES
from windrow_master.core.counters import Counters
from windrow_master.core.ids import JobKey, StepId
from windrow_master.core.records import Dirty, ItemOutcomeRow, NodeRow
from windrow_master.core.states import AttemptState, Cause, JobState, MiniBatchState, StepState
from windrow_master.files.errors import StateDamaged
from windrow_master.store.records import (
    AssetRow,
    OutputRow,
    ReopenedJob,
    Reopening,
    Role,
    SegmentRow,
    TokenKind,
    TokenRow,
)
from windrow_master.store.sqlite.check_values import TALLIES, WHOLE_ROWS
from windrow_master.store.sqlite.store import SqliteStore


@pytest.fixture(params=HARNESSES)
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreHarness]:
    """Those over SQLite, whose rows hold check values."""
    made = HARNESSES[request.param](tmp_path / "state")
    yield made
    made.close()


STEP = StepId(1)
JOB = JobKey(1)
PLANNED = 10


def filled(harness: StoreHarness) -> SqliteStore:
    """A store with rows in every table: results, a failure with tries, items that failed, and work that is left."""
    store = harness.open()
    group = begun(0)
    counters = Counters(planned=PLANNED)
    group.steps = [
        step_row(checkpoint=b'{"mini_batches": 10}', reader=b"{}", header=b"a,b", counters=counters.to_json())
    ]
    group.planned = [planned(1, 0, PLANNED)]
    group.nodes = [NodeRow("node-1", "inc-1", 1, "", b"{}", b"{}", 1.5, 1)]
    store.commit(group, [], [])
    dirty, ranges = completed(store, range(3))
    segments = [SegmentRow(store.incarnation << 32 | 1, STEP, "1-1.rows", 1, 1, 150)]
    failed = {"state": AttemptState.FAILED, "cause": Cause.EXCEPTION, "message": "it raised", "detail": "Traceback"}
    dirty.attempts += [attempt_row(3, lease(store, 50), **failed), attempt_row(4, lease(store, 51), **failed)]
    dirty.outcomes.append(outcome_row(3, lease(store, 50), state=MiniBatchState.FAILED, ok_count=0))
    dirty.item_outcomes = [ItemOutcomeRow(STEP, 3, 0, 10, Cause.EXCEPTION, "it raised")]
    store.commit(dirty, ranges, segments)
    store.record_output(OutputRow("/out.csv", JOB, STEP, 1, 1, 5, "digest", 7, 3))
    store.record_asset(AssetRow(1, "net", "1", "uri_file", "/net", True, "a net", b"{}", 2.5))
    store.record_token(TokenRow("d" * 64, "ci", TokenKind.CLIENT, Role.SUBMIT, "", 2.5))
    return store


def every(pages: Iterator[Any]) -> list[Any]:
    return list(pages)


READERS: dict[str, list[Callable[[SqliteStore], object]]] = {
    "job": [
        lambda store: store.load(),
        lambda store: store.reader().job_by_key(JOB),
        lambda store: store.reader().jobs_newest_first(5),
    ],
    "job_document": [lambda store: store.load(), lambda store: store.reader().job_by_key(JOB)],
    "step": [lambda store: store.load(), lambda store: store.reader().steps_of(JOB)],
    "step_document": [lambda store: store.load(), lambda store: store.reader().steps_of(JOB)],
    "mini_batch": [
        lambda store: store.load(),
        lambda store: every(store.reader().ranges_of(STEP)),
        lambda store: every(store.reader().mini_batches_of(STEP)),
        lambda store: every(store.reader().mini_batches_of(STEP, 2)),
    ],
    "attempt": [
        lambda store: every(store.reader().attempts_of(STEP)),
        lambda store: every(store.reader().attempt_figures_of(STEP)),
        lambda store: every(store.reader().attempt_lines_of(STEP, {})),
        lambda store: store.reader().worker_totals_of(STEP),
    ],
    "item_outcome": [
        lambda store: every(store.reader().item_outcomes_of(STEP)),
        lambda store: every(store.reader().failures_of(STEP)),
    ],
    "segment": [lambda store: store.reader().segments_of(STEP), lambda store: store.reader().results_at(STEP, [0])],
    "output": [lambda store: store.reader().outputs_at("/out.csv")],
    "node": [lambda store: store.load(), lambda store: store.reader().nodes()],
    "token": [lambda store: store.reader().tokens()],
    "asset": [
        lambda store: store.reader().asset(1, "net", "1"),
        lambda store: store.reader().asset(1, "net", None),
        lambda store: store.reader().assets(1, "net", 5),
    ],
    "counted": [lambda store: store.load()],
}
FOUND_BY = {"path": "output", "kind": "asset", "name": "asset", "version": "asset"}
"""Columns that rows are looked up by: with another value, a row is not found."""
TEXTS = {"attempt": ("node_id", "node_incarnation", "message", "detail"), "item_outcome": ("message",)}
COLUMNS = [
    *(
        (tally.table, name)
        for tally in TALLIES
        for name in (*tally.columns, *TEXTS.get(tally.table, ()), "check_value")
    ),
    *(
        (table, name)
        for table, names in WHOLE_ROWS.items()
        for name in (*names.split(", "), "check_value")
        if table in READERS and FOUND_BY.get(name) != table
    ),
]
KEYS = {"step_id", "job_key", "mini_batch"}


def damage(store: SqliteStore, table: str, column: str, row: int = 0) -> None:
    """Change one cell of one row, as a flipped bit would."""
    connection: sqlite3.Connection = store._connection
    rowids = [rowid for (rowid,) in connection.execute(f"SELECT rowid FROM {table} ORDER BY rowid")]
    (value,) = connection.execute(f"SELECT {column} FROM {table} WHERE rowid = ?", (rowids[row],)).fetchone()
    connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (flipped(value), rowids[row]))


def flipped(value: Any) -> Any:
    if value is None:
        return 0
    if isinstance(value, str):
        return "x" + value[1:]
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:]
    if isinstance(value, float):
        return value * 2
    return value ^ 1 << 4


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_a_changed_cell_is_not_handed_out(harness: StoreHarness, table: str, column: str) -> None:
    store = filled(harness)
    for read in READERS[table]:
        read(store)
    damage(store, table, column)
    seen = 0
    for read in READERS[table]:
        try:
            read(store)
        except StateDamaged as error:
            seen += 1
            assert "windrow.db, table " in str(error)
        else:
            # A row that went to another step or job is not found there; what counts its rows tells.
            assert column in KEYS or (table, column) in {("job", "job_key"), ("mini_batch", "key")}, read
    assert seen or column in KEYS, "nobody noticed"


@pytest.mark.parametrize(
    "column", ["state", "generation", "item_count", "recipe_offset", "recipe_crc32", "tries_since"]
)
def test_later_writes_to_a_damaged_row_do_not_make_it_look_whole(harness: StoreHarness, column: str) -> None:
    store = filled(harness)
    damage(store, "mini_batch", column, 5)
    dirty, ranges = completed(store, [5])
    store.commit(dirty, ranges, [])
    with pytest.raises(StateDamaged, match="step 1, mini-batch 5"):
        store.load()


def test_every_kind_of_write_keeps_the_check_values(harness: StoreHarness) -> None:
    store = filled(harness)
    # Committed rows that are lost: the verdict on their attempt, and the mini-batch queued again.
    verdict = attempt_row(1, lease(store, 2), AttemptState.FAILED, node_id="", cause=Cause.ROWS_LOST, message="lost")
    queued = outcome_row(1, 0, state=MiniBatchState.QUEUED, item_count=0, ok_count=0)
    store.commit(Dirty(outcomes=[queued], attempts=[verdict], cancelled_steps=[STEP]), [], [])
    store.commit(Dirty(item_outcomes_cleared=[(STEP, 3)]), [], [])
    for reads in READERS.values():
        for read in reads:
            read(store)
    ended = step_row(state=StepState.FAILED, counters=Counters(planned=PLANNED).to_json())
    store.commit(Dirty(jobs=[job_row(state=JobState.FAILED)], steps=[ended]), [], [])
    for how in (Reopening.RESUMED, Reopening.ANEW):
        job = store.reader().job_by_key(JOB)
        assert job is not None
        store.reopen(ReopenedJob(JOB, job.generation, b'{"steps": [1]}', "digest", {STEP: how}))
        for reads in READERS.values():
            for read in reads:
                read(store)
        store.commit(Dirty(jobs=[job._replace(generation=job.generation + 1)]), [], [])


@pytest.mark.parametrize("index", [0, 4, PLANNED - 1])
def test_a_mini_batch_that_vanished_is_missed(harness: StoreHarness, index: int) -> None:
    store = filled(harness)
    store._connection.execute("DELETE FROM mini_batch WHERE key = ?", (1 << 32 | index,))
    reader = store.reader()
    for read in (
        store.load,
        lambda: every(reader.mini_batches_of(STEP)),
        lambda: every(reader.ranges_of(STEP)),
        lambda: every(reader.ranges_of(STEP, 2)),
    ):
        with pytest.raises(StateDamaged, match=r"mini_batch, step 1.*rows were written there"):
            read()


def test_a_retry_refuses_damaged_rows(harness: StoreHarness) -> None:
    store = filled(harness)
    store.commit(Dirty(jobs=[job_row(state=JobState.FAILED)]), [], [])
    damage(store, "mini_batch", "ok_count", 1)
    with pytest.raises(StateDamaged, match="step 1, mini-batch 1"):
        store.reopen(ReopenedJob(JOB, 1, b"{}", "digest", {STEP: Reopening.RESUMED}))
    job = store.reader().job_by_key(JOB)
    assert job is not None and job.state == JobState.FAILED


@pytest.mark.parametrize("table", ["job_document", "step_document"])
def test_a_document_that_vanished_is_missed(harness: StoreHarness, table: str) -> None:
    store = filled(harness)
    store._connection.execute(f"DELETE FROM {table}")
    with pytest.raises(StateDamaged, match=table):
        store.load()


def test_a_new_master_refuses_damaged_incarnations(harness: StoreHarness) -> None:
    store = filled(harness)
    damage(store, "master", "lease_prefix")
    with pytest.raises(StateDamaged, match="table master"):
        harness.open()


@pytest.mark.parametrize("page_rows", [1, 2, 100])
@pytest.mark.parametrize("state", [StepState.CONCATENATING, StepState.COMPLETED, StepState.FAILED])
def test_items_that_failed_are_all_there_once_their_step_has_come_to_its_end(
    harness: StoreHarness, state: StepState, page_rows: int
) -> None:
    """An index that is damaged hides rows without a word: the step has counted the items."""
    store = filled(harness)
    more = [ItemOutcomeRow(STEP, 4, 0, 2, Cause.EXCEPTION, "it raised")]
    counters = Counters(planned=PLANNED, items_failed=12)
    store.commit(Dirty(steps=[step_row(state=state, counters=counters.to_json())], item_outcomes=more), [], [])
    reader = store.reader()
    assert len([row for page in reader.failures_of(STEP, page_rows) for row in page]) == 2
    store._connection.execute("DELETE FROM item_outcome WHERE mini_batch = 4")
    for read in (reader.failures_of, reader.item_outcomes_of):
        with pytest.raises(StateDamaged, match="12 failed items were counted, but 10 are stored"):
            every(read(STEP, page_rows))


def test_the_latest_version_of_an_asset_is_found_past_indexes_that_hide_it(harness: StoreHarness) -> None:
    store = filled(harness)
    connection: sqlite3.Connection = store._connection
    latest = AssetRow(1, "net", "2", "uri_file", "/net2", True, "a net", b"{}", 2.5)
    hides = " WHERE version <> '2'"
    for name in ("asset_by_name", "asset_by_age"):
        (sql,) = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (name,)).fetchone()
        connection.execute(f"DROP INDEX {name}")
        connection.execute(sql + hides)
    store.record_asset(latest)
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_schema SET sql = replace(sql, ?, '') WHERE type = 'index'", (hides,))
    connection.execute("PRAGMA writable_schema = RESET")
    assert connection.execute("SELECT version FROM asset WHERE kind = 1 AND name = 'net'").fetchall() == [("1",)]
    assert store.reader().asset(1, "net", None) == latest
    assert store.reader().asset(1, "net", "2") == latest
