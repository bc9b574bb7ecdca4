"""`windrow mb replay`: the mini-batch again, in this terminal, and nothing of its job changed."""

from __future__ import annotations

import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from client_workspace import DEADLINE_S, MAIN, Workspace, wait_until

SCRIPT = """
import argparse, os, signal, sys
parser = argparse.ArgumentParser()
for name in ("--model", "--out", "--word"):
    parser.add_argument(name)
given, _ = parser.parse_known_args()

def init():
    print("init by", os.environ["FLAVOUR"], given.word, open(given.model).read().strip())

def run(mini_batch):
    secret = 42
    rows = []
    for path in mini_batch:
        name, text = os.path.basename(path), open(path).read().strip()
        with open(os.path.join(given.out, name), "w") as file:
            file.write(text)
        if text == "raise":
            raise ValueError("this item is bad: " + name)
        if text == "odd":
            return 17
        if text == "crash" and "WINDROW_REPLAYED" not in os.environ:
            os.kill(os.getpid(), signal.SIGSEGV)
        if text == "ask":
            print("answer:", sys.stdin.readline().strip())
        rows.append(name + " " + text)
    return rows

def shutdown():
    print("shutdown of", os.getcwd())
"""

JOB = """
type: pipeline
name: replayed
inputs:
  data: {type: uri_folder, path: ./data}
  model: {type: uri_file, path: ./model.txt}
outputs:
  files: {type: uri_folder, path: ./out/files}
  rows: {type: uri_file, path: ./out/rows.txt}
jobs:
  score:
    type: parallel
    inputs: {data: "${{parent.inputs.data}}", model: "${{parent.inputs.model}}"}
    outputs: {rows: "${{parent.outputs.rows}}", files: "${{parent.outputs.files}}"}
    input_data: ${{inputs.data}}
    mini_batch_size: "1"
    error_threshold: -1
    environment_variables: {FLAVOUR: mint}
    retry_settings: {max_retries: 0, timeout: 60}
    task:
      type: run_function
      code: ./code
      entry_script: score.py
      program_arguments: --model ${{inputs.model}} --out ${{outputs.files}} --word "two words"
      append_row_to: ${{outputs.rows}}
"""
CONTENTS = ["fine", "raise", "odd", "crash", "ask"]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A job that has ended, with failures of several kinds."""
    workspace = Workspace(tmp_path_factory.mktemp("replayed"))
    workspace.write(CONTENTS)
    (workspace.folder / "code" / "score.py").write_text(SCRIPT)
    (workspace.folder / "model.txt").write_text("a model")
    workspace.job_file.write_text(JOB)
    done = workspace.run("run", "job.yml", "--no-progress")
    assert done.returncode == 0, done.stderr
    return workspace


def replay(workspace: Workspace, *arguments: str, job: str = "replayed") -> subprocess.CompletedProcess[str]:
    return workspace.run("mb", "replay", job, *arguments)


def contents_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_run_returns_is_told_and_nothing_of_the_job_changes(ended: Workspace) -> None:
    before = contents_of(ended.folder / "out")
    done = replay(ended, "0")
    assert done.returncode == 0, done.stderr
    assert "init by mint two words a model\n" in done.stdout
    assert "shutdown of /" in done.stdout
    assert "Replaying mini-batch 0 (1 item) of step score, job replayed." in done.stderr
    assert str(ended.folder / "data" / "item000.txt") in done.stderr
    assert "run() returned one result for 1 item." in done.stderr
    assert "1 row would be written, 17 B. The first:\n    item000.txt fine\n" in done.stderr
    assert "It took" in done.stderr
    assert "Output files: 1 file, 4 B" in done.stderr
    assert contents_of(ended.folder / "out") == before
    assert not list(Path("/tmp").glob("windrow-replay-*/steps"))


def test_a_failure_is_the_scripts_own_traceback(ended: Workspace) -> None:
    done = replay(ended, "score/1")
    assert done.returncode == 1
    trace = done.stderr.partition("Traceback (most recent call last):\n")[2]
    assert trace.splitlines()[0].endswith('code/score.py", line 19, in run')
    assert "ValueError: this item is bad: item001.txt\n" in trace
    assert "windrow_worker" not in done.stderr
    assert "exception: run() raised ValueError: this item is bad: item001.txt (score.py, line 19)" in done.stderr


def test_a_return_that_cannot_be_used_is_judged_as_in_the_job(ended: Workspace) -> None:
    done = replay(ended, "2")
    assert done.returncode == 1
    assert "bad_return: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_crash_is_told_with_where_it_was(ended: Workspace) -> None:
    done = replay(ended, "3")
    assert done.returncode == 1
    assert "Segmentation fault" in done.stderr
    assert "score.py" in done.stderr
    assert "The process was ended by SIGSEGV." in done.stderr


def test_a_script_that_ends_the_process_has_not_returned(ended: Workspace, tmp_path: Path) -> None:
    (tmp_path / "score.py").write_text("import os\ndef run(mini_batch):\n    os._exit(0)\n")
    done = replay(ended, "0", "--code", str(tmp_path))
    assert done.returncode == 1
    assert "ended the process with exit code 0" in done.stderr and "`crash`" in done.stderr


def test_repaired_code_is_tried_in_its_place(ended: Workspace, tmp_path: Path) -> None:
    (tmp_path / "score.py").write_text("def run(mini_batch): return ['mended', 'twice']\n")
    done = replay(ended, "1", "--code", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert f"Code: {tmp_path}, as it is now." in done.stderr
    assert "    mended\n    twice\n" in done.stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    refused = replay(ended, "1", "--code", str(empty))
    assert refused.returncode == 2
    assert "holds no score.py" in refused.stderr


def test_what_is_made_is_kept_where_that_is_asked_for(ended: Workspace, tmp_path: Path) -> None:
    keep = tmp_path / "kept"
    done = replay(ended, "0", "--keep", str(keep))
    assert done.returncode == 0, done.stderr
    assert (keep / "outputs" / "files" / "item000.txt").read_text() == "fine"
    assert replay(ended, "0", "--keep", str(keep)).returncode == 2


def test_outputs_are_written_where_that_is_asked_for(ended: Workspace) -> None:
    target = ended.folder / "out" / "files" / "item000.txt"
    target.write_text("older")
    done = replay(ended, "0", "--write-outputs")
    assert done.returncode == 0, done.stderr
    assert f"but what the script writes to {ended.folder / 'out' / 'files'}" in done.stderr
    assert target.read_text() == "fine"


def test_input_that_is_gone_is_told_before_anything_runs(ended: Workspace) -> None:
    data = ended.folder / "data" / "item000.txt"
    hidden = data.with_suffix(".hidden")
    data.rename(hidden)
    try:
        done = replay(ended, "0")
    finally:
        hidden.rename(data)
    assert done.returncode == 1
    assert f"What it reads is not on this machine: {data}" in done.stderr
    assert "init" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("99",), "has no mini-batch 99"),
        (("x",), "names no mini-batch"),
        (("/3",), "names no mini-batch"),
        (("other/3",), "no step named 'other'"),
        (("0", "--python", "/nowhere/python"), "/nowhere/python"),
    ],
)
def test_what_cannot_be_replayed_is_told(ended: Workspace, arguments: tuple[str, ...], told: str) -> None:
    done = replay(ended, *arguments)
    assert done.returncode in (1, 2)
    assert told in done.stderr
    assert "Traceback" not in done.stderr


class Terminal:
    """The command on a terminal of its own."""

    def __init__(self, workspace: Workspace, *arguments: str) -> None:
        self._fd, far = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"import os; os.login_tty(0); {MAIN}", *arguments],
            cwd=workspace.folder,
            env=workspace.environment(TERM="dumb"),
            stdin=far,
            stdout=far,
            stderr=far,
        )
        os.close(far)
        self.seen = ""

    def wait_for(self, words: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while words not in self.seen:
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self._fd], [], [], left)[0], self.seen
            try:
                data = os.read(self._fd, 65536)
            except OSError:
                data = b""
            assert data, f"{words!r} never came: {self.seen}"
            self.seen += data.decode(errors="replace")

    def type(self, words: str) -> None:
        self.seen = ""
        os.write(self._fd, words.encode())

    def end(self) -> int:
        code = self._process.wait(DEADLINE_S)
        os.close(self._fd)
        return code


def test_the_debugger_stands_where_it_was_raised(ended: Workspace) -> None:
    terminal = Terminal(ended, "mb", "replay", "replayed", "1", "--pdb")
    terminal.wait_for("(Pdb) ")
    terminal.type("p secret, text\n")
    terminal.wait_for("(42, 'raise')")
    terminal.type("q\n")
    terminal.wait_for("shutdown of")
    assert terminal.end() == 1


def test_a_breakpoint_of_the_script_stops_there(ended: Workspace, tmp_path: Path) -> None:
    (tmp_path / "score.py").write_text("def run(mini_batch):\n    word = 'here'\n    breakpoint()\n    return [word]\n")
    terminal = Terminal(ended, "mb", "replay", "replayed", "0", "--code", str(tmp_path))
    terminal.wait_for("(Pdb) ")
    terminal.type("word = 'there'\n")
    terminal.wait_for("(Pdb) ")
    terminal.type("c\n")
    terminal.wait_for("    there\r\n")
    assert terminal.end() == 0
    terminal = Terminal(ended, "mb", "replay", "replayed", "0", "--code", str(tmp_path))
    terminal.wait_for("(Pdb) ")
    terminal.type("q\n")
    terminal.wait_for("The debugger was left before the end.")
    assert "Traceback" not in terminal.seen
    assert terminal.end() == 1


def test_the_terminal_is_the_scripts_own(ended: Workspace) -> None:
    terminal = Terminal(ended, "mb", "replay", "replayed", "4")
    terminal.wait_for("─\r\n")
    terminal.type("forty-two\n")
    terminal.wait_for("answer: forty-two")
    assert terminal.end() == 0


def test_ctrl_c_ends_run_and_leaves_nothing_behind(ended: Workspace, tmp_path: Path) -> None:
    (tmp_path / "score.py").write_text(
        "import time\ndef run(mini_batch):\n    print('it runs')\n    time.sleep(600)\n"
        "def shutdown(): print('in order')\n"
    )
    terminal = Terminal(ended, "mb", "replay", "replayed", "0", "--code", str(tmp_path))
    terminal.wait_for("it runs")
    terminal.type("\x03")
    terminal.wait_for("in order")
    assert "KeyboardInterrupt" in terminal.seen
    assert terminal.end() == 130


OTHERS = """
type: pipeline
name: others
inputs:
  table: {{type: mltable, path: ./table}}
  lines: {{type: uri_folder, path: ./lines}}
  one: {{type: uri_folder, path: ./data}}
  two: {{type: uri_folder, path: ./more}}
