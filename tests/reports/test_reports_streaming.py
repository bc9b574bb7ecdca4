"""Reports of many attempts: streamed from the store a page at a time, in memory that does not grow with them."""

from __future__ import annotations

import csv
import json
import tracemalloc
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from opened_store import open_store
from windrow_master.core.ids import LeaseId, StepId
from windrow_master.core.records import AttemptRow, Dirty
from windrow_master.core.states import AttemptState, Cause, Phase
from windrow_master.reports.mini_batch_tables import PROCESSED_COLUMNS, write_processed, write_summaries
from windrow_master.reports.script_errors import KINDS_MAX, write_script_errors
from windrow_master.store.records import FailureRow
from windrow_master.store.sqlite.store import SqliteStore

STEP = StepId(1)
NODE, FIRST, SECOND = "node-1", "aaaa", "bbbb"


def attempt(
    lease: int,
    mini_batch: int,
    state: AttemptState = AttemptState.SUCCEEDED,
    cause: Cause = Cause.NONE,
    *,
    incarnation: str = FIRST,
    message: str = "",
    detail: str = "",
    phase: Phase = Phase.RUNNING,
    results: int = 10,
) -> AttemptRow:
    start = 1_777_000_000_000_000 + lease % (1 << 32)
    return AttemptRow(
        LeaseId(lease),
        STEP,
        mini_batch,
        1,
        NODE,
        incarnation,
        3,
        state,
        cause,
        start,
        2_000_000,
        1_500_000,
        500_000,
        10,
        results,
        20_480,
        message,
        detail,
        phase,
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = open_store(tmp_path / "state")
    yield made
    made.close()


def rows_of(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as opened:
        reader = csv.DictReader(opened)
        rows = list(reader)
        assert tuple(reader.fieldnames or ()) == PROCESSED_COLUMNS
    return rows


def test_each_attempt_is_a_row_with_how_it_ended(store: SqliteStore, tmp_path: Path) -> None:
    base = store.lease_prefix << 32
    attempts = [
        attempt(base + 1, 0, results=25),
        attempt(base + 2, 1, AttemptState.FAILED, Cause.EXCEPTION, message='says "no", twice', results=0),
        attempt(base + 3, 1, AttemptState.FAILED, Cause.TIMEOUT, phase=Phase.LOADING, results=0),
        attempt(base + 4, 1, incarnation=SECOND, results=7),
        attempt(base + 5, 2, AttemptState.ABANDONED, Cause.NODE_LOST, results=0),
        attempt(base + 6, 3, AttemptState.FAILED, Cause.LOAD_FAILED, phase=Phase.FETCHING, results=0),
        attempt(base + 7, 4, AttemptState.RUNNING, results=0),
    ]
    store.commit(Dirty(attempts=attempts), [], [])
    names = {(NODE, SECOND): "node-1.2"}
    for page_rows in (1, 3, 100):
        lines = "".join(store.reader().attempt_lines_of(STEP, names, page_rows))
        assert lines.count("\r\n") == len(attempts)
    file = tmp_path / "processed.csv"
    write_processed(store.reader(), STEP, names, file)
    rows = rows_of(file)
    assert [(row["Mini-batch Id"], row["Picked Count"], row["Status"], row["Error Category"]) for row in rows] == [
        ("0", "1", "RUN_DONE", ""),
        ("1", "1", "RUN_EXCEPTION", "UserError"),
        ("1", "2", "LOAD_TIMEOUT", "UserError"),
        ("1", "3", "RUN_DONE", ""),
        ("2", "1", "NODE_LOST", "SystemError"),
        ("3", "1", "LOAD_EXCEPTION", "DependencyError"),
        ("4", "1", "LEASED", ""),
    ]
    # More results than items are no more than all items.
    assert [(row["Total"], row["Succeeded"], row["Failed"]) for row in rows[:4]] == [
        ("10", "10", "0"),
        ("10", "0", "10"),
        ("10", "0", "10"),
        ("10", "7", "3"),
    ]
    assert rows[1]["Error Message"] == 'says "no", twice'
    assert [row["Node"] for row in rows[2:4]] == ["node-1", "node-1.2"]
    # What could not be fetched no worker has had.
    assert [row["Process"] for row in rows] == ["process003"] * 5 + ["", "process003"]
    assert rows[0]["Process Start Time"] == "2026-04-24T03:06:40.000001Z"
    assert json.loads(rows[3]["Mini-batch Detail"])["dequeue_count"] == 3
    assert (rows[0]["Elapsed Seconds"], rows[0]["Process Seconds"], rows[0]["Run Method Seconds"]) == (
        "2.000000",
        "0.500000",
        "1.500000",
    )


def test_summaries_add_up_whatever_the_pages(store: SqliteStore, tmp_path: Path) -> None:
    base = store.lease_prefix << 32
    attempts = [attempt(base + n, n, incarnation=FIRST if n % 3 else SECOND) for n in range(1, 50)]
    store.commit(Dirty(attempts=attempts), [], [])
    whole = store.reader().worker_totals_of(STEP)
    assert [(row.node_incarnation, row.attempts, row.items) for row in whole] == [(FIRST, 33, 330), (SECOND, 16, 160)]
    for page_rows in (1, 7, 49):
        paged = store.reader().worker_totals_of(STEP, page_rows)
        assert [row[:-1] for row in paged] == [row[:-1] for row in whole]
    write_summaries(whole, {(NODE, SECOND): "node-1.2"}, tmp_path)
    with (tmp_path / "node_summary.csv").open(newline="") as file:
        nodes = list(csv.DictReader(file))
    assert [(row["Node"], row["Processes"], row["Percent of Mini-batches"]) for row in nodes] == [
        ("node-1", "1", "67.3"),
        ("node-1.2", "1", "32.7"),
    ]


def test_what_could_not_be_fetched_is_of_a_node_and_of_no_process(store: SqliteStore, tmp_path: Path) -> None:
    base = store.lease_prefix << 32
    failed = attempt(base + 2, 1, AttemptState.FAILED, Cause.LOAD_FAILED, phase=Phase.FETCHING, results=0)
    later = attempt(base + 3, 1, AttemptState.FAILED, Cause.LOAD_FAILED, phase=Phase.FETCHING, results=0)
    attempts = [attempt(base + 1, 0), failed, later._replace(start_unix_us=later.start_unix_us + 60_000_000)]
    store.commit(Dirty(attempts=attempts), [], [])
    write_summaries(store.reader().worker_totals_of(STEP), {}, tmp_path)
    told = {}
    for name in ("process", "node"):
        with (tmp_path / f"{name}_summary.csv").open(newline="") as file:
            told[name] = list(csv.DictReader(file))
    assert [(row["Process"], row["Attempts"], row["Failed Attempts"]) for row in told["process"]] == [
        ("", "2", "2"),
        ("process003", "1", "0"),
    ]
    assert [row["Idle Seconds"] for row in (*told["process"], *told["node"])] == ["0.000000"] * 3
    assert [(row["Processes"], row["Failed Attempts"]) for row in told["node"]] == [("1", "2")]
    write_script_errors(store.reader(), STEP, {}, tmp_path / "error.txt", settled=True)
    assert f"First in node {NODE}, " in (tmp_path / "error.txt").read_text()


class ManyPages:
    """A store with as many attempts as one likes, told a page at a time."""

    def __init__(self, pages: int) -> None:
        self._pages = pages

    def attempt_lines_of(self, step_id: StepId, folders: Mapping[tuple[str, str], str]) -> Iterator[str]:
        for number in range(self._pages):
            yield f"{number},1,process000,...\r\n" * 5000

    def failed_attempts_of(self, step_id: StepId) -> Iterator[list[AttemptRow]]:
        for number in range(self._pages):
            first = number * 500
            yield [
                attempt(
                    first + n,
                    first + n,
                    AttemptState.FAILED,
                    Cause.EXCEPTION,
                    message=f"item {first + n} of {'x' * (first % 700)} is bad",
                    detail="Traceback\n" * 20,
                )
                for n in range(500)
            ]

    def failures_of(self, step_id: StepId) -> Iterator[list[FailureRow]]:
        for number in range(self._pages):
            first = number * 500
            yield [FailureRow(first + n, 1, Cause.EXCEPTION, "bad", 1, 0, 0, 0, 1, NODE) for n in range(500)]


def peak_of(pages: int, tmp_path: Path) -> int:
    store = ManyPages(pages)
    tracemalloc.start()
    try:
        write_processed(store, STEP, {}, tmp_path / "processed.csv")  # type: ignore[arg-type]
        write_script_errors(store, STEP, {}, tmp_path / "error.txt", settled=True)  # type: ignore[arg-type]
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_number_of_attempts(tmp_path: Path) -> None:
    few, many = peak_of(20, tmp_path), peak_of(200, tmp_path)
    assert (tmp_path / "processed.csv").stat().st_size > 20 << 20
    assert many < 2 * few and many < 8 << 20, (few, many)


def test_errors_of_a_script_are_told_by_kind(store: SqliteStore, tmp_path: Path) -> None:
    base = store.lease_prefix << 32
    attempts = [
        attempt(
            base + n,
            n // 2,
            AttemptState.FAILED,
            Cause.EXCEPTION,
            message=f"item {n} is bad",
            detail=f"Traceback {n}",
            results=0,
        )
        for n in range(40)
    ]
    names = [f"{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(KINDS_MAX + 5)]
    attempts += [
        attempt(base + 100 + n, 50 + n, AttemptState.FAILED, Cause.EXCEPTION, message=f"kind {name}", results=0)
        for n, name in enumerate(names)
    ]
    store.commit(Dirty(attempts=attempts), [], [])
    file = tmp_path / "error.txt"
    assert write_script_errors(store.reader(), STEP, {}, file, settled=True) == 40 + KINDS_MAX + 5
    text = file.read_text()
    assert "RUN_EXCEPTION: 40 attempts met an exception and recovered on retry; mini-batches 0, 1, 2, " in text
    assert " 8, 9, ...\n" in text
    assert "    Traceback 0\n" in text and "Traceback 1\n" not in text
    assert text.endswith("6 more attempts failed in other ways.\n")
    assert write_script_errors(store.reader(), StepId(2), {}, file, settled=True) == 0
    assert not file.exists()


def test_failures_come_by_mini_batch_and_the_most_tried_first(store: SqliteStore) -> None:
    base = store.lease_prefix << 32
    attempts = [
        attempt(base + 1, 5, AttemptState.FAILED, Cause.CRASH, detail="x" * 9_000),
        attempt(base + 2, 2, AttemptState.FAILED, Cause.CRASH),
        attempt(base + 3, 5, AttemptState.ABANDONED, Cause.NODE_LOST),
        attempt(base + 4, 5),
        attempt(base + 5, 2, AttemptState.FAILED, Cause.CRASH),
        attempt(base + 6, 2, AttemptState.FAILED, Cause.CRASH),
    ]
    store.commit(Dirty(attempts=attempts), [], [])
    reader = store.reader()
    for page_rows in (1, 2, 100):
        failed = [row for page in reader.failed_attempts_of(STEP, page_rows) for row in page]
        assert [(row.mini_batch, row.lease_id - base) for row in failed] == [(2, 2), (2, 5), (2, 6), (5, 1)]
    assert len(failed[-1].detail) == 4000
    assert reader.most_tried_of(STEP, 5) == [(2, 3, 3), (5, 2, 1)]
    assert reader.most_tried_of(STEP, 1) == [(2, 3, 3)]


def test_a_step_without_attempts_has_tables_without_rows(store: SqliteStore, tmp_path: Path) -> None:
    write_processed(store.reader(), STEP, {}, tmp_path / "processed.csv")
    assert rows_of(tmp_path / "processed.csv") == []
    assert store.reader().worker_totals_of(STEP) == []
