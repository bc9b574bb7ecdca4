"""`windrow mb replay`: the mini-batch again, in this terminal, and nothing of its job changed."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import windrow
from client_workspace import DEADLINE_S, Workspace, wait_until
from replays import Terminal, replay
from windrow.cli.mini_batches.replay import Replay

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


def contents_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_run_returns_is_told_and_nothing_of_the_job_changes(ended: Workspace) -> None:
    before = contents_of(ended.folder / "out")
    done = replay(ended, "replayed", "0")
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
    assert not Path(done.stdout.partition("shutdown of ")[2].splitlines()[0]).exists()


def test_a_failure_is_the_scripts_own_traceback(ended: Workspace) -> None:
    done = replay(ended, "replayed", "score/1")
    assert done.returncode == 1
    trace = done.stderr.partition("Traceback (most recent call last):\n")[2]
    assert trace.splitlines()[0].endswith('code/score.py", line 19, in run')
    assert "ValueError: this item is bad: item001.txt\n" in trace
    assert "windrow_worker" not in done.stderr
    assert "exception: run() raised ValueError: this item is bad: item001.txt (score.py, line 19)" in done.stderr


def test_a_return_that_cannot_be_used_is_judged_as_in_the_job(ended: Workspace) -> None:
    done = replay(ended, "replayed", "2")
    assert done.returncode == 1
    assert "bad_return: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_crash_is_told_with_where_it_was(ended: Workspace) -> None:
    done = replay(ended, "replayed", "3")
    assert done.returncode == 1
    assert "Segmentation fault" in done.stderr
    assert "score.py" in done.stderr
    assert "The process was ended by SIGSEGV." in done.stderr


def test_a_script_that_ends_the_process_has_not_returned(ended: Workspace, tmp_path: Path) -> None:
    (tmp_path / "score.py").write_text("import os\ndef run(mini_batch):\n    os._exit(0)\n")
    done = replay(ended, "replayed", "0", "--code", str(tmp_path))
    assert done.returncode == 1
    assert "ended the process with exit code 0" in done.stderr and "`crash`" in done.stderr


def test_repaired_code_is_tried_in_its_place(ended: Workspace, tmp_path: Path) -> None:
    (tmp_path / "score.py").write_text("def run(mini_batch): return ['mended', 'twice']\n")
    done = replay(ended, "replayed", "1", "--code", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert f"Code: {tmp_path}, as it is now." in done.stderr
    assert "    mended\n    twice\n" in done.stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    refused = replay(ended, "replayed", "1", "--code", str(empty))
    assert refused.returncode == 2
    assert "does not contain score.py" in refused.stderr


def test_what_is_made_is_kept_where_that_is_asked_for(ended: Workspace, tmp_path: Path) -> None:
    keep = tmp_path / "kept"
    done = replay(ended, "replayed", "0", "--keep", str(keep))
    assert done.returncode == 0, done.stderr
    assert (keep / "outputs" / "files" / "item000.txt").read_text() == "fine"
    assert replay(ended, "replayed", "0", "--keep", str(keep)).returncode == 2


def test_outputs_are_written_where_that_is_asked_for(ended: Workspace) -> None:
    target = ended.folder / "out" / "files" / "item000.txt"
    target.write_text("older")
    done = replay(ended, "replayed", "0", "--write-outputs")
    assert done.returncode == 0, done.stderr
    assert f"except what the script writes to {ended.folder / 'out' / 'files'}" in done.stderr
    assert target.read_text() == "fine"


def test_input_that_is_gone_is_told_before_anything_runs(ended: Workspace) -> None:
    data = ended.folder / "data" / "item000.txt"
    hidden = data.with_suffix(".hidden")
    data.rename(hidden)
    try:
        done = replay(ended, "replayed", "0")
    finally:
        hidden.rename(data)
    assert done.returncode == 1
    assert f"What it reads is not on this machine: {data}" in done.stderr
    assert "init" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("99",), "has no mini-batch 99"),
        (("x",), "is not a mini-batch"),
        (("/3",), "is not a mini-batch"),
        (("other/3",), "no step named 'other'"),
        (("0", "--python", "/nowhere/python"), "/nowhere/python"),
    ],
)
def test_what_cannot_be_replayed_is_told(ended: Workspace, arguments: tuple[str, ...], told: str) -> None:
    done = replay(ended, "replayed", *arguments)
    assert done.returncode in (1, 2)
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_the_debugger_stands_where_it_was_raised(ended: Workspace) -> None:
    terminal = Terminal(ended, "mb", "replay", "replayed", "1", "--pdb")
    terminal.wait_for("(Pdb) ")
    terminal.type("p secret, text\n")
    terminal.wait_for("(42, 'raise')")
    terminal.type("q\n")
    terminal.wait_for("shutdown of")
    assert terminal.end() == 1


def test_the_debugger_stands_in_the_last_frame_of_the_users_own_code(ended: Workspace, tmp_path: Path) -> None:
    """The error rises in a library, three frames below a helper of the script."""
    (tmp_path / "helper.py").write_text(
        "import json\ndef read(words):\n    mine = 'here'\n    return json.loads(words)\n"
    )
    (tmp_path / "score.py").write_text(
        "import helper\ndef run(mini_batch):\n    outer = 'outer'\n    return [helper.read('{')]\n"
    )
    terminal = Terminal(ended, "mb", "replay", "replayed", "0", "--code", str(tmp_path), "--pdb")
    terminal.wait_for("(Pdb) ")
    assert "last frame of your own code; 3 frames of libraries lie deeper" in terminal.seen
    terminal.type("p mine + '!'\n")
    terminal.wait_for("'here!'")
    terminal.type("d\n")
    terminal.wait_for("json/__init__.py")
    terminal.type("u\n")
    terminal.type("u\n")
    terminal.type("p outer + '!'\n")
    terminal.wait_for("'outer!'")
    terminal.type("q\n")
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
    terminal.wait_for("The debugger was quit before the end.")
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_leaves_nothing_behind(ended: Workspace, tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "score.py").write_text("import time\ndef run(mini_batch):\n    time.sleep(600)\n")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    arguments = ("mb", "replay", "replayed", "0", "--code", str(tmp_path))
    replay = ended.start(*arguments, TMPDIR=str(temporary))
    wait_until(lambda: list(temporary.rglob("process000.json.running")), "the script runs")
    replay.send_signal(number)
    assert replay.wait(DEADLINE_S) == 128 + number
    replay.communicate()
    assert not list(temporary.iterdir())
    wait_until(lambda: not ended.processes(), "nothing runs any more")


@pytest.mark.parametrize("moment", ["made", "brought"])
def test_interrupted_it_leaves_nothing_behind(
    ended: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Ctrl-C before anything runs: when its folder is just made; when the private master is being ended."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    make = Path.mkdir

    def interrupted_mkdir(path: Path, *arguments: Any, **options: Any) -> None:
        make(path, *arguments, **options)
        if path.parent == tmp_path:
            raise KeyboardInterrupt

    if moment == "made":
        monkeypatch.setattr(Path, "mkdir", interrupted_mkdir)
    with windrow.Client(state=ended.state) as client, pytest.raises(KeyboardInterrupt), Replay(None) as replay:
        replay.bring(client, "replayed", 0, None, item=None, pdb=False, python=None, code=None, write_outputs=False)
        assert [path.name.startswith("windrow-replay-") for path in tmp_path.iterdir()] == [True]
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
