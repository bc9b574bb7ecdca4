"""Figures of a job: they add up, whatever the attempts were, and do not grow with them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from opened_store import open_store
from windrow_master.core.counters import Counters
from windrow_master.core.ids import JobKey, LeaseId, StepId
from windrow_master.core.log_bins import Distribution, bin_of, bounds_of
from windrow_master.core.records import AttemptRow, Dirty, EventRow, JobRow, StepRow
from windrow_master.core.states import AttemptState, Cause, JobState, Phase, StepState
from windrow_master.reports import job_figures
from windrow_master.reports.job_figures import LEVELS, RunningAttempt, StepFigures
from windrow_master.reports.job_report import Present, job_report
from windrow_master.reports.worker_time import BINS, KINDS
from windrow_master.store.records import AttemptFigures

BEGIN_US = 1_700_000_000_000_000
SPAN_US = 60_000_000


@st.composite
def attempts(draw: st.DrawFn) -> AttemptFigures:
    state = draw(st.sampled_from(list(AttemptState)))
    cause = Cause.NONE if state == AttemptState.SUCCEEDED else draw(st.sampled_from(list(Cause)))
    elapsed = draw(st.integers(0, SPAN_US))
    return AttemptFigures(
        lease_id=LeaseId(draw(st.integers(1, 1 << 40))),
        mini_batch=draw(st.integers(0, 1000)),
        node_id=draw(st.sampled_from(["a", "b"])),
        node_incarnation=draw(st.sampled_from(["1", "2"])),
        process_number=draw(st.integers(0, 3)),
        state=state,
        cause=cause,
        phase=draw(st.sampled_from([0, 4, 5, 6, 8])),
        # The clocks of nodes are not the master's.
        start_unix_us=BEGIN_US + draw(st.integers(-SPAN_US, 2 * SPAN_US)),
        elapsed_us=elapsed,
        run_us=draw(st.integers(0, elapsed)),
        cpu_us=0,
        item_count=draw(st.integers(0, 5)),
        peak_rss_kib=draw(st.integers(0, 1 << 30)),
    )


@given(st.lists(attempts(), max_size=40), st.integers(1, 7))
@settings(deadline=None)
def test_worker_seconds_add_up_in_all_their_sums(rows: list[AttemptFigures], page: int) -> None:
    figures = StepFigures(BEGIN_US, BEGIN_US + SPAN_US)
    for at in range(0, len(rows), page):
        figures.add(rows[at : at + page])
    now = BEGIN_US + SPAN_US
    figures.add_running([RunningAttempt(1, "a", "2", 9, now - 5000)] if rows else [], now)
    document = figures.document()
    spent = document["worker_us"]
    assert spent["total"] == sum(spent[kind] for kind in (*KINDS, "idle"))
    assert min(spent.values()) >= 0
    timed = [
        row
        for row in rows
        if row.state != AttemptState.RUNNING and row.phase != Phase.FETCHING and (row.elapsed_us or row.peak_rss_kib)
    ]
    assert spent["useful"] + spent["retried"] + spent["lost"] == sum(row.elapsed_us for row in timed)
    assert spent["useful"] == sum(row.elapsed_us for row in timed if row.state == AttemptState.SUCCEEDED)
    for part in ("nodes", "workers"):
        for name, value in spent.items():
            assert sum(one["worker_us"][name] for one in document[part]) == value
    counted = sum(document["attempts"].values()) - document["attempts"]["running"]
    assert counted == sum(row.state != AttemptState.RUNNING for row in rows)
    assert counted - document["untimed_attempts"] == len(timed)
    for measure in ("run", "load", "whole"):
        assert sum(one[measure]["count"] for one in document["durations"].values()) == len(timed)
    for status in document["durations"].values():
        assert status["run"]["total"] + status["load"]["total"] == status["whole"]["total"]
    done = [row for row in timed if row.state == AttemptState.SUCCEEDED]
    assert sum(document["over_time"]["mini_batches"]) == len(done)
    assert sum(document["over_time"]["items"]) == sum(row.item_count for row in done)
    assert len(document["slowest"]) == min(job_figures.SLOWEST, len(timed))


@given(st.lists(st.tuples(st.integers(0, SPAN_US - 1), st.integers(1, SPAN_US)), max_size=20))
@settings(deadline=None)
def test_time_is_drawn_where_it_was_spent(parts: list[tuple[int, int]]) -> None:
    """One worker, one attempt at a time: no part of the chart is fuller than full, and all of it is there."""
    figures = StepFigures(BEGIN_US, BEGIN_US + SPAN_US)
    moment, rows = BEGIN_US, []
    for number, (pause, elapsed) in enumerate(parts):
        begin = moment + pause % 1_000_000
        end = min(begin + elapsed % 5_000_000 + 1, BEGIN_US + SPAN_US)
        if begin >= end:
            break
        rows.append(
            AttemptFigures(
                LeaseId(number + 1), number, "a", "1", 0, AttemptState.SUCCEEDED, 0, 0, begin, end - begin, 0, 0, 1, 1
            )
        )
        moment = end
    figures.add(rows)
    document = figures.document()
    drawn = document["over_time"]["useful"]
    assert abs(sum(drawn) - document["worker_us"]["useful"]) <= BINS
    assert all(value <= document["bin_us"] + 1 for value in drawn)
    assert all(busy <= alive + 1 for busy, alive in zip(drawn, document["over_time"]["alive"], strict=True))
    for lane in document["lanes"]:
        assert all(len(cells) == BINS and set(cells) <= set(LEVELS) for cells in lane["cells"].values())


def row(number: int, process: int, state: AttemptState, cause: Cause, begin_s: float, took_s: float) -> AttemptFigures:
    begin, took = BEGIN_US + int(begin_s * 1e6), int(took_s * 1e6)
    return AttemptFigures(LeaseId(number), number, "a", "1", process, state, cause, 5, begin, took, took, 0, 1, 1)


def test_a_worker_that_died_is_not_idle_afterwards() -> None:
    figures = StepFigures(BEGIN_US, BEGIN_US + SPAN_US)
    figures.add(
        [
            row(1, 0, AttemptState.FAILED, Cause.CRASH, 0, 2),
            row(2, 1, AttemptState.SUCCEEDED, Cause.NONE, 0, 2),
            row(3, 2, AttemptState.SUCCEEDED, Cause.NONE, 3, 7),
            row(4, 1, AttemptState.SUCCEEDED, Cause.NONE, 4, 1),
        ]
    )
    document = figures.document()
    spent = document["worker_us"]
    # process000: 2 s retried; process001: 3 s useful, and 7 s idle; process002: 7 s useful.
    assert {name: value / 1e6 for name, value in spent.items()} == {
        "total": 19.0, "useful": 10.0, "retried": 2.0, "lost": 0.0, "running": 0.0, "idle": 7.0,
    }  # fmt: skip
    # process002 goes on where process000 died.
    assert [(lane["first_process"], lane["last_process"], lane["workers"]) for lane in document["lanes"]] == [
        (0, 2, 2), (1, 1, 1),
    ]  # fmt: skip


def test_a_worker_that_made_room_is_not_idle_when_another_one_has_begun() -> None:
    figures = StepFigures(BEGIN_US, BEGIN_US + SPAN_US)
    done = (AttemptState.SUCCEEDED, Cause.NONE)
    figures.add([row(1, 0, *done, 0, 1), row(2, 1, *done, 0, 1), row(3, 2, *done, 4, 6), row(4, 0, *done, 9, 1)])
    spent = figures.document()["worker_us"]
    # process000 waited for 8 s; process001 was gone when process002 began.
    assert (spent["useful"], spent["idle"]) == (9_000_000, 8_000_000)


def test_what_could_not_be_fetched_takes_no_worker_s_time_and_ends_none() -> None:
    figures = StepFigures(BEGIN_US, BEGIN_US + SPAN_US)
    fetched = row(2, 0, AttemptState.FAILED, Cause.TIMEOUT, 0, 9)._replace(phase=Phase.FETCHING, peak_rss_kib=0)
    done = (AttemptState.SUCCEEDED, Cause.NONE)
    figures.add([row(1, 0, *done, 0, 1), fetched, row(3, 0, *done, 9, 1)])
    document = figures.document()
    spent = document["worker_us"]
    assert (spent["useful"], spent["retried"], spent["idle"]) == (2_000_000, 0, 8_000_000)
    assert (document["attempts"]["retried"], document["untimed_attempts"]) == (1, 1)


@given(st.integers(0, 1 << 50))
def test_a_number_lies_in_its_bin(value: int) -> None:
    first, behind = bounds_of(bin_of(value))
    assert first <= value < behind
    assert behind - first <= max(1, first / 4)
    assert bin_of(behind) == bin_of(value) + 1


@given(st.lists(st.integers(0, 10**9), min_size=1))
def test_quantiles_are_as_near_as_the_bins_tell(values: list[int]) -> None:
    distribution = Distribution()
    for value in values:
        distribution.add(value)
    exact = sorted(values)[-(-len(values) // 2) - 1]
    assert bounds_of(bin_of(exact))[0] <= distribution.quantile(0.5) <= bounds_of(bin_of(exact))[1]
    assert distribution.quantile(1.0) <= distribution.largest == max(values)


def test_memory_does_not_grow_with_workers_that_die_each_time() -> None:
    figures = StepFigures(BEGIN_US, BEGIN_US + SPAN_US)
    count = job_figures.WORKERS_MAX + 5000
    figures.add(
        [
            AttemptFigures(
                LeaseId(number + 1), number, "a" if number < count - 2500 else "b", "1", number, AttemptState.FAILED,
                Cause.CRASH, 5, BEGIN_US + number, 10, 10, 0, 1, 1,
            )
            for number in range(count)
        ]
    )  # fmt: skip
    document = figures.document()
    assert document["workers_merged"]
    assert document["worker_us"]["retried"] == document["worker_us"]["total"] == 10 * count
    assert sum(node["worker_us"]["total"] for node in document["nodes"]) == 10 * count
    assert len(json.dumps(document)) < 1 << 20
    assert sys.getsizeof(figures._workers) < 16 << 20


def test_a_worker_that_has_made_room_is_not_idle() -> None:
    rows = [
        AttemptFigures(
            lease_id=LeaseId(number), mini_batch=number, node_id="a", node_incarnation="1", process_number=process,
            state=AttemptState.SUCCEEDED, cause=Cause.NONE, phase=0, start_unix_us=BEGIN_US + at, elapsed_us=1000,
            run_us=1000, cpu_us=0, item_count=1, peak_rss_kib=1,
        )
        for number, (process, at) in enumerate([(0, 0), (1, 0), (0, 1000), (0, 2000), (0, 3000)])
    ]  # fmt: skip
    idle = []
    for live in (None, {("a", "1", 0), ("a", "1", 1)}, {("a", "1", 0)}):
        figures = StepFigures(BEGIN_US, BEGIN_US + SPAN_US, live)
        figures.add(rows)
        idle.append(figures.document()["worker_us"]["idle"])
    assert idle == [3000, 3000, 0]


def test_the_document_of_a_stored_job(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    try:
        counters = Counters()
        counters.planned = counters.succeeded = counters.items_total = counters.items_ok = 3
        counters.add_failure(Cause.TIMEOUT, 1, "too long", "detail", "a", 2)
        step = StepRow(
            StepId(1), JobKey(1), 0, "score", StepState.COMPLETED, "", b"{}", None, None, counters.to_json(), None,
            BEGIN_US / 1e6, BEGIN_US / 1e6 + 60,
        )  # fmt: skip
        waiting = step._replace(step_id=StepId(2), ordinal=1, name="next", state=StepState.CANCELLED, start_time=None)
        job = JobRow(
            JobKey(1), "j", "r", JobState.COMPLETED, 1, 1, "default", 0, 1, "", b'{"steps": []}', "", b"[]",
            BEGIN_US / 1e6, BEGIN_US / 1e6 + 60,
        )  # fmt: skip
        rows = [
            AttemptRow(
                LeaseId(store.lease_prefix << 32 | number + 1), StepId(1), number // 2, 1, "a", "1", 0,
                AttemptState.SUCCEEDED if number != 2 else AttemptState.FAILED, 0 if number != 2 else Cause.TIMEOUT,
                BEGIN_US + number * 1_000_000, 1_000_000, 900_000, 100, 1, 1, 1000, "", "", 5,
            )
            for number in (0, 2, 3, 4)
        ]  # fmt: skip
        begun_s = BEGIN_US / 1e6
        # It ended, was retried after 20 s, and ended again.
        events = [
            EventRow(begun_s + at, JobKey(1), kind, "")
            for at, kind in ((0, "submitted"), (10, "ended"), (30, "retried"), (60, "ended"))
        ]
        store.commit(Dirty(jobs=[job], steps=[step, waiting], attempts=rows, events=events), [], [])
        report = json.loads(job_report(store.reader(), job, [step, waiting], Present(BEGIN_US / 1e6 + 99)))
        first, second = report["steps"]
        assert report["job"]["at_work_s"] == 40
        assert second["figures"] is None
        assert first["figures"]["attempts"] == {"useful": 3, "retried": 1, "lost": 0, "running": 0}
        assert first["figures"]["worker_us"]["total"] == 5_000_000
        assert first["failures"][0]["cause"] == "timeout"
        assert first["failures"][0]["status"] == "RUN_TIMEOUT"
        assert set(first["figures"]["durations"]) == {"RUN_DONE", "RUN_TIMEOUT"}
    finally:
        store.close()
