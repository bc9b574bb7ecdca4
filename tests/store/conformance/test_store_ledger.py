"""What every store keeps of the ledger: the newest sums by job, day, project and pool, for longer than their jobs."""

from __future__ import annotations

from store_groups import job_row
from store_harness import StoreHarness
from windrow_master.core.ids import JobKey
from windrow_master.core.records import Dirty, LedgerRow
from windrow_master.core.states import JobState
from windrow_master.reports.usage import Key, Usage, usage_of

JOB_1, JOB_2 = JobKey(1), JobKey(2)
ROWS = [
    LedgerRow(JOB_1, 100, "vision", "", "job-1", "ann", 1, 2, 3, 4, 5, 6, 7),
    LedgerRow(JOB_1, 101, "vision", "big,gpu", "job-1", "ann", 10, 20, 30, 40, 50, 60, 70),
    LedgerRow(JOB_1, 101, "web", "big,gpu", "job-1", "ann", 100, 200, 300, 400, 500, 600, 700),
    LedgerRow(JOB_2, 101, "web", "", "job-2", "", 1 << 50),
]


def test_sums_are_replaced_by_job_day_project_and_pool_and_loaded_for_open_jobs(harness: StoreHarness) -> None:
    store = harness.open()
    jobs = [job_row(1), job_row(2, JobState.COMPLETED)]
    store.commit(Dirty(jobs=jobs, ledger=ROWS), [], [])
    changed = ROWS[1]._replace(useful_us=11, lived_us=71)
    store.commit(Dirty(ledger=[changed]), [], [])
    for snapshot in (store.load(), store.load(JOB_1), harness.open().load()):
        assert snapshot.ledger == [ROWS[0], changed, ROWS[2]]
    assert harness.open().load(JOB_2).ledger == []


def test_days_and_projects_are_read_in_pages(harness: StoreHarness) -> None:
    store = harness.open()
    store.commit(Dirty(jobs=[job_row(1), job_row(2)], ledger=ROWS), [], [])
    reader = store.reader()

    def found(first: int, last: int, project: str = "") -> list[LedgerRow]:
        pages = list(reader.ledger(first, last, project, page_rows=2))
        assert all(0 < len(page) <= 2 for page in pages)
        return sorted(row for page in pages for row in page)

    assert found(0, 1000) == ROWS
    assert found(100, 100) == ROWS[:1]
    assert found(101, 101) == ROWS[1:]
    assert found(0, 1000, "web") == ROWS[2:]
    assert found(102, 1000) == found(0, 99) == []


def test_usage_is_added_up_by_what_is_asked_for(harness: StoreHarness) -> None:
    store = harness.open()
    store.commit(Dirty(jobs=[job_row(1), job_row(2)], ledger=ROWS), [], [])
    reader = store.reader()
    sums = [tuple(map(sum, zip(*(row.sums for row in rows), strict=True))) for rows in (ROWS[:2], ROWS[2:], ROWS)]
    assert usage_of(reader, 0, 1000, by=[Key.PROJECT]) == [
        Usage({Key.PROJECT: "vision"}, sums[0]),
        Usage({Key.PROJECT: "web"}, sums[1]),
    ]
    assert usage_of(reader, 0, 1000) == [Usage({}, sums[2])]
    by = [Key.DAY, Key.USER, Key.JOB, Key.POOL]
    assert [tuple(one.keys.values()) for one in usage_of(reader, 0, 1000, "web", by)] == [
        (101, "", "job-2", ""),
        (101, "ann", "job-1", "big,gpu"),
    ]
    assert usage_of(reader, 5, 6) == []


def test_rows_outlive_their_job_until_they_are_old(harness: StoreHarness) -> None:
    store = harness.open()
    store.commit(Dirty(jobs=[job_row(1, JobState.COMPLETED), job_row(2, JobState.COMPLETED)], ledger=ROWS), [], [])
    store.delete_job(JOB_1)
    while store.delete_rows(JOB_1, []):
        pass
    reader = store.reader()
    assert sorted(row for page in reader.ledger(0, 1000) for row in page) == ROWS
    assert store.delete_old(0.0, 101) is False
    assert sorted(row for page in reader.ledger(0, 1000) for row in page) == ROWS[1:]
    while store.delete_old(0.0, 102, rows_max=1):
        pass
    assert list(reader.ledger(0, 1000)) == []
