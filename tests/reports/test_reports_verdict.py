"""The verdict of a report: what took the time, and what would make the job faster, by how much."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from windrow.job_page.verdict import SUGGESTIONS_MAX, parts_of, tail_of, verdict
from windrow_master.core.ids import LeaseId
from windrow_master.core.states import AttemptState, Cause, Phase
from windrow_master.reports.job_figures import StepFigures
from windrow_master.store.records import AttemptFigures

BEGIN_S = 1_700_000_000.0
BEGIN_US = int(BEGIN_S * 1e6)
S = 1_000_000

Ran = tuple[int, float, float]
"""(worker, from second, to second)."""


def attempt(number: int, worker: int, begin_s: float, end_s: float, **more: Any) -> AttemptFigures:
    elapsed = int((end_s - begin_s) * S)
    values: dict[str, Any] = {
        "lease_id": LeaseId(number + 1), "mini_batch": number, "node_id": "n1", "node_incarnation": "1",
        "process_number": worker, "state": AttemptState.SUCCEEDED, "cause": Cause.NONE, "phase": Phase.RUNNING,
        "start_unix_us": BEGIN_US + int(begin_s * S), "elapsed_us": elapsed, "run_us": elapsed, "cpu_us": elapsed,
        "item_count": 10, "peak_rss_kib": 1000,
    }  # fmt: skip
    return AttemptFigures(**{**values, **more})


def report(
    attempts: list[AttemptFigures], end_s: float, *, starts: dict[str, int] | None = None, **settings: Any
) -> dict[str, Any]:
    """The document of a job of one step, with the master's own figures of these attempts."""
    figures = StepFigures(BEGIN_US, BEGIN_US + int(end_s * S))
    figures.add(attempts)
    done = sum(one.state == AttemptState.SUCCEEDED for one in attempts)
    chosen = {
        "mini_batch_size": 10,
        "size_counts": "files",
        "has_groups": False,
        "speculate": False,
        "rate_per_s": None,
        "cpus_per_worker": None,
        "memory_per_worker": 0,
        "gpus_per_worker": 0,
    }
    return {
        "job": {
            "create_s": BEGIN_S, "end_s": BEGIN_S + end_s, "now_s": BEGIN_S + end_s, "at_work_s": end_s,
            "has_job_file": True,
        },
        "steps": [
            {
                "name": "score", "is_command": False, "reused_from": "", "start_s": BEGIN_S, "starts": starts or {},
                "end_s": BEGIN_S + end_s, "mini_batches": {"speculated": 0, "speculated_won": 0},
                "settings": {**chosen, **settings}, "items": {"ok": 10 * done}, "failures": [],
                "figures": figures.document(),
            }
        ],
    }  # fmt: skip


def even(
    workers: int = 4, each: int = 10, seconds: float = 5.0, begin_s: float = 0.0, **more: Any
) -> list[AttemptFigures]:
    """Workers that are busy from the first to the last moment."""
    return [
        attempt(worker * each + turn, worker, begin_s + turn * seconds, begin_s + (turn + 1) * seconds, **more)
        for worker in range(workers)
        for turn in range(each)
    ]


def told(found: dict[str, Any]) -> str:
    return "\n".join((*verdict(found).sentences, *(one.text for one in verdict(found).suggestions)))


def gain(found: dict[str, Any], words: str) -> float:
    (one,) = [one for one in verdict(found).suggestions if words in one.text]
    return one.gain


def test_a_job_that_is_as_fast_as_it_can_be_gets_no_advice() -> None:
    found = verdict(report(even(), 50.0))
    assert found.sentences == ("The job took 50 s.", "Of its workers' time, 100 % went into run().")
    assert found.suggestions == ()


