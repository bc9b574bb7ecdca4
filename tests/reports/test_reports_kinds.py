"""Kinds of failures: what a message says, their order and words, and that every summary of a job tells them alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reported_job import ReportedJob
from windrow.common.failure_kinds import NO_MORE_STARTS, FailureKind, KindKey, headline, key_of, ordered, within
from windrow_master.core.counters import KINDS_MAX, Counters
from windrow_master.core.states import Cause
from windrow_master.shell.split_message import MESSAGE_CHARS_MAX as SPLIT_CHARACTERS_MAX
from windrow_worker.failures import encode_failure, item_line


@pytest.mark.parametrize(
    ("message", "key"),
    [
        ("run() raised ValueError: no (score.py, line 12)", KindKey("ValueError", "score.py, line 12", "")),
        ("run() raised BadItem (score.py, line 3)", KindKey("BadItem", "score.py, line 3", "")),
        ("run() raised KeyError: 'f(x, line 2)' (a.py, line 7)", KindKey("KeyError", "a.py, line 7", "")),
        (
            "init() of the entry script 'a.py' failed: OSError: no (a.py, line 2)",
            KindKey("OSError", "a.py, line 2", ""),
        ),
        ("Mini-batch 7 could not be loaded: FileNotFoundError: gone", KindKey("FileNotFoundError", "", "")),
        ("killed by signal 9 after 17 s", KindKey("", "", "killed by signal # after # s")),
        (f"exit code 3 in init(){NO_MORE_STARTS}: 6 in a row failed", KindKey("", "", "exit code # in init()")),
    ],
)
def test_a_message_says_its_kind(message: str, key: KindKey) -> None:
    assert key_of(message) == key


def test_a_message_that_is_cut_keeps_its_kind() -> None:
    message = f"run() raised ValueError: {'x' * 100_000} (a_script_of_mine.py, line 12)"
    encoded = json.loads(encode_failure("exception", message, ""))["message"]
    for cut in (encoded, item_line(message), item_line(encoded), within(item_line(encoded), SPLIT_CHARACTERS_MAX)):
        assert len(cut) <= 1000
        assert key_of(cut) == KindKey("ValueError", "a_script_of_mine.py, line 12", ""), cut


def kind(attempts: int, final: int, mini_batches: int, items: int = 0, cause: str = "exception") -> FailureKind:
    index = -1 if cause == "init_failed" else 0
    return FailureKind(cause, "OSError", "a.py, line 2", attempts, final, mini_batches, items, index, "", "", "n", 0)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (kind(222, 0, 0), "222 attempts met OSError (a.py, line 2) and recovered on retry"),
        (kind(2, 2, 0), "2 attempts met OSError (a.py, line 2), in mini-batches that then failed otherwise"),
        (kind(1, 1, 1, 5), "5 items in 1 mini-batch failed with OSError (a.py, line 2)"),
        (kind(33, 33, 11, 11), "11 items in 11 mini-batches failed with OSError (a.py, line 2), in 33 attempts"),
        (
            kind(5, 3, 1, 1),
            "1 item in 1 mini-batch failed with OSError (a.py, line 2); 2 more attempts met it and recovered on retry",
        ),
        (kind(0, 0, 2, 3, "unspecified"), "3 items in 2 mini-batches got no result"),
        (kind(4, 4, 0, 0, "init_failed"), "4 starts of a worker failed with OSError (a.py, line 2)"),
        (kind(4, 4, 0, 0, "init_failed")._replace(error=""), "4 starts of a worker failed"),
    ],
)
def test_a_kind_is_told_in_one_clause(given: FailureKind, told: str) -> None:
    assert headline(given, settled=True) == told


def test_what_costs_mini_batches_goes_before_what_is_frequent() -> None:
    kinds = [kind(900, 0, 0), kind(3, 3, 1, 1), kind(6, 6, 2, 2)]
    assert [one.attempts for one in ordered(kinds)] == [6, 3, 900]


def test_kinds_are_bounded_and_the_costly_ones_stay() -> None:
    counters = Counters()
    fatal = counters.add_failure(Cause.EXCEPTION, 7, "run() raised ValueError: x (a.py, line 1)", "trace", "n", 0)
    counters.give_up(fatal, [fatal], 1, 7, 4, "run() raised ValueError: x (a.py, line 1)", "trace")
    for line in range(2, 2 * KINDS_MAX):
        for _ in range(2):
            message = f"run() raised KeyError: y (a.py, line {line})"
            counters.add_failure(Cause.EXCEPTION, line, message, "", "n", 0)
    found = counters.failure_kinds()
    assert len(found) == KINDS_MAX
    assert (found[0].error, found[0].mini_batches, found[0].items, found[0].detail) == ("ValueError", 1, 4, "trace")
    assert sum(one.attempts for one in found) + counters.kinds_left_out[0] == 1 + 2 * (2 * KINDS_MAX - 2)
    assert Counters.from_json(counters.to_json()) == counters
    assert counters.main_failure().startswith("exception: run() raised ValueError")


def test_every_summary_tells_what_is_permanent_first_and_what_recovered_apart(tmp_path: Path) -> None:
    job = ReportedJob(tmp_path / "job", threshold=-1)
    (job.folder / "code" / "entry.py").write_text(
        "import os, pathlib\n"
        "def run(mini_batch, context):\n"
        "    if any(str(path).endswith('f1') for path in mini_batch):\n"
        "        raise ValueError('for good')\n"
        "    if context.retry_count == 0:\n"
        "        raise ConnectionError('for a while')\n"
        "    return list(mini_batch)\n"
    )
    _, told = job.run()
    page = job.folder / "report.html"
    job.windrow("job", "report", job.job_id, "--to", str(page))
    result = (job.logs / "job_result.txt").read_text()
    errors = (job.logs / "score" / "user" / "error.txt").read_text()
    _, shown = job.windrow("job", "show", job.job_id)
    _, explained = job.windrow("job", "explain", job.job_id)
    for text in (told, result, errors, shown, explained, page.read_text()):
        permanent = text.index(" in 1 mini-batch failed with ValueError")
        recovered = text.index("met ConnectionError (entry.py, line 6) and recovered on retry")
        assert permanent < recovered, text
