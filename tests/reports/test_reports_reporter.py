"""The reporter over a real store: what it leaves, again after a master that died, and where it cannot write."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from opened_store import open_store
from windrow_master.core.counters import Counters
from windrow_master.core.ids import JobKey, LeaseId, StepId
from windrow_master.core.records import (
    PLAN_RECORD,
    AttemptRow,
    Dirty,
    EventRow,
    ItemOutcomeRow,
    JobRow,
    PlannedRows,
    StepRow,
)
from windrow_master.core.states import AttemptState, Cause, JobState, StepState
from windrow_master.files.state_files import StateFiles
from windrow_master.reports.node_folders import write_register
from windrow_master.shell.reporting import MARKER, Reporter
from windrow_master.store.sqlite.store import SqliteStore

BEGIN = 1_777_000_000.0
KEY, STEP = JobKey(1), StepId(1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = open_store(tmp_path / "state")
    yield made
    made.close()


def job_row(state: JobState, *, seq: int = 9, generation: int = 1) -> JobRow:
    document = json.dumps({"steps": [{"name": "score"}]}).encode()
    end = BEGIN + 60 if state >= JobState.COMPLETED else None
    return JobRow(KEY, "job-1", "r1", state, generation, seq, "default", 0, 1, "", document, "", b"[]", BEGIN, end)


def step_row(state: StepState, done: int) -> StepRow:
    counters = Counters(planned=10, succeeded=done, items_total=10, items_ok=done, rows=done)
    checkpoint = json.dumps({"mini_batches": 10, "items": 10, "position": None, "done": True}).encode()
    end = BEGIN + 60 if state >= StepState.COMPLETED else None
    return StepRow(STEP, KEY, 0, "score", state, "", b"{}", None, checkpoint, counters.to_json(), None, BEGIN + 1, end)


def attempts(store: SqliteStore) -> list[AttemptRow]:
    return [
        AttemptRow(
            LeaseId((store.lease_prefix << 32) + n + 1),
            STEP,
            n,
            1,
            "node-1",
            "aaaa",
            0,
            AttemptState.SUCCEEDED,
            0,
            int(BEGIN * 1e6),
            1000,
            900,
            800,
            1,
            1,
            1,
            "",
            "",
        )
        for n in range(10)
    ]


def commit(store: SqliteStore, job: JobRow, step: StepRow) -> None:
    store.commit(Dirty(jobs=[job], steps=[step], attempts=attempts(store)), [], [])


def reporter_of(store: SqliteStore, tmp_path: Path, clock: Callable[[], float] = lambda: BEGIN + 70) -> Reporter:
    return Reporter(store.reader(), store.incarnation, StateFiles(tmp_path / "state"), embedded=False, clock=clock)


def logs_of(tmp_path: Path) -> Path:
    return tmp_path / "state" / "jobs" / "job-1" / "logs"


def test_who_reads_the_logs_of_an_ended_job_waits_for_its_reports(store: SqliteStore, tmp_path: Path) -> None:
    commit(store, job_row(JobState.COMPLETED), step_row(StepState.COMPLETED, 10))

    async def scenario() -> None:
        reporter = reporter_of(store, tmp_path)
        reporter.begin_step(STEP, logs_of(tmp_path) / "score", "")
        reporter.end_job(KEY)
        await reporter.settled(KEY)
        assert (logs_of(tmp_path) / "job_result.txt").read_text().startswith("Job job-1: Completed\n")
        await reporter.close()

    asyncio.run(scenario())
    step = logs_of(tmp_path) / "score"
    assert (step / "sys" / "job_report" / "processed_mini-batches.csv").read_text().count("RUN_DONE") == 10
    # Short where all went well: nothing about failures, nothing to do.
    result = (step / "job_result.txt").read_text()
    assert "What" not in result and len(result.splitlines()) < 8
    assert not (step / "job_error.txt").exists()


@pytest.mark.parametrize("lost", ["", MARKER, "job_result.txt", "score/sys/job_report/processed_mini-batches.csv"])
def test_reports_that_an_earlier_master_could_not_finish_are_written_again_whole(
    store: SqliteStore, tmp_path: Path, lost: str
) -> None:
    commit(store, job_row(JobState.COMPLETED), step_row(StepState.COMPLETED, 10))

    async def one_master() -> None:
        reporter = reporter_of(store, tmp_path)
        await reporter.close()

    asyncio.run(one_master())
    logs = logs_of(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in logs.rglob("*") if path.is_file()}
    assert before
    if lost:
        # What a crash leaves: nothing, or a name without content.
        (logs / lost).write_text("")
    asyncio.run(one_master())
    after = {path: path.stat().st_mtime_ns for path in logs.rglob("*") if path.is_file()}
    assert (logs / "job_result.txt").read_text().startswith("Job job-1: Completed\n")
    assert (logs / "score/sys/job_report/processed_mini-batches.csv").read_text().count("RUN_DONE") == 10
    if not lost:
        assert before == after, "all was there: nothing is written again"


def test_a_report_that_cannot_be_written_is_told_and_the_others_are_there(store: SqliteStore, tmp_path: Path) -> None:
    commit(store, job_row(JobState.COMPLETED), step_row(StepState.COMPLETED, 10))
    logs = logs_of(tmp_path)
    (logs / "score" / "sys").mkdir(parents=True)
    (logs / "score" / "sys" / "job_report").write_text("a file where a folder should be")
    (logs / "readme.txt").mkdir()

    async def scenario() -> list[str]:
        reporter = reporter_of(store, tmp_path)
        reporter.end_job(KEY)
        await reporter.settled(KEY)
        problems = reporter.problems_of(KEY)
        await reporter.close()
        return problems

    problems = asyncio.run(scenario())
    assert len(problems) == 3 and all("could not be written" in problem for problem in problems)
    assert any("processed_mini-batches.csv" in problem for problem in problems)
    assert (logs / "score" / "job_result.txt").exists() and (logs / "job_result.txt").exists()


def test_a_job_that_runs_again_has_no_result_until_it_ends_again(store: SqliteStore, tmp_path: Path) -> None:
    logs = logs_of(tmp_path)

    async def scenario() -> None:
        commit(store, job_row(JobState.FAILED), step_row(StepState.FAILED, 4))
        reporter = reporter_of(store, tmp_path)
        reporter.end_job(KEY)
        await reporter.settled(KEY)
        assert (logs / "job_result.txt").read_text().startswith("Job job-1: Failed\n")
        assert (logs / "score" / "job_error.txt").exists()
        commit(store, job_row(JobState.RUNNING, seq=12, generation=2), step_row(StepState.RUNNING, 4))
        reporter.running(KEY)
        reporter._look([KEY])
        assert not (logs / "job_result.txt").exists() and not (logs / "score" / "job_error.txt").exists()
        commit(store, job_row(JobState.COMPLETED, seq=20, generation=2), step_row(StepState.COMPLETED, 10))
        reporter.end_job(KEY)
        await reporter.close()

    asyncio.run(scenario())
    assert (logs / "job_result.txt").read_text().startswith("Job job-1: Completed\n")
    assert not (logs / "score" / "job_error.txt").exists()


@pytest.mark.parametrize(
    ("logged", "mini_batch", "named"),
    [
        (["n1", "n1.2", "n10"], 4, "n1.2"),
        (["n10"], 4, "n1.2"),
        (["n1.2", "n10"], -1, "n1.2"),
        (["n10"], -1, "n1"),
    ],
)
def test_the_log_to_read_first_is_that_of_the_node_that_failed(
    store: SqliteStore, tmp_path: Path, logged: list[str], mini_batch: int, named: str
) -> None:
    logs = logs_of(tmp_path) / "score"
    for folder in logged:
        (logs / "user" / "error" / folder).mkdir(parents=True)
        (logs / "user" / "error" / folder / "process003.txt").touch()
    write_register(logs / "nodes.json", {"n1": ["aaaa", "bbbb"], "n10": ["cccc"]})
    counters = Counters(planned=10, succeeded=9, failed=1, items_total=10, items_ok=9, items_failed=1)
    cause = Cause.EXCEPTION if mini_batch >= 0 else Cause.INIT_FAILED
    counters.add_failure(cause, mini_batch, "no", "", "n1", 3)
    failed = attempts(store)[4]._replace(
        node_id="n1", node_incarnation="bbbb", process_number=3, state=AttemptState.FAILED, cause=cause
    )
    step = step_row(StepState.FAILED, 9)._replace(counters=counters.to_json())
    outcome = ItemOutcomeRow(STEP, 4, 4, 1, cause, "no")
    planned = PlannedRows(STEP, 0, 1, b"".join(PLAN_RECORD.pack(number, 1, 0, 0, 0) for number in range(10)))
    dirty = Dirty([job_row(JobState.FAILED)], [step], [planned], attempts=[failed], item_outcomes=[outcome])
    store.commit(dirty, [], [])

    async def scenario() -> None:
        reporter = reporter_of(store, tmp_path)
        reporter.end_job(KEY)
        await reporter.close()

    asyncio.run(scenario())
    told = (logs / "job_result.txt").read_text()
    assert f"Read first: windrow job logs job-1 score/user/error/{named}/process003.txt" in told


@pytest.mark.parametrize("ends_again", [False, True])
def test_reports_of_an_end_that_are_written_while_the_job_runs_again_are_not_taken_for_the_next_ones(
    store: SqliteStore, tmp_path: Path, ends_again: bool
) -> None:
    logs, begun, gate = logs_of(tmp_path), threading.Event(), threading.Event()

    async def scenario() -> None:
        commit(store, job_row(JobState.FAILED), step_row(StepState.FAILED, 4))
        reporter = reporter_of(store, tmp_path)
        write_tables = reporter._write_tables

        def slow(step_id: StepId, step_logs: Path, job_file: str, *, settled: bool) -> list[str]:
            begun.set()
            assert gate.wait(60)
            return write_tables(step_id, step_logs, job_file, settled=settled)

        reporter._write_tables = slow  # type: ignore[method-assign]
        reporter.end_job(KEY)
        assert await asyncio.to_thread(begun.wait, 60)
        commit(store, job_row(JobState.RUNNING, seq=12, generation=2), step_row(StepState.RUNNING, 4))
        reporter.running(KEY)
        reporter._look([KEY])
        if ends_again:
            commit(store, job_row(JobState.COMPLETED, seq=20, generation=2), step_row(StepState.COMPLETED, 10))
            reporter.end_job(KEY)
        gate.set()
        await reporter.close()

    asyncio.run(scenario())
    result = logs / "job_result.txt"
    assert result.exists() is ends_again and not (logs / "score" / "job_error.txt").exists()
    assert not ends_again or result.read_text().startswith("Job job-1: Completed\n")


def test_what_happens_to_nodes_is_told_in_the_logs_of_each_job_that_runs(store: SqliteStore, tmp_path: Path) -> None:
    jobs = [
        job_row(JobState.RUNNING)._replace(job_key=JobKey(n), job_id=f"job-{n}", request_id=f"r{n}") for n in (1, 2, 3)
    ]
    steps = [step_row(StepState.RUNNING, 4)._replace(step_id=StepId(n), job_key=JobKey(n)) for n in (1, 2, 3)]
    store.commit(Dirty(jobs=jobs, steps=steps), [], [])
    reporter = reporter_of(store, tmp_path)
    reporter._look([job.job_key for job in jobs])
    lost = EventRow(BEGIN + 71, None, "node_lost", "n1: silent")
    store.commit(Dirty(events=[lost]), [], [])

    async def scenario() -> None:
        reporter.end_job(JobKey(1))
        await reporter.settled(JobKey(1))
        reporter._look([JobKey(2), JobKey(3)])
        reporter._look([JobKey(2), JobKey(3)])
        await reporter.close()

    asyncio.run(scenario())
    for job in jobs:
        (role,) = (tmp_path / "state" / "jobs" / job.job_id / "logs" / "score" / "sys").glob("master_role.*.txt")
        assert role.read_text().count("node_lost: n1: silent") == 1, job.job_id


@pytest.mark.parametrize("masters", [1, 2])
def test_a_step_that_a_retry_leaves_as_it_is_has_its_end_told_once(
    store: SqliteStore, tmp_path: Path, masters: int
) -> None:
    kept, resumed = step_row(StepState.COMPLETED, 10), step_row(StepState.FAILED, 4)
    resumed = resumed._replace(step_id=StepId(2), ordinal=1, name="other")
    submitted = EventRow(BEGIN + 70, KEY, "submitted", "")
    store.commit(Dirty(jobs=[job_row(JobState.FAILED)], steps=[kept, resumed], events=[submitted]), [], [])
    now = [BEGIN + 70]

    async def scenario(first: bool) -> None:
        reporter = reporter_of(store, tmp_path, clock=lambda: now[0])
        if first:
            reporter.end_job(KEY)
            await reporter.settled(KEY)
        if not first or masters == 1:
            running = resumed._replace(state=StepState.RUNNING, end_time=None)
            store.commit(Dirty(jobs=[job_row(JobState.RUNNING, seq=12, generation=2)], steps=[running]), [], [])
            reporter.running(KEY)
            reporter._look([KEY])
            again = resumed._replace(state=StepState.COMPLETED, end_time=now[0] + 5)
            store.commit(Dirty(jobs=[job_row(JobState.COMPLETED, seq=20, generation=2)], steps=[again]), [], [])
            now[0] += 6
            reporter.end_job(KEY)
        await reporter.close()

    for number in range(masters):
        asyncio.run(scenario(number == 0))
        now[0] += 10
    logs = logs_of(tmp_path)
    for step, ends in (("score", 1), ("other", 2)):
        (overview,) = (logs / step).glob("job_progress_overview.*.txt")
        assert overview.read_text().count(" items ok, ") == ends, step
    metrics = (logs / "score" / "metrics.csv").read_text()
    assert metrics.count("Total Mini Batches") == 1
    roles = "".join(path.read_text() for path in (logs / "score" / "sys").glob("master_role.*.txt"))
    assert roles.count("The step is COMPLETED") == 1 and roles.count("The job was submitted.") == 1


def test_the_overview_of_a_running_job_grows(store: SqliteStore, tmp_path: Path) -> None:
    now = [BEGIN + 2]
    commit(store, job_row(JobState.RUNNING), step_row(StepState.RUNNING, 4))
    reporter = reporter_of(store, tmp_path, clock=lambda: now[0])
    lengths = []
    for _ in range(4):
        reporter._look([KEY])
        (overview,) = (logs_of(tmp_path) / "score").glob("job_progress_overview.*.txt")
        lengths.append(overview.stat().st_size)
        now[0] += 12
    assert lengths == sorted(set(lengths)), lengths
    assert "Processed 4 of 10 mini batches in 0:00:13." in overview.read_text()
    asyncio.run(reporter.close())


def test_tables_begun_with_an_output_that_was_not_to_be_are_made_anew(store: SqliteStore, tmp_path: Path) -> None:
    """Rows were lost: mini-batches ran again, and the job was cancelled meanwhile."""
    store.commit(Dirty(jobs=[job_row(JobState.RUNNING)], steps=[step_row(StepState.RUNNING, 9)]), [], [])

    async def scenario() -> None:
        reporter = reporter_of(store, tmp_path)
        reporter.begin_step(STEP, logs_of(tmp_path) / "score", "")
        await asyncio.to_thread(reporter._tables[STEP].result)
        commit(store, job_row(JobState.CANCELLED), step_row(StepState.CANCELLED, 9))
        reporter.end_job(KEY)
        await reporter.close()

    asyncio.run(scenario())
    table = logs_of(tmp_path) / "score" / "sys" / "job_report" / "processed_mini-batches.csv"
    assert table.read_text().count("RUN_DONE") == 10
