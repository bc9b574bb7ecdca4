"""Whatever numbers a completion brings: the core counts them, the store takes them, and every view shows the job."""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from core_driver import CoreDriver, completion
from hypothesis import given, settings
from hypothesis import strategies as st
from opened_store import open_store
from windrow.rpc.v1 import work_pb2
from windrow_master.core import commands
from windrow_master.core.bounds import DURATION_US_MAX, TIME_US_MAX
from windrow_master.core.counters import Counters
from windrow_master.core.headers import HEADER_BYTES_MAX
from windrow_master.core.ids import JobKey, StepId
from windrow_master.core.records import StepRow
from windrow_master.core.settings import StepSettings
from windrow_master.core.states import StepState
from windrow_master.reports.job_report import Present, job_report
from windrow_master.reports.mini_batch_tables import write_processed, write_summaries
from windrow_master.rpc.mini_batch_views import attempt_message
from windrow_master.rpc.views import job_message
from windrow_master.shell.slow_before import completed_before, slow_in
from windrow_master.store.protocol import Store, StoreReader
from windrow_master.store.records import RowRange, SegmentRow

MINI_BATCHES = 4
ODD = (0, 1, 2**31, 2**32 - 1, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


@dataclass
class StoredDriver(CoreDriver):
    """A core whose groups also go into a database."""

    store: Store | None = None

    def submit(self, *steps: StepSettings, **_: Any) -> JobKey:
        document = {"display_name": "nightly", "steps": [{"name": step.name} for step in steps]}
        command = commands.SubmitJob("job", "r", json.dumps(document).encode(), "digest", steps, project="mine")
        key: JobKey = self.do(command)
        return key

    def commit(self) -> None:
        assert self.store is not None
        dirty = self.core.take_dirty()
        length = sum(block.length for block in dirty.row_blocks)
        segment = SegmentRow(1, StepId(1), "1-1.rows", self.store.incarnation, 0, length)
        self.store.commit(
            dirty,
            [RowRange(1, 0, block.length, block.crc32) for block in dirty.row_blocks],
            [segment] if dirty.row_blocks else [],
        )


def numbers(most: int, least: int = 0) -> st.SearchStrategy[int]:
    odd = sorted({number for number in (*ODD, -1, -(2**63)) if least <= number <= most})
    return st.one_of(st.sampled_from(odd), st.integers(least, most))


u32, u64, i64 = numbers(2**32 - 1), numbers(2**64 - 1), numbers(2**63 - 1, -(2**63))
fields = {
    "item_count": st.one_of(st.just(1), u32),
    "result_count": u32,
    "row_count": u32,
    "start_unix_us": i64,
    "elapsed_us": u64,
    "run_us": u64,
    "cpu_us": u64,
    "peak_rss_kib": u64,
    "process_number": u32,
    "retry_after_us": u64,
    "phase": numbers(2**31 - 1, -(2**31)),
    "piece_first": u32,
    "piece_count": u32,
    "message": st.text(max_size=20),
    "detail": st.text(max_size=20),
    "misfits": st.lists(st.builds(work_pb2.Misfit, column=st.sampled_from(["a", "b"]), count=u64), max_size=3),
    "failed_items": st.lists(
        st.builds(work_pb2.FailedItems, first=u32, count=u32, cause=numbers(2**31 - 1, -(2**31))), max_size=2
    ),
    "worker_start": st.builds(work_pb2.WorkerStart, prepare_us=u64, start_us=u64, init_us=u64),
    "data_cache": st.builds(work_pb2.DataCacheUse, hits=u64, misses=u64, bytes_saved=u64, evictions=u64),
}
reported = st.fixed_dictionaries(
    {"cause": st.one_of(st.just(0), st.just(0), numbers(2**31 - 1, -(2**31)))}, optional=fields
)


@given(st.lists(reported, min_size=MINI_BATCHES, max_size=MINI_BATCHES), st.booleans())
@settings(deadline=None, max_examples=60)
def test_whatever_a_completion_says_the_job_is_stored_shown_and_reported(
    results: list[dict[str, Any]], planned: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder))
        try:
            driver = StoredDriver(store=store)
            step = driver.running([int(planned)] * MINI_BATCHES, max_retries=0, error_threshold=-1)
            driver.join()
            for lease, result in zip(driver.held(), results, strict=True):
                given_result = completion(lease.lease_id, rows=b"" if result["cause"] else b"row\n")
                given_result.MergeFrom(work_pb2.Completion(**result))
                driver.complete("n1", given_result)
            assert step.counters.ended + step.counters.queued + step.counters.leased == MINI_BATCHES
            look_at_everything(store.reader(), Path(folder))
            # As the next master finds it.
            store.load()
        finally:
            store.close()