jobs:
  frames:
    type: parallel
    inputs: {{table: "${{{{parent.inputs.table}}}}"}}
    outputs: {{rows: {{type: uri_file, path: ./out/frames.csv}}}}
    input_data: ${{{{inputs.table}}}}
    mini_batch_size: 1kb
    task: {{type: run_function, code: ./code, entry_script: frames.py, append_row_to: "${{{{outputs.rows}}}}",
           program_arguments: --append_row_format csv}}
  dicts:
    type: parallel
    inputs: {{lines: "${{{{parent.inputs.lines}}}}"}}
    outputs: {{rows: {{type: uri_file, path: ./out/dicts.jsonl}}}}
    input_data: ${{{{inputs.lines}}}}
    task: {{type: run_function, code: ./code, entry_script: dicts.py, append_row_to: "${{{{outputs.rows}}}}",
           program_arguments: --amlbi_file_format jsonl --append_row_format jsonl}}
  both:
    type: parallel
    inputs: {{one: "${{{{parent.inputs.one}}}}", two: "${{{{parent.inputs.two}}}}"}}
    outputs: {{rows: {{type: uri_file, path: ./out/both.txt}}}}
    input_data: ["${{{{inputs.one}}}}", "${{{{inputs.two}}}}"]
    mini_batch_size: "1"
    task: {{type: run_function, code: ./code, entry_script: names.py, append_row_to: "${{{{outputs.rows}}}}"}}
  columns:
    type: parallel
    inputs: {{lines: "${{{{parent.inputs.lines}}}}"}}
    outputs: {{rows: {{type: uri_file, path: ./out/columns.parquet}}}}
    input_data: ${{{{inputs.lines}}}}
    task: {{type: run_function, code: ./code, entry_script: dicts.py, append_row_to: "${{{{outputs.rows}}}}",
           program_arguments: --amlbi_file_format jsonl --append_row_format parquet}}
  ranks:
    type: parallel
    outputs: {{rows: {{type: uri_file, path: ./out/ranks.txt}}}}
    task: {{type: run_function, code: ./code, entry_script: ranks.py, append_row_to: "${{{{outputs.rows}}}}",
           program_arguments: --rank_mini_batch_count 3}}
