"""`windrow job rows` and `windrow job query`: committed rows while a job runs, each once, whatever is killed."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_commands import EXPECTED, ServedCluster
from embedded_run import WINDROW, EmbeddedRun, wait_until
from windrow.errors import UsageError
from windrow.sdk.client import Client
from windrow.sdk.job import Job
from windrow_command import windrow

SCRIPT = """
import os, time
import pandas as pd

def run(mini_batch):
    rows = []
    for path in mini_batch:
        number = int(os.path.basename(path)[1:])
        while os.path.exists({gate!r} + str(number)):
            time.sleep(0.01)
        if number == 13:
            raise ValueError("unlucky")
        rows.append({{"number": number, "text": f'a "{{number}}", b'}})
    return {what}
"""


class RowsRun(EmbeddedRun):
    """Thirty files, two a mini-batch, of which one fails. The script waits where there is a gate."""

    def __init__(self, folder: Path, row_format: str = "csv", what: str = "rows") -> None:
        script = SCRIPT.format(gate=str(folder / "gate"), what=what)
        super().__init__(folder, script, 30, size=2, settings="error_threshold: -1")
        job = folder / "job.yml"
        arguments = f"entry.py\n      program_arguments: --append_row_format {row_format} --run_max_try 1"
        suffix = {"csv": "csv", "jsonl": "jsonl", "parquet": "parquet"}.get(row_format, "txt")
        self.output = folder / f"out.{suffix}"
        job.write_text(job.read_text().replace("entry.py", arguments).replace("out.txt", self.output.name))

    def close_gate(self, number: int) -> None:
        (self.folder / f"gate{number}").touch()

    def open_gate(self, number: int) -> None:
        (self.folder / f"gate{number}").unlink()

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = windrow("job", *arguments, cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return done

    def numbers(self, *arguments: str) -> list[int]:
        """The numbers in the rows that are printed."""
        lines = self.ask("rows", "last", *arguments).stdout.splitlines()
        return [int(row["number"]) for row in csv.DictReader(lines)]


WITHOUT_13 = [number for number in range(30) if number != 13]


def test_rows_come_in_order_as_far_as_that_is_whole_or_as_they_are_committed(tmp_path: Path) -> None:
    run = RowsRun(tmp_path / "run")
    run.close_gate(10)
    run.start("--slots", "2")
    wait_until(lambda: run.committed() == 14, "all but one mini-batch")
    assert run.numbers() == list(range(10))
    note = run.ask("rows", "last").stderr
    assert "Mini-batch 5 of 15 mini-batches so far is not done. 9 behind it are done: --as-committed shows all." in note
    behind = [number for number in WITHOUT_13 if number not in (10, 11)]
    assert run.numbers("--as-committed") == behind
    assert run.numbers("--limit", "3") == [0, 1, 2]
    assert "number,text\n" not in "".join(run.ask("rows", "last", "-n", "3").stdout.splitlines(True)[1:])
    (answer,) = run.ask(
        "query", "last", "select count(*) n, sum(number) s from rows", "--format", "json"
    ).stdout.splitlines()
    assert json.loads(answer) == {"n": 27, "s": sum(behind)}
    assert "these are the rows of 14 of 15 mini-batches so far" in run.ask("query", "last", "select 1").stderr
    run.open_gate(10)
    assert run.finish()[0] == 0
    assert run.ask("rows", "last").stdout == run.output.read_text()
    assert run.numbers() == WITHOUT_13


@pytest.mark.parametrize("order", [(), ("--as-committed",)])
def test_rows_that_are_followed_come_once_while_master_and_agent_are_killed(
    tmp_path: Path, order: tuple[str, ...]
) -> None:
    run = RowsRun(tmp_path / "run", what="[{**row, 'late': 1} if row['number'] > 20 else row for row in rows]")
    for gate in (4, 20):
        run.close_gate(gate)
    run.start("--slots", "2")
    wait_until(lambda: run.committed() >= 2, "the first rows")
    command = [WINDROW, "job", "rows", "last", "--follow", *order]
    with subprocess.Popen(
        command, cwd=run.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as follower:
        assert follower.stdout is not None and follower.stderr is not None
        lines = [follower.stdout.readline() for _ in range(3)]
        run.kill("master")
        run.open_gate(4)
        wait_until(lambda: run.committed() >= 8, "rows of the next master")
        run.kill("agent")
        run.open_gate(20)
        assert run.finish()[0] == 0
        # Not `communicate`, which passes over what `readline` has buffered.
        lines += follower.stdout.readlines()
        assert "The rows have more columns from here on: number,text,late" in follower.stderr.read()
        assert follower.wait(60) == 0
    rows = [int(row["number"]) for row in csv.DictReader(lines)]
    assert sorted(rows) == WITHOUT_13 and (order or rows == WITHOUT_13)


@pytest.mark.parametrize(
    ("row_format", "what"),
    [
        ("csv", "rows"),
        ("jsonl", "rows"),
        ("parquet", "pd.DataFrame(rows)"),
        ("text", "[str(r['number']) for r in rows]"),
    ],
)
def test_rows_of_every_format_are_those_of_the_output(tmp_path: Path, row_format: str, what: str) -> None:
    run = RowsRun(tmp_path / "run", row_format, what)
    assert run.run()[0] == 0
    printed = run.ask("rows", "last").stdout
    expected = [{"number": number, "text": f'a "{number}", b'} for number in WITHOUT_13]
    if row_format == "parquet":
        assert [json.loads(line) for line in printed.splitlines()] == expected
    else:
        assert printed == run.output.read_text()
    told = [json.loads(line) for line in run.ask("rows", "last", "--format", "json").stdout.splitlines()]
    with Client(state=run.state) as client:
        job_id = client.find("last").job_id
        rows = list(client.committed_rows(job_id))
        if row_format == "text":
            assert told == [{"row": str(number)} for number in WITHOUT_13]
            assert rows == [str(number) for number in WITHOUT_13]
            assert client.query(job_id, "select line from lines")["line"].tolist() == rows
            assert client.query(job_id, "select sum(column0) s from rows")["s"].tolist() == [sum(WITHOUT_13)]
        else:
            assert [{"number": int(one["number"]), "text": one["text"]} for one in told] == expected
            assert len(rows) == 29 and str(WITHOUT_13[-1]) in rows[-1]
            frame = client.query(job_id, "select number, text from rows order by number")
            assert frame.to_dict("records") == expected


def test_a_query_reads_nothing_but_the_rows(tmp_path: Path) -> None:
    run = RowsRun(tmp_path / "run")
    assert run.run()[0] == 0
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    for sql in (
        f"select * from '{secret}'",
        f"copy rows to '{tmp_path}/out.csv'",
        "set enable_external_access = true",
        f"attach '{tmp_path}/other.duckdb'",
        "drop table rows",
        "delete from rows",
    ):
        done = windrow("job", "query", "last", sql, cwd=run.folder)
        assert done.returncode == 2 and "DuckDB cannot answer that" in done.stderr, sql
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "secret.csv"]
    with Client(state=run.state) as client:
        job_id = client.find("last").job_id
        with pytest.raises(UsageError, match="Binder Error"):
            client.query(job_id, "select nothing from rows")
        with pytest.raises(UsageError, match="has no statement"):
            client.query(job_id, "")
        with pytest.raises(UsageError, match="has 2 statements"):
            client.query(job_id, "select 1; select 2")
        for reads in ("describe rows", "explain select 1", "with a as (from rows) select * from a;"):
            assert len(client.query(job_id, reads)), reads
        late = "select case when i = 500000 then cast('x' || i as int) end from range(1000000) t(i)"
        with pytest.raises(UsageError, match="Conversion Error"):
            client.query(job_id, late)
        # The table of the step has its name, too; an empty answer has its columns.
        frame = client.query(job_id, "select * from score where number > 99")
        assert list(frame.columns) == ["number", "text"] and frame.empty


def test_large_rows_come_in_pieces_and_whole(tmp_path: Path) -> None:
    run = RowsRun(tmp_path / "run", "text", "[str(rows[0]['number']) * 3_000_000]")
    run.close_gate(8)
    run.start("--slots", "2")
    wait_until(lambda: run.committed() >= 5, "some mini-batches")
    received: list[str] = []
    with Client(state=run.state) as client:
        rows = client.committed_rows(client.find("last").job_id, follow=True)
        reading = threading.Thread(target=lambda: received.extend(rows))
        reading.start()
        run.open_gate(8)
        assert run.finish()[0] == 0
        reading.join(60)
    assert not reading.is_alive()
    assert received == run.output.read_text().splitlines() and len(received[0]) == 3_000_000


def test_what_has_no_rows_says_so(tmp_path: Path) -> None:
    run = RowsRun(tmp_path / "run")
    run.close_gate(0)
    run.close_gate(2)
    run.start("--slots", "1")
    wait_until(lambda: windrow("job", "show", "last", cwd=run.folder).returncode == 0, "the job")
    assert run.ask("rows", "last").stdout == ""
    assert "0 rows" not in run.ask("query", "last", "select count(*) from rows").stdout
    done = windrow("job", "rows", "last:other", cwd=run.folder)
    assert done.returncode == 2 and "has no step 'other' that gathers rows. Those that do: score." in done.stderr
    run.open_gate(0)
    run.open_gate(2)
    assert run.finish()[0] == 0


def test_ctrl_c_ends_following_and_not_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RowsRun(tmp_path / "run")
    run.close_gate(20)
    run.start("--slots", "2")
    wait_until(lambda: run.committed() >= 2, "the first rows")
    with subprocess.Popen(
        [WINDROW, "job", "rows", "last", "--follow"], cwd=run.folder, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as follower:  # fmt: skip
        assert follower.stdout is not None and follower.stderr is not None
        assert follower.stdout.readline() == "number,text\n"
        follower.send_signal(signal.SIGINT)
        assert follower.wait(60) == 130
        assert "Traceback" not in follower.stderr.read()
        follower.stdout.read()
    with Client(state=run.state) as client:
        job_id, progress = client.find("last").job_id, client.progress

        def interrupted(*given: Any, **named: Any) -> Iterator[Job]:
            for job in progress(*given, **named):
                yield job
                signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(client, "progress", interrupted)
        with pytest.raises(KeyboardInterrupt, match=f"job {job_id} was interrupted, not the job. It goes on. To wait"):
            client.wait(job_id, progress=False)
    run.open_gate(20)
    assert run.finish()[0] == 0
    assert run.numbers() == WITHOUT_13


def test_rows_that_are_damaged_are_not_printed(tmp_path: Path) -> None:
    run = RowsRun(tmp_path / "run")
    run.close_gate(28)
    run.start("--slots", "2")
    wait_until(lambda: run.committed() == 14, "all but the last mini-batch")
    for segment in run.state.glob("jobs/*/steps/*/segments/*.rows"):
        content = bytearray(segment.read_bytes())
        for at in range(0, len(content), 3):
            content[at] ^= 1
        segment.write_bytes(content)
    done = windrow("job", "rows", "last", cwd=run.folder)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert "damaged" in done.stderr, done.stderr
    # They are made again for the output, and are there then.
    run.open_gate(28)
    assert run.finish()[0] == 0
    assert run.numbers() == WITHOUT_13


def test_rows_that_were_taken_over_are_rows_of_the_job(tmp_path: Path) -> None:
    run = RowsRun(tmp_path / "run")
    assert run.run()[0] == 0
    expected = run.output.read_text()
    run.output.unlink()
    code, text = run.run("--since", "last")
    assert code == 0 and "taken over" in text
    assert run.ask("rows", "last").stdout == expected
    (counted,) = run.ask("query", "last", "select count(*) n from rows", "--format", "json").stdout.splitlines()
    assert json.loads(counted) == {"n": 29}


def test_rows_of_a_cancelled_job_are_those_that_were_committed(cluster: ServedCluster) -> None:
    cluster.start_agent("one")
    gate, variables = cluster.folder / "hurry", "jobs.score.environment_variables"
    cluster.create("nightly", "--set", f"{variables}.PAUSE=2", "--set", f"{variables}.HURRY={gate}")
    wait_until(lambda: cluster.done("nightly") >= 3, "some of the job")
    assert cluster.run("job", "cancel", "nightly", "--wait").returncode == 0
    shown = cluster.run("job", "rows", "nightly", "--as-committed")
    assert shown.returncode == 0
    rows = shown.stdout.splitlines()
    assert len(rows) == cluster.done("nightly") >= 3
    assert set(rows) < set(EXPECTED.splitlines()) and len(set(rows)) == len(rows)
