"""The reader of plain command lines: it agrees with typer's, and leaves the rest to that."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from client_workspace import Workspace
from windrow.cli.lines import app as typer_side
from windrow.cli.lines import plain_lines
from windrow.cli.lines.command_table import WINDROW
from windrow.cli.options.declared import HELPS, Argument, Function, Group, load, options_of

ROLES = ("master", "setup")
"""Commands whose options are read by programs of their own."""


def commands(group: Group, *path: str) -> Iterator[tuple[str, Function]]:
    for name, entry in group.commands.items():
        if isinstance(entry, Group):
            yield from commands(entry, *path, name)
        elif name not in ROLES:
            yield " ".join((*path, name)), load(entry)


ALL = dict(commands(WINDROW))
EXAMPLES = sorted(
    line.removeprefix("windrow ").partition(" > ")[0].partition(" && ")[0]
    for function in ALL.values()
    for line in HELPS[function].epilog.partition("\n")[0].removeprefix("Example: ").split(". Then: ")
)
LINES = [
    "job list",
    "job list -n 3 --only failed --only running --since=2d --name 'digits-*' --format json",
    "job list --columns job,state --master 127.0.0.1:1 --state s",
    "job show last --metrics --state=s",
    "job logs -f last out.txt --tail 5 --mini-batch 0",
    "job logs -- last -weird",
    "job create --priority 5 job.yml --set a=b --set c= --notify desktop --stream",
    "mb show last 17 --format=json",
    "node list",
    "agent --master a:1 --master b:2 --slots 3 --drain-grace 1.5 --folder /nowhere --sandbox strict",
    "agent --master a:1 --control-groups required --worker-processes 100 --worker-memory 4GB",
    "agent --master a:1 --job-users 200000-200100",
    "top --interval 0.5 --once",
    "run score.py a b --workers 2 -- --k 0.5",
    "data create --name n --path -",
]


def typer_reads(line: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[Function, dict[str, Any]]:
    """What the typer application would execute."""
    found: list[tuple[Function, dict[str, Any]]] = []

    def noted(function: Function, values: dict[str, Any]) -> int:
        found.append((function, values))
        return 0

    monkeypatch.setattr(typer_side, "execute", noted)
    monkeypatch.setattr(sys, "argv", ["windrow", *line])
    with pytest.raises(SystemExit):
        typer_side.run_app()
    return found[0]


@pytest.mark.parametrize("line", [*LINES, *EXAMPLES])
def test_both_readers_agree(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(line)
    plain = plain_lines.read(words, {})
    assert plain is not None
    monkeypatch.setattr("windrow.cli.lines.app._wants_json", lambda arguments: False)
    function, values = typer_reads(words, monkeypatch)
    assert plain[0] is function
    assert {name: value or None for name, value in plain[1].items()} == {n: v or None for n, v in values.items()}
    assert {name: type(value) for name, value in plain[1].items() if value} == {
        name: type(value) for name, value in values.items() if value
    }


def test_both_readers_know_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {
        "WINDROW_MASTER": "m:1",
        "WINDROW_POOL": "a b",
        "WINDROW_SLOTS": "7",
        "WINDROW_SANDBOX": "auto",
        "WINDROW_STATE": "",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for line in (["agent"], ["node", "list"], ["agent", "--pool", "c", "--slots", "2"]):
        assert plain_lines.read(line, environment) == typer_reads(line, monkeypatch)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--help",
        "job",
        "job --help",
        "jobs list",
        "job list --help",
        "job list extra",
        "job list -n",
        "job list -n 0",
        "job list -n x",
        "job list -n3",
        "job list -n -1",
        "job list --only nothing",
        "job list --lim 3",
        "job list --format=xml",
        "job show",
        "job show a b",
        "job show a --metrics=1",
        "top --interval nan",
        "agent --slots ²",
    ],
)
def test_all_other_lines_are_left_to_typer(line: str) -> None:
    assert plain_lines.read(shlex.split(line), {}) is None


def test_an_unreadable_path_is_left_to_typer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "job.yml"
    file.write_text("")
    line = ["job", "validate", str(file)]
    assert plain_lines.read(line, {}) is not None
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert plain_lines.read(line, {}) is None


def test_every_command_can_be_read_plainly() -> None:
    for path, function in ALL.items():
        for name, one in options_of(function).items():
            assert isinstance(one.kind, type), (path, name)
            # typer would also take --no-x for an option that it names itself.
            assert not one.is_flag or one.declared.names, (path, name)
            assert not (isinstance(one.declared, Argument) and one.declared.names), (path, name)
            assert not (one.is_flag and one.declared.envvar), (path, name)
            excluded = one.declared.excludes
            assert excluded.keys() <= options_of(function).keys() - {name}, (path, name)


@pytest.mark.parametrize("line", ["job list", "job list --format json", "node list", "--version"])
def test_a_plain_line_loads_no_typer(line: str, workspace: Workspace) -> None:
    program = (
        "import atexit, sys, windrow.cli\n"
        "unwanted = {'typer', 'click', 'pydantic', 'rich', 'yaml', 'pandas'}\n"
        "atexit.register(lambda: print(sorted(unwanted & set(sys.modules))))\n"
        "windrow.cli.main()"
    )
    workspace.write(["a"])
    assert workspace.run("run", "job.yml").returncode == 0
    done = subprocess.run(
        [sys.executable, "-c", program, *line.split()], cwd=workspace.folder, capture_output=True, text=True, check=True
    )
    assert done.stdout.rstrip().endswith("[]"), done.stdout


def test_contradicting_options_are_refused(workspace: Workspace) -> None:
    workspace.write(["a"])
    for line, said in (
        ("run job.yml --restart --keep-rows", "--restart and --keep-rows are mutually exclusive"),
        ("run job.yml --workers 2 --slots 3", "--workers and --slots are the same option"),
        ("job stream last --strict --tolerate", "--strict and --tolerate contradict each other"),
    ):
        done = workspace.run(*line.split())
        assert done.returncode == 2 and said in done.stderr, done.stderr