def test_start_and_init_are_parts_of_the_time() -> None:
    starts = {"workers": 4, "prepare_us": 40 * S, "start_us": 4 * S, "init_us": 80 * S, "init_max_us": 25 * S}
    found = report(even(begin_s=31.0), 81.0, starts=starts)
    text = told(found)
    assert "62 % went into run(), 25 % went into init() (20 s a worker) and 12 % went into fetching the code" in text
    assert gain(found, "init() takes 20 s in each worker") == pytest.approx(10 / 81)
    assert gain(found, "each node took 10 s to fetch the code and build the environment") == pytest.approx(10 / 81)


def test_large_mini_batches_at_the_end_should_be_smaller() -> None:
    attempts = [*even(each=9), attempt(99, 0, 45.0, 85.0)]
    found = report(attempts, 85.0)
    assert (
        "For the last 40 s, about 3 workers waited for the last mini-batches. The longest, mini-batch 99, took 40 s."
        in (told(found))
    )
    assert gain(found, "mini_batch_size: 2 instead of 10") == pytest.approx(0.75 * 30 / 85, abs=0.02)
    by_bytes = told(report(attempts, 85.0, mini_batch_size=8_000_000, size_counts="bytes"))
    assert "mini_batch_size: 2.0mb instead of 8.0 MB" in by_bytes


@pytest.mark.parametrize(("items", "settings"), [(1, {}), (50, {"has_groups": True, "mini_batch_size": None})])
def test_what_cannot_be_smaller_may_run_twice(items: int, settings: dict[str, Any]) -> None:
    attempts = [*even(each=9, item_count=items), attempt(99, 0, 45.0, 85.0, item_count=items)]
    found = report(attempts, 85.0, **settings)
    found["steps"][0]["items"]["ok"] = items * len(attempts)
    assert "--speculate True" in told(found)
    found["steps"][0]["settings"]["speculate"] = True
    found["steps"][0]["mini_batches"] = {"speculated": 2, "speculated_won": 1}
    assert "--speculate" not in told(found)
    assert "2 second attempts of slow mini-batches; 1 succeeded first." in verdict(found).sentences


def test_why_nothing_ran_twice() -> None:
    found = report(even(), 50.0, speculate=True)
    assert "No second attempt (--speculate): no mini-batch ran for more than twice" in told(found)
    found["steps"][0]["end_s"] = found["job"]["end_s"] = None
    assert "No second attempt so far (--speculate)" in told(found)