"""


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A job with a step for each other kind of input."""
    workspace = Workspace(tmp_path_factory.mktemp("others"))
    folder = workspace.folder
    for name in ("table", "lines", "more"):
        (folder / name).mkdir()
    (folder / "data" / "a.txt").write_text("a")
    (folder / "more" / "b.txt").write_text("b")
    (folder / "table" / "MLTable").write_text("paths: [{file: ./t.csv}]\ntransformations: [{read_delimited: {}}]\n")
    (folder / "table" / "t.csv").write_text("name,number\nx,1\ny,2\n")
    (folder / "lines" / "l.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    code = folder / "code"
    (code / "frames.py").write_text("def run(frame): return frame.assign(double=2 * frame.number)\n")
    (code / "dicts.py").write_text("def run(rows): return [{'n': 10 * row['n']} for row in rows]\n")
    (code / "names.py").write_text("import os\ndef run(files): return [os.path.basename(file) for file in files]\n")
    (code / "ranks.py").write_text("def run(batch, context): return [f'{len(batch)} {context.minibatch_index}']\n")
    workspace.job_file.write_text(OTHERS.format())
    done = workspace.run("run", "job.yml", "--no-progress")
    assert done.returncode == 0, done.stdout + done.stderr
    return workspace


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("frames/0", ["run() returned 2 results for 2 items.", "    name,number,double\n    x,1,2\n    y,2,4\n"]),
        ("dicts/0", ["run() returned 2 results for 2 items.", '    {"n":10}\n    {"n":20}\n']),
        ("columns/0", ["  2 rows would be written", '    {"n": 10}\n    {"n": 20}\n']),
        ("both/1", ["    b.txt\n"]),
        ("ranks/2", ["    0 2\n"]),
    ],
)
def test_every_kind_of_input_is_read_as_in_the_job(others: Workspace, name: str, words: list[str]) -> None:
    done = replay(others, name, job="others")
    assert done.returncode == 0, done.stderr
    for told in words:
        assert told in done.stderr


