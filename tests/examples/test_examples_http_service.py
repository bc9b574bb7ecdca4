"""The example that calls a model server; each review is scored once, whatever the server refuses."""

from __future__ import annotations

import csv
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from documented_commands import ROOT, block
from windrow_command import windrow

PAGE = "examples/http-service/README.md"
JOB, ONE_LINE = block(PAGE, "windrow run examples/http-service/job.yml").lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the example, in a folder of its own."""
    shutil.copytree(
        ROOT / "examples/http-service",
        tmp_path / "examples/http-service",
        ignore=shutil.ignore_patterns("output", "__pycache__", ".windrow"),
    )
    return tmp_path


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    """The server at work, at a port of its own."""
    (line,) = block(PAGE, "python examples/http-service/server.py --rate 10").lines
    command = [sys.executable, *shlex.split(line)[1:], "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield f"{server.stdout.readline().split()[2].rstrip(',')}/score"
        finally:
            server.kill()


def scores(path: Path) -> dict[str, float]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len({row["review"] for row in rows}) == 60, "each review once"
    return {row["review"]: float(row["score"]) for row in rows}


def expected(folder: Path) -> dict[str, float]:
    sys.path.insert(0, str(folder / "examples/http-service"))
    try:
        from server import score
    finally:
        sys.path.pop(0)
    with (folder / "examples/http-service/reviews/reviews.csv").open(newline="") as file:
        return {row["review"]: score(row["text"]) for row in csv.DictReader(file)}


def test_all_reviews_are_scored_although_the_server_refuses_calls(folder: Path, url: str) -> None:
    arguments = "jobs.score.task.program_arguments"
    pace = "--rate_limit 20/s --retry_delay 1s --append_row_format csv"
    done = windrow(*shlex.split(JOB)[1:], "--set", f"{arguments}={pace} --url {url}", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "attempts met HTTPError (score.py, line" in done.stdout and "and recovered on retry" in done.stdout
    assert scores(folder / "examples/http-service/output/scores.csv") == expected(folder)


def test_in_one_line_each_review_is_scored_at_a_rate_that_the_server_takes(folder: Path, url: str) -> None:
    done = windrow(*shlex.split(ONE_LINE)[1:], "--", "--url", url, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert scores(folder / "scores.csv") == expected(folder)