def test_without_a_job_file_advice_names_options() -> None:
    attempts = [*even(each=9), attempt(99, 0, 45.0, 85.0)]
    alone = [*even(each=9, item_count=1), attempt(99, 0, 45.0, 85.0, item_count=1)]
    reports = [report(attempts, 85.0), report(alone, 85.0), report(even(cpu_us=S // 2), 50.0)]
    reports[1]["steps"][0]["items"]["ok"] = len(alone)
    for found in reports:
        found["job"]["has_job_file"] = False
    text = "\n".join(map(told, reports))
    for option in (
        "(--mini-batch-size 2 instead of 10)",
        "let them run twice: --speculate.",
        "better: --workers 8, if",
    ):
        assert option in text
    assert "mini_batch_size" not in text and "program_arguments" not in text and "max_concurrency" not in text


def test_tiny_mini_batches_should_be_larger() -> None:
    attempts = [
        attempt(worker * 4000 + turn, worker, turn * 0.005, turn * 0.005 + 0.001)
        for worker in range(4)
        for turn in range(4000)
    ]
    found = report(attempts, 20.0)
    assert "waited for the last mini-batches" not in told(found), "they wait between mini-batches"
    assert gain(found, "Larger mini-batches: one takes") > 0.5
    assert "Larger" not in told(report(attempts, 20.0, rate_per_s=800.0))
    assert "The rate limit (800/s) kept workers idle" in told(report(attempts, 20.0, rate_per_s=800.0))


def test_a_script_that_waits_should_have_more_workers() -> None:
    found = report(even(cpu_us=S // 2), 50.0)
    assert gain(found, "max_concurrency_per_instance: 8 and --slots 8") == pytest.approx((50 - 5) / 2 / 50)
    assert verdict(report(even(cpu_us=4 * S), 50.0)).suggestions == ()


@pytest.mark.parametrize(
    ("needs", "advice"),
    [
        ({"cpus_per_worker": 4.0}, "use it better: cpus_per_worker: 2, if memory allows"),
        ({"gpus_per_worker": 1}, "use it better: cpus_per_worker: 0.5 and gpus_per_worker: 0.5, if"),
        (
            {"cpus_per_worker": 0.5, "memory_per_worker": 8 << 30},
            "cpus_per_worker: 0.25 and memory_per_worker: 4294967296",
        ),
    ],
)
def test_where_workers_have_needs_half_of_them_makes_room_for_twice_as_many(needs: dict[str, Any], advice: str) -> None:
    assert advice in told(report(even(cpu_us=S // 2), 50.0, **needs))


def test_failures_and_restarts_cost_time() -> None:
    failed = [attempt(900 + at, at, 50.0, 60.0, state=AttemptState.FAILED, cause=Cause.EXCEPTION) for at in range(4)]
    starts = {"workers": 12, "prepare_us": 0, "start_us": 12 * S, "init_us": 48 * S, "init_max_us": 5 * S}
    found = report([*even(), *failed], 60.0, starts=starts)
    found["steps"][0]["failures"] = [
        {"error": "ValueError", "place": "score.py, line 9", "attempts": 4, "cause": "exception"},
    ]
    assert gain(found, "The most frequent failure is ValueError (score.py, line 9), 4 times.") == pytest.approx(10 / 60)
    assert gain(found, "Workers started 8 more times") == pytest.approx(8 * 5 / 4 / 60)


def test_nothing_is_advised_after_a_few_seconds() -> None:
    attempts = [*even(each=2, seconds=0.5), attempt(99, 0, 1.0, 6.0)]
    assert verdict(report(attempts, 6.0)).suggestions == ()


def test_without_attempts_nothing_is_said() -> None:
    found = report([], 5.0)
    assert verdict(found).sentences == ()
    found["steps"][0]["figures"] = None
    assert verdict(found).sentences == ()


ATTEMPTS = st.lists(
    st.tuples(
        st.integers(0, 5), st.floats(0, 100), st.floats(0.001, 60),
        st.sampled_from([AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.ABANDONED]), st.integers(1, 50),
    ),
    max_size=40,
)  # fmt: skip
STARTS = st.fixed_dictionaries(
    {name: st.integers(0, 500 * S) for name in ("prepare_us", "start_us", "init_us", "init_max_us")}
    | {"workers": st.integers(0, 30)}
)


@given(ATTEMPTS, STARTS, st.sampled_from([None, 1, 10, 5_000_000]), st.sampled_from([None, 2.0]), st.booleans())
def test_whatever_happened_gains_are_shares_and_parts_add_up(
    ran: list[tuple[int, float, float, AttemptState, int]],
    starts: dict[str, int],
    size: int | None,
    rate: float | None,
    speculate: bool,
) -> None:
    attempts = [
        attempt(number, worker, begin, begin + took, state=state, item_count=items,
                cause=Cause.NONE if state == AttemptState.SUCCEEDED else Cause.EXCEPTION)
        for number, (worker, begin, took, state, items) in enumerate(ran)
    ]  # fmt: skip
    end_s = max((begin + took for _, begin, took, _, _ in ran), default=1.0)
    found = report(attempts, end_s, starts=starts, mini_batch_size=size, rate_per_s=rate, speculate=speculate)
    said = verdict(found)
    assert len(said.suggestions) <= SUGGESTIONS_MAX
    gains = [one.gain for one in said.suggestions]
    assert all(0 < one <= 1 for one in gains) and gains == sorted(gains, reverse=True)
    (step,) = found["steps"]
    before = sum(starts[name] for name in ("prepare_us", "start_us", "init_us"))
    assert sum(parts_of([step]).values()) == step["figures"]["worker_us"]["total"] + before
    tail = tail_of(step["figures"])
    assert tail is None or 0 < tail.saved_s <= tail.seconds + 1e-6