COMMANDS = """
type: pipeline
name: commands
outputs: {made: {type: uri_folder, path: ./out/made}}
jobs:
  say:
    type: command
    outputs: {made: "${{parent.outputs.made}}"}
    environment_variables: {FLAVOUR: mint}
    component:
      type: command
      code: ./code
      outputs: {made: {type: uri_folder}}
      command: python say.py $FLAVOUR ${{outputs.made}}
  fail: {type: command, command: echo no luck >&2; exit 3}
settings: {continue_on_step_failure: true}
"""


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A job of two commands, one of which failed."""
    workspace = Workspace(tmp_path_factory.mktemp("commands"))
    (workspace.folder / "code" / "say.py").write_text(
        "import pathlib, sys\n"
        "print('said', sys.argv[1], 'to', sys.stdin.readline().strip())\n"
        "(pathlib.Path(sys.argv[2]) / 'word').write_text('said')\n"
    )
    workspace.job_file.write_text(COMMANDS)
    done = workspace.run("run", "job.yml", "--no-progress")
    assert done.returncode == 1, done.stderr
    return workspace


def test_a_command_runs_again_with_the_terminal(commands: Workspace) -> None:
    made = commands.folder / "out" / "made" / "word"
    made.unlink()
    terminal = Terminal(commands, "mb", "replay", "commands", "say/0")
    terminal.wait_for("Replaying the command of step say, job commands.")
    terminal.type("you\n")
    terminal.wait_for("said mint to you")
    terminal.wait_for("The command ended well.")
    terminal.wait_for("Output made: 1 file, 4 B")
    assert terminal.end() == 0
    assert not made.exists()


def test_a_command_that_fails_tells_its_exit_code(commands: Workspace) -> None:
    done = replay(commands, "fail/0", job="commands")
    assert done.returncode == 1
    assert "no luck\n" in done.stderr
    assert "The command ended with exit code 3" in done.stderr
    assert "Traceback" not in done.stderr
    refused = replay(commands, "fail/0", "--pdb", job="commands")
    assert refused.returncode == 2
    assert "Step fail is a command" in refused.stderr


def test_of_several_steps_one_must_be_named(others: Workspace) -> None:
    done = replay(others, "0", job="others")
    assert done.returncode == 2
    assert "frames, dicts, both, columns, ranks" in done.stderr


def test_a_served_masters_mini_batch_is_replayed_from_another_folder(tmp_path: Path) -> None:
    """The code comes from the master, while the job still runs."""
    workspace = Workspace(tmp_path)
    workspace.write(["fine", "wait"])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    master = workspace.start("master", "--state", "s", "--listen", address, "--datastore", f"default={tmp_path}")
    agent = workspace.start("agent", "--master", address, "--folder", "a", "--slots", "2")
    try:
        assert master.stdout is not None and "ready" in master.stdout.readline()
        created = workspace.run("job", "create", "job.yml", "--name", "served", "--master", address)
        assert created.returncode == 0, created.stderr

        def first_is_done() -> bool:
            listed = workspace.run("mb", "list", "served", "--only", "succeeded", "--master", address, "-o", "json")
            return '"mini_batch_index": 0' in listed.stdout

        wait_until(first_is_done, "the first mini-batch is done")
        done = workspace.run("mb", "replay", "served", "0", "--master", address)
        assert done.returncode == 0, done.stderr
        assert "    item000.txt fine\n" in done.stderr
    finally:
        workspace.gate.touch()
        for process in (agent, master):
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
