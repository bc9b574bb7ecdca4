"""Runs without a job file: each kind of input and output, recovery as with a file, and what `--save` writes."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pandas as pd
import pyarrow.parquet
import pytest
from embedded_run import WINDROW, EmbeddedRun, wait_until

NAMES = """\
import argparse, os

def init():
    global tail
    parser = argparse.ArgumentParser()
    parser.add_argument("--tail", default="")
    tail = parser.parse_args().tail  # refuses arguments that it does not know

def run(mini_batch):
    return [{"name": os.path.basename(path) + tail, "text": open(path).read()} for path in mini_batch]
"""
DOUBLE = "def run(table):\n    return table.assign(double=table['number'] * 2)\n"
SLOW = """\
import os, time

def run(mini_batch):
    while os.path.exists("{gate}") and int(os.path.basename(mini_batch[0])[1:]) >= 100:
        time.sleep(0.005)
    with open("{seen}", "a") as seen:
        seen.write("x" * len(mini_batch))
    return [os.path.basename(path) + " " + open(path).read() for path in mini_batch]
"""


class OneLineRun(EmbeddedRun):
    """A folder with scripts and data, and the commands started there."""

    def __init__(self, folder: Path, files: int = 12) -> None:
        super().__init__(folder, "", files)
        self.script(NAMES)
        (folder / "job.yml").unlink()

    def script(self, text: str) -> None:
        """Write the script, beside the data."""
        (self.folder / "score.py").write_text(text)

    def start(self, *line: str, into: Path | None = None) -> subprocess.Popen[str]:
        """Start `windrow …`. `into`: a file to which its output is appended."""
        with ExitStack() as stack:
            self.process = subprocess.Popen(
                [WINDROW, *line],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if into is None else stack.enter_context(into.open("ab")),
                stderr=subprocess.STDOUT,
                text=True,
            )
        return self.process

    def rows(self, output: str, *line: str) -> bytes:
        """Run the script into an output; it has to succeed."""
        code, text = self.run("run", "score.py", *line, "-o", output)
        assert code == 0, text
        return (self.folder / output).read_bytes()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[OneLineRun]:
    run = OneLineRun(tmp_path / "here")
    yield run
    if run.process is not None and run.process.poll() is None:
        run.process.kill()
        run.process.communicate()
    wait_until(lambda: not run.strays(), f"no stray process: {run.strays()}")


NAMED = [(f"f{number:05d}", str(number)) for number in range(12)]
CSV = ("name,text\n" + "".join(f"{name},{text}\n" for name, text in NAMED)).encode()


def test_files_of_each_kind_into_each_format(folder: OneLineRun) -> None:
    assert folder.rows("a.csv", "data/") == CSV
    assert folder.rows("b.csv", "data/*") == CSV
    assert folder.rows("c.csv", *sorted(f"data/{name}" for name, _ in NAMED)) == CSV
    lines = "".join(f'{{"name":"{name}","text":"{text}"}}\n' for name, text in NAMED)
    assert folder.rows("d.jsonl", "data") == lines.encode()
    folder.rows("e.parquet", "data")
    frame = pyarrow.parquet.read_table(folder.folder / "e.parquet").to_pandas()
    assert list(frame.itertuples(index=False, name=None)) == NAMED
    code, text = folder.run("run", "score.py", "data", "-o", "f.txt", "--", "--tail", ".x")
    assert code == 0, text
    assert (folder.folder / "f.txt").read_text().splitlines()[1] == "{'name': 'f00001.x', 'text': '1'}"


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_tables(folder: OneLineRun, suffix: str) -> None:
    folder.script(DOUBLE)
    frame = pd.DataFrame({"number": range(1000), "text": [f"row {number}" for number in range(1000)]})
    for part, rows in (("one", frame[:400]), ("two", frame[400:])):
        path = folder.folder / f"{part}.{suffix}"
        match suffix:
            case "csv" | "tsv":
                rows.to_csv(path, index=False, sep="," if suffix == "csv" else "\t")
            case "jsonl":
                rows.to_json(path, orient="records", lines=True)
            case _:
                rows.to_parquet(path, index=False, row_group_size=100)
    expected = frame.assign(double=frame["number"] * 2)
    whole = expected.to_csv(index=False).encode()
    assert folder.rows("both.csv", f"one.{suffix}", f"two.{suffix}", "--workers", "2") == whole
    assert folder.rows("pattern.csv", f"[ot][nw][eo].{suffix}") == whole
    assert folder.rows("one.out.csv", f"one.{suffix}") == expected[:400].to_csv(index=False).encode()
    told = json.loads(folder.run("job", "list", "--format", "json")[1])
    assert told[-1]["display_name"] == "score"
    for job in told[-3:]:
        shown = json.loads(folder.run("job", "show", job["job_id"], "--format", "json")[1])
        assert shown["steps"][0]["mini_batches"]["total"] >= 4  # a small table uses all workers


def test_the_same_command_continues_after_a_kill(folder: OneLineRun) -> None:
    data = folder.folder / "data"
    for number in range(12, 200):
        (data / f"f{number:05d}").write_text(str(number))
    gate, seen = folder.folder.parent / "gate", folder.folder.parent / "seen"
    gate.touch()
    folder.script(SLOW.format(gate=gate, seen=seen))
    line = ("run", "score.py", "data", "-o", "out.txt")
    # What the command prints goes beside the script, as after `windrow run … > printed 2>&1`.
    printed = folder.folder / "printed"
    folder.start(*line, into=printed)
    wait_until(lambda: folder.committed() >= 5, "some mini-batches are done")
    folder.kill_all()
    (folder.folder / "tee.log").write_text("of a run whose output went through a pipe")
    (folder.folder / "new.py").touch()
    folder.start(*line, "--max-retries", "7", into=printed)
    assert folder.finish()[0] == 2
    said = printed.read_text()
    assert "of score.py into out.txt (" in said, said
    assert "was started with something else: the code: new.py (new); --max-retries: 2 is now 7. Choose:" in said, said
    (folder.folder / "new.py").unlink()
    gate.unlink()
    # The choice of a size sees other data; it must not make another run of the same command.
    for number in range(200, 203):
        (data / f"z{number:05d}").write_text("")
    folder.start(*line, into=printed)
    code, _ = folder.finish()
    text = printed.read_text()[len(said) :]
    assert code == 0, text
    assert "Continuing" in text or "continu" in text.lower(), text
    assert (folder.folder / "out.txt").read_text() == "".join(f"f{number:05d} {number}\n" for number in range(200))
    listed = json.loads(folder.run("job", "list", "--format", "json")[1])
    assert len(listed) == 1
    assert 200 <= len(seen.read_text()) < 300


def test_another_output_is_another_run(folder: OneLineRun) -> None:
    gate = folder.folder.parent / "gate"
    gate.touch()
    folder.script(SLOW.format(gate=gate, seen=folder.folder.parent / "seen"))
    for number in range(100, 104):
        (folder.folder / "data" / f"f{number:05d}").write_text(str(number))
    folder.start("run", "score.py", "data", "-o", "one.txt")
    wait_until(lambda: folder.committed() >= 2, "some mini-batches are done")
    folder.kill_all()
    gate.unlink()
    other = folder.rows("two.txt", "data/f00001", "data/f00002")
    assert other == b"f00001 1\nf00002 2\n"
    code, text = folder.run("run", "score.py", "data/f00001", "-o", "one.txt")
    # Both runs went on together, so the first one may have ended, and a new one began.
    assert code == 0 or "--restart" in text


def test_each_output_of_a_folder_has_its_own_list_of_failed_items(folder: OneLineRun) -> None:
    first, second = folder.folder / "failed_items.csv", folder.folder / "two.txt.failed_items.csv"

    def run(output: str, bad: str) -> None:
        folder.script(
            "import os\ndef run(mini_batch):\n    return [os.path.basename(name) for name in mini_batch"
            f" if not name.endswith({bad!r})]\n"
        )
        code, text = folder.run("run", "score.py", "data", "-o", output, "--mini-batch-size", "1", "--tolerate")
        assert code == 0, text

    run("one.txt", "3")
    of_one = first.read_bytes()
    run("two.txt", "5")
    assert first.read_bytes() == of_one and b"f00003" in of_one and b"f00005" in second.read_bytes()
    run("one.txt", "nothing")
    assert not first.exists() and second.exists()
    run("two.txt", "5")
    assert b"f00005" in second.read_bytes() and not first.exists(), "the name stays while the list does"
    run("two.txt", "nothing")
    assert not first.exists()


def test_saved_and_run_again(folder: OneLineRun) -> None:
    first = folder.rows("out.csv", "data/f*", "--mini-batch-size", "5")
    (folder.folder / "my jobs").mkdir()
    line = ("run", "score.py", "data/f*", "-o", "out.csv", "--mini-batch-size", "5", "--save", "my jobs/job.yml")
    code, text = folder.run(*line)
    assert (code, text) == (0, "my jobs/job.yml is written. Run it with: windrow run 'my jobs/job.yml'\n")
    beside = ["--state", "other state", "--tolerate", "--set", "jobs.score.error_threshold=3", "--notify", "true"]
    code, text = folder.run(*line[:-1], "all.yml", "--workers", "2", *beside)
    assert code == 0, text
    assert text.endswith(
        "Run it with: windrow run all.yml --state 'other state' --slots 2 --tolerate "
        "--set jobs.score.error_threshold=3 --notify true\n"
    ), "what no job file holds"
    code, text = folder.run("run", "my jobs/job.yml")
    assert code == 0, text
    assert (folder.folder / "out.csv").read_bytes() == first
    assert "12 items in 3 mini-batches" in text
    code, text = folder.run(*line)
    assert code == 2
    assert "exists already" in text


def test_since_retry_and_replay(folder: OneLineRun) -> None:
    folder.script(NAMES.replace("    return", "    assert 'f00003' not in mini_batch[0], 'bad'\n    return"))
    line = ("run", "score.py", "data", "-o", "out.csv", "--mini-batch-size", "1", "--max-retries", "0")
    code, text = folder.run(*line, "--set", "jobs.score.error_threshold=0")
    assert code == 1, text
    job = json.loads(folder.run("job", "list", "--format", "json")[1])[0]["job_id"]
    assert job.startswith("score-"), "named after its script: all jobs of this folder have one experiment"
    folder.script(NAMES)
    code, text = folder.run("mb", "replay", job, "3", "--code", ".")
    assert code == 0, text
    (job_file,) = (folder.state / "one-line").glob("*/job.yml")
    code, text = folder.run("job", "retry", job, "--file", str(job_file))
    assert code == 0, text
    assert (folder.folder / "out.csv").read_bytes() == CSV
    (folder.folder / "data" / "z").write_text("new")
    folder.rows("other.csv", "data/f00001")
    code, text = folder.run(*line, "--since", "last", "--dry-run")
    assert code == 0, text
    assert re.search(r"taken over from job \S+: \d+ mini-batch", text), "of the run that the same command has made"
    assert "has changed since" not in text, "other.csv beside the script is no code"
    code, text = folder.run(*line, "--since", "last")
    assert code == 0, text
    assert "taken over" in text
    assert (folder.folder / "out.csv").read_bytes() == CSV + b"z,new\n"


def test_a_plan_without_a_run(folder: OneLineRun) -> None:
    code, text = folder.run("run", "score.py", "data", "-o", "out.csv", "--workers", "2", "--dry-run")
    assert code == 0, text
    assert "12 mini-batches with 12 items" in text
    assert text.startswith("Dry run of score.py:") and "/job.yml" not in text, "the user has no job file"
    assert not folder.state.exists()


def test_data_beside_the_script_is_no_code(folder: OneLineRun) -> None:
    folder.rows("out.csv", "data")
    folder.rows("two.csv", "data/*")
    packed = [path for path in (folder.state / "artifacts").rglob("*") if path.is_file()]
    assert packed
    assert not any(b"f00001" in path.read_bytes() for path in packed)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("score.py nope -o a.csv", '"nope" does not exist'),
        ("score.py data/*.jpg -o a.csv", 'No file matches "data/*.jpg"'),
        ("score.py data", "-o is missing: the file for the rows"),
        ("score.py data -o a.xls", 'the suffix ".xls" is not supported'),
        ("score.py -o a.csv", "No input is given"),
        ("nope.py data -o a.csv", "There is no script nope.py"),
        ("job.yml data", "job.yml is read as a job file"),
        ("job.yml -o a.csv", "but --output is given"),
        ("job.yml --timeout 5", "but --timeout is given"),
        ("job.yml -- --x", "but -- is given"),
        ("score.py data -o a.csv --workers 0", "--workers"),
        ("score.py data -o a.csv --mini-batch-size many", "windrow: --mini-batch-size many: data is read as files"),
        ("score.py data -o a.csv --mini-batch-size 3kb", "it must be a number of files"),
        ("score.py data -o a.csv --mini-batch-size -1", "windrow: --mini-batch-size -1: "),
        ("score.py data -o a.csv --partition-keys x", "windrow: --partition-keys x: data is read as files"),
        ("score.py t.csv -o a.csv --mini-batch-size many", 'windrow: --mini-batch-size many: is "many"; it must'),
        ("score.py data -o a.csv -- --error_threshold x", "windrow: -- --error_threshold x: --error_threshold is"),
        ("score.py data -o data/a.csv --dry-run -- --error_threshold x", "windrow: -- --error_threshold x: "),
        ("score.py data -o a.csv --save job.txt", "ends in .yml or .yaml"),
    ],
)
def test_what_is_wrong_is_said(folder: OneLineRun, line: str, expected: str) -> None:
    (folder.folder / "t.csv").write_text("number\n1\n")
    code, text = folder.run("run", *line.split())
    assert code == 2, text
    assert expected in " ".join(text.split())
    assert not (folder.folder / "a.csv").exists()


@pytest.mark.parametrize(("data", "first"), [("data", b"f00000,1"), ("t.csv", b"1,a,2")])
def test_a_beginning_runs_as_it_is(folder: OneLineRun, data: str, first: bytes) -> None:
    (folder.folder / "t.csv").write_text("n,text\n1,a\n2,b\n")
    code, text = folder.run("init", data, "--script", "begin.py")
    assert code == 0, text
    code, text = folder.run("run", "job.yml")
    assert code == 0, text
    written = (folder.folder / "rows.csv").read_bytes()
    assert first in written
    code, text = folder.run("run", "begin.py", data, "-o", "again.csv")
    assert code == 0, text
    assert (folder.folder / "again.csv").read_bytes() == written
    code, text = folder.run("init", data)
    assert code == 2
    assert "score.py exists already" in text


def test_a_beginning_for_data_that_is_empty_says_so(folder: OneLineRun) -> None:
    (folder.folder / "t.csv").touch()
    (folder.folder / "nothing").mkdir()
    for data, script in (("t.csv", "table.py"), ("nothing", "files.py")):
        code, text = folder.run("init", data, "--script", script, "--job", f"{script}.yml")
        assert code == 0 and f"warning: {data} is empty: the job fails until there is data." in text, text
    (folder.folder / "head.csv").write_text('"a\nb";c\n\n')
    code, text = folder.run("init", "head.csv", "--script", "head.py", "--job", "head.yml")
    assert code == 0 and "warning: head.csv has a header and no row: the job fails until there is data." in text, text
    with (folder.folder / "head.csv").open("a") as file:
        file.write("1;2\n")
    code, text = folder.run("init", "head.csv", "--script", "rows.py", "--job", "rows.yml")
    assert code == 0 and "warning" not in text, text
    code, text = folder.run("init", "data", "--script", "full.py")
    assert code == 0 and "warning" not in text, text


def test_a_name_that_no_job_file_can_hold_is_told(folder: OneLineRun) -> None:
    (folder.folder / "caf\udce9").mkdir()
    (folder.folder / "caf\udce9" / "x").touch()
    for line in (["caf\udce9", "-o", "a.csv"], ["data", "-o", "caf\udce9.csv"]):
        code, text = folder.run("run", "score.py", *line)
        assert code == 2 and "A name is no UTF-8 text, which a job file cannot hold: `" in text, text
        assert "/caf\\udce9" in text, text


def test_nothing_is_left_of_a_beginning_without_data(folder: OneLineRun) -> None:
    code, text = folder.run("init", "nope", "--script", "begin.py")
    assert code == 2
    assert '"nope" does not exist' in text
    assert not (folder.folder / "begin.py").exists()
