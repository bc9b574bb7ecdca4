"""What is written while a step runs: overview, scheduler's view and metrics, of steps as a store would tell them."""

from __future__ import annotations

import json
import re

from windrow_master.core.counters import Counters
from windrow_master.core.ids import JobKey, StepId
from windrow_master.core.records import EventRow, StepRow
from windrow_master.core.states import Cause, StepState
from windrow_master.reports.master_role import MasterRole
from windrow_master.reports.metrics import metrics_of
from windrow_master.reports.overview import INTERVAL_S, Overview, file_name, same_day

BEGIN = 1_777_000_000.0


def step_at(
    *,
    state: StepState = StepState.RUNNING,
    planned: int = 0,
    done: int = 0,
    failed: int = 0,
    leased: int = 0,
    all_planned: bool = False,
    started: bool = True,
    end: float | None = None,
    message: str = "",
    taken: int = 0,
) -> tuple[StepRow, Counters]:
    counters = Counters(planned=planned, succeeded=done, failed=failed, leased=leased, items_total=planned * 10)
    counters.items_ok, counters.rows = done * 10, done * 10
    counters.output_bytes = done * 100
    counters.taken_over, counters.items_taken_over = taken, taken * 10
    checkpoint = json.dumps(
        {"mini_batches": planned, "items": planned * 10, "position": 7, "done": all_planned}
    ).encode()
    row = StepRow(
        StepId(3),
        JobKey(1),
        0,
        "score",
        state,
        message,
        b"{}",
        None,
        checkpoint if planned else None,
        counters.to_json(),
        None,
        BEGIN if started else None,
        end,
    )
    return row, counters


def told(overview: Overview, after_s: float, step: tuple[StepRow, Counters], written: int | None = None) -> list[str]:
    lines = overview.lines(*step, BEGIN + after_s, written)
    for line in lines:
        assert re.match(r"2026-04-24T\d\d:\d\d:\d\d\.\d{6}\+00:00 .*\n$", line)
    return [line.partition(" ")[2].rstrip() for line in lines]


def test_an_overview_from_beginning_to_end() -> None:
    overview = Overview("score", "job-1", 2)
    assert told(overview, 0, step_at(state=StepState.WAITING, started=False)) == []
    assert told(overview, 1, step_at()) == ["Overview of step score of job job-1 begins: master incarnation 2."]
    assert told(overview, 5, step_at(planned=20, leased=4)) == []
    assert told(overview, 11, step_at(planned=50, leased=4)) == [
        "No mini-batch has been processed yet; scheduled: 50 (so far), with workers: 4."
    ]
    overview.scheduled = BEGIN + 12
    assert told(overview, 13, step_at(planned=100, leased=4, done=1, all_planned=True)) == [
        "Scheduling finished: 100 mini-batches with 1,000 items, 0:00:12 after the first was leased."
    ]
    assert told(overview, 22, step_at(planned=100, leased=4, done=10, all_planned=True)) == [
        "Processed 10 of 100 mini batches in 0:00:22. Estimated remaining time 0:03:18."
    ]
    assert told(overview, 32, step_at(planned=100, leased=4, done=29, failed=1, all_planned=True)) == [
        "Processed 30 of 100 mini batches in 0:00:32. Estimated remaining time 0:00:35. Failed: 1; retried: 0."
    ]
    concatenating = step_at(state=StepState.CONCATENATING, planned=100, done=100, all_planned=True)
    assert told(overview, 60, concatenating) == [
        "Processed 100 of 100 mini batches in 0:01:00.",
        "All mini-batches have an outcome; their rows are concatenated next.",
    ]
    assert told(overview, 71, concatenating, 4_000) == ["Concatenating the rows: 4,000 of 10,000 bytes written."]
    ended = step_at(state=StepState.COMPLETED, planned=100, done=100, all_planned=True, end=BEGIN + 75)
    assert told(overview, 76, ended) == [
        "Processed 100 of 100 mini batches in 0:01:15.",
        "Completed: 1,000 items ok, 0 failed, 0 cancelled; 1,000 rows.",
    ]


def test_a_line_is_never_older_than_half_a_minute() -> None:
    overview = Overview("score", "job-1", 1)
    last = BEGIN
    for second in range(0, 3600, 2):
        if overview.lines(*step_at(planned=9, leased=1), BEGIN + second):
            last = BEGIN + second
        assert BEGIN + second - last <= 30
    assert INTERVAL_S <= 10


