"""`windrow mb replay` of every kind of input, of commands, and of a served master's mini-batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from client_workspace import Workspace, served_cluster, wait_until
from replays import Terminal, replay

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
        ("frames/0", ["run() returned 2 results for 2 items.", "The first:\n    name,number,double\n    x,1,2\n"]),
        ("dicts/0", ["run() returned 2 results for 2 items.", '    {"n":10}\n    {"n":20}\n']),
        ("columns/0", ["  2 rows would be written", '    {"n": 10}\n    {"n": 20}\n']),
        ("both/1", ["    b.txt\n"]),
        ("ranks/2", ["    0 2\n"]),
    ],
)
def test_every_kind_of_input_is_read_as_in_the_job(others: Workspace, name: str, words: list[str]) -> None:
    done = replay(others, "others", name)
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
    terminal.wait_for("The command succeeded.")
    terminal.wait_for("Output made: 1 file, 4 B")
    assert terminal.end() == 0
    assert not made.exists()


def test_a_command_that_fails_tells_its_exit_code(commands: Workspace) -> None:
    done = replay(commands, "commands", "fail/0")
    assert done.returncode == 1
    assert "no luck\n" in done.stderr
    assert "The command ended with exit code 3" in done.stderr
    assert "Traceback" not in done.stderr
    refused = replay(commands, "commands", "fail/0", "--pdb")
    assert refused.returncode == 2
    assert "Step fail is a command" in refused.stderr


def test_of_several_steps_one_must_be_named(others: Workspace) -> None:
    done = replay(others, "others", "0")
    assert done.returncode == 2
    assert "frames, dicts, both, columns, ranks" in done.stderr


def test_a_served_masters_mini_batch_is_replayed_from_another_folder(tmp_path: Path) -> None:
    """The code comes from the master, while the job still runs."""
    workspace = Workspace(tmp_path)
    workspace.write(["fine", "wait"])
    with served_cluster(workspace, tmp_path) as address:

        def first_is_done() -> bool:
            listed = workspace.run(
                "mb", "list", "served", "--only", "succeeded", "--master", address, "--format", "json"
            )
            return '"mini_batch_index": 0' in listed.stdout

        try:
            created = workspace.run("job", "create", "job.yml", "--name", "served", "--master", address)
            assert created.returncode == 0, created.stderr
            wait_until(first_is_done, "the first mini-batch is done")
            done = workspace.run("mb", "replay", "served", "0", "--master", address)
            assert done.returncode == 0, done.stderr
            assert "    item000.txt fine\n" in done.stderr
        finally:
            workspace.gate.touch()