def look_at_everything(reader: StoreReader, folder: Path) -> None:
    (job,) = reader.jobs_newest_first(10)
    steps = reader.steps_of(job.job_key)
    message = job_message(job, steps)
    assert len(message.steps) == 1
    message.SerializeToString()
    json.loads(job_report(reader, job, steps, Present(1_700_000_000.0)))
    (step,) = steps
    write_processed(reader, step.step_id, {}, folder / "processed.csv")
    totals = reader.worker_totals_of(step.step_id)
    write_summaries(totals, {}, folder)
    csv.field_size_limit(sys.maxsize)
    for name in ("processed", "process_summary", "node_summary"):
        with (folder / f"{name}.csv").open(newline="") as file:
            assert len(list(csv.reader(file))) >= 1
    for row in (row for page in reader.attempts_of(step.step_id) for row in page):
        attempt_message(row, row.lease_id).SerializeToString()
        assert 0 <= row.elapsed_us <= DURATION_US_MAX and 0 <= row.start_unix_us <= TIME_US_MAX
    slow_in(reader, step)


def test_a_sum_of_durations_that_one_number_does_not_hold_is_summed(tmp_path: Path) -> None:
    """An earlier version stored any duration."""
    store = open_store(tmp_path)
    driver = StoredDriver(store=store)
    driver.running([1, 1, 1])
    driver.join()
    for lease in driver.held():
        driver.complete("n1", completion(lease.lease_id, elapsed_us=5, run_us=5, start_unix_us=1))
    reader = store.reader()
    (before,) = reader.worker_totals_of(StepId(1))
    assert (before.elapsed_us, before.run_us) == (15, 15)
    _write_as_another_version(tmp_path)
    (totals,) = reader.worker_totals_of(StepId(1))
    assert totals.elapsed_us == 2**63 - 1
    write_summaries([totals], {}, tmp_path)
    for row in (row for page in reader.attempts_of(StepId(1)) for row in page):
        attempt_message(row._replace(start_unix_us=-(2**63)), row.lease_id)
    store.close()


def _write_as_another_version(folder: Path) -> None:
    import sqlite3

    from windrow_master.store.sqlite.check_values import ATTEMPTS

    with sqlite3.connect(folder / "windrow.db") as database:
        database.execute(f"UPDATE attempt SET {ATTEMPTS.set_to({'elapsed_us': str(2**63 - 1)})}")
    database.close()


def test_what_was_slow_before_is_asked_of_the_own_project(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    driver = StoredDriver(store=store)
    driver.running([1])
    driver.join()
    driver.complete("n1", *(completion(lease.lease_id) for lease in driver.held()))
    driver.finish_step()
    reader = store.reader()
    (job,) = reader.jobs_newest_first(1)
    (step,) = reader.steps_of(job.job_key)
    assert step.state == StepState.COMPLETED
    assert completed_before(reader, "next", "nightly", "mine") == {"step": step}
    assert completed_before(reader, "next", "nightly", "theirs") == {}
    store.close()


def test_no_list_of_jobs_fails_for_one_that_cannot_be_shown(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    driver = StoredDriver(store=store)
    driver.running([1])
    (job,) = store.reader().jobs_newest_first(1)
    (step,) = store.reader().steps_of(job.job_key)
    odd: StepRow = step._replace(counters=Counters(planned=2**70).to_json())
    shown = job_message(job, [odd])
    assert (shown.job_id, shown.state, len(shown.steps)) == (job.job_id, job.state, 0)
    assert "cannot be shown" in shown.message
    store.close()


def test_misfits_that_an_earlier_version_has_stored_are_shown(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    driver = StoredDriver(store=store)
    driver.running([1])
    (job,) = store.reader().jobs_newest_first(1)
    (step,) = store.reader().steps_of(job.job_key)
    odd = step._replace(counters=Counters(planned=1, misfits={"a": [2**65, "x"]}).to_json(), state=StepState.COMPLETED)
    shown = job_message(job, [odd])
    assert shown.steps[0].misfits == 2**64 - 1 and "36,893,488,147,419,103,232" in shown.warnings[0]
    store.close()


@pytest.mark.parametrize("row_format", ["text", "csv", "parquet"])
def test_rows_without_bytes_are_not_counted_but_in_a_format_that_has_them(row_format: str) -> None:
    driver = CoreDriver()
    step = driver.running([1], row_format=row_format)
    driver.join()
    told = completion(driver.held()[0].lease_id, rows=b"row\n")
    told.row_count = 3_000_000_000
    driver.complete("n1", told)
    assert step.counters.rows == (3_000_000_000 if row_format == "parquet" else 4)


@pytest.mark.parametrize("row_format", ["text", "csv", "parquet"])
def test_a_header_that_no_step_keeps_fails_the_mini_batch_and_says_so(row_format: str) -> None:
    driver = CoreDriver()
    step = driver.running([1, 1], row_format=row_format, max_retries=0)
    driver.join()
    one, two = driver.held()
    driver.complete("n1", completion(one.lease_id, header=b"x" * (HEADER_BYTES_MAX + 1)))
    assert step.header is None and step.counters.failed == 1
    (kind,) = step.counters.kinds.values()
    assert "header" in kind["message"] and "8,388,609 bytes" in kind["message"] and "fewer columns" in kind["message"]
    driver.complete("n1", completion(two.lease_id, header=b"a\n"))
    assert step.header == b"a\n" and step.counters.succeeded == 1