def test_a_later_master_goes_on_and_days_have_files_of_their_own() -> None:
    overview = Overview("score", "job-1", 3, continued=True)
    assert told(overview, 3600, step_at(planned=9, done=2)) == [
        "The overview continues: master incarnation 3.",
        "Processed 2 of 9 (so far) mini batches in 1:00:00.",
    ]
    overview = Overview("score", "job-1", 3, continued=True)
    told(overview, 30, step_at(planned=9, done=2, all_planned=True))
    assert told(overview, 41, step_at(planned=9, done=3, all_planned=True)) == [
        "Processed 3 of 9 mini batches in 0:00:41. Estimated remaining time 0:01:06."
    ], "what the master before has told is not told again"
    name = file_name(BEGIN)
    assert name == "job_progress_overview.2026042403.txt"
    assert same_day(name, BEGIN + 3600 * 20)
    assert not same_day(name, BEGIN + 3600 * 21)


def test_the_scheduler_s_view() -> None:
    row, counters = step_at(planned=5, leased=2)
    role = MasterRole(row, 4, BEGIN)
    assert role.file_name == "master_role.4.txt"
    events = [
        EventRow(BEGIN + 1, JobKey(1), "first_task_scheduled", "score"),
        EventRow(BEGIN + 2, None, "node_lost", "n1: silent"),
    ]
    lines = role.lines(row, counters, events, BEGIN + 3.5)
    for line in lines:
        assert re.match(r"2026-04-24 \d\d:\d\d:\d\d,\d{3}\|(INFO|WARNING|ERROR)\|\d+\|\d+\|.+\n$", line)
    plain = [re.sub(r"^.{23}\|(\w+)\|\d+\|\d+\|", r"\1 ", line).rstrip() for line in lines]
    assert plain == [
        "INFO Step 'score' (3): master incarnation 4.",
        "INFO The first mini-batches are scheduled.",
        "WARNING node_lost: n1: silent",
        "INFO Checkpoint: mini-batches 5, items 50, position 7, finished False.",
        "INFO The step is RUNNING: 5 mini-batches, 3 queued, 2 leased, 0 succeeded, 0 failed, 0 cancelled.",
    ]
    assert role.lines(row, counters, [], BEGIN + 5) == []
    row, counters = step_at(state=StepState.FAILED, planned=5, done=1, failed=4, end=BEGIN + 9, message="Too many.")
    counters.failed_attempts = {str(int(Cause.EXCEPTION)): 4}
    plain = [
        line.split("|", 4)[1:2] + line.rstrip().split("|", 4)[4:] for line in role.lines(row, counters, [], BEGIN + 9)
    ]
    assert plain == [
        ["WARNING", "Failed attempts by exception: 4."],
        ["ERROR", "The step is FAILED: 5 mini-batches, 0 queued, 0 leased, 1 succeeded, 4 failed, 0 cancelled."],
        ["INFO", "Too many."],
    ]


def test_what_remains_is_not_said_before_it_is_known() -> None:
    _, counters = step_at(planned=20, done=5, failed=1)
    known = metrics_of(counters, planned=True, elapsed_s=1.5)
    assert known["Remaining Mini Batches"] == 14 and known["Total Mini Batches"] == 20
    assert not [name for name in metrics_of(counters, planned=False, elapsed_s=1.5) if name.startswith("Remaining")]


def test_what_is_taken_over_was_not_processed_and_tells_nothing_of_the_rate() -> None:
    overview = Overview("score", "job-1", 4)
    told(overview, 0.0, step_at(planned=100, done=90, taken=90, all_planned=True))
    more = " Taken over from an earlier job: 90 more."
    assert told(overview, 10, step_at(planned=100, done=90, leased=4, taken=90, all_planned=True)) == [
        f"No mini-batch has been processed yet; scheduled: 10, with workers: 4.{more}"
    ]
    assert told(overview, 20, step_at(planned=100, done=92, taken=90, all_planned=True)) == [
        f"Processed 2 of 10 mini batches in 0:00:20.{more} Estimated remaining time 0:01:20."
    ]
    row, counters = step_at(
        planned=100, done=100, taken=90, all_planned=True, end=BEGIN + 60, state=StepState.COMPLETED
    )
    assert told(overview, 60, (row, counters))[0] == f"Processed 10 of 10 mini batches in 0:01:00.{more}"
    values = metrics_of(counters, planned=True, elapsed_s=60)
    assert (values["Processed Mini Batches"], values["Mini Batches Taken Over"]) == (10, 90)
    assert (values["Processed Items"], values["Items Taken Over"], values["Remaining Items"]) == (100, 900, 0)
