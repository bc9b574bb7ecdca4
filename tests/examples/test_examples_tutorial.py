"""The tutorial as a reader follows it: files are written, commands typed, output compared."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from documented_commands import ROOT, TUTORIAL, type_line

BIN = Path(sys.executable).parent
FAILS = {"windrow run job.yml": (1,), "timeout --signal=KILL 5 windrow run job.yml": (-9, 137)}
"""Commands that end so when they are typed for the first time."""


class Part(NamedTuple):
    """Something that a reader does or sees. `kind`: a file's name, "commands" or "output"."""

    kind: str
    lines: list[str]


def parts() -> Iterator[Part]:
    """The parts of the page, in its order."""
    text = (ROOT / TUTORIAL).read_text()
    pattern = r"^```(\w*)\n(.*?)^```$|((?:^    [^\n]*\n)+)"
    before = 0
    for match in re.finditer(pattern, text, re.MULTILINE | re.DOTALL):
        language, fenced, commands = match.groups()
        if commands:
            yield Part("commands", [line.strip() for line in commands.splitlines()])
        elif language:
            yield Part(re.findall(r"`([\w/]+\.\w+)`", text[before : match.start()])[-1], fenced.splitlines())
        else:
            yield Part("output", fenced.splitlines())
        before = match.end()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Reader:
    """Who follows the tutorial, in a folder of their own."""

    def __init__(self, folder: Path, processes: contextlib.ExitStack) -> None:
        self.folder = folder
        self.processes = processes
        self.port = str(free_port())
        self.told = ""
        self.typed: list[str] = []
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("WINDROW_")},
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "NO_COLOR": "1",
        }

    def type(self, line: str) -> None:
        """A command; master and agents go on beside the others."""
        command = line.replace("8470", self.port)
        if re.search(r"\bJOB\b", command):
            where = "".join(re.findall(r" --master \S+", command))
            jobs = type_line(f"windrow job list --format json{where}", self.folder, self.environment, 60)
            command = re.sub(r"\bJOB\b", json.loads(jobs.stdout)[0]["job_id"], command)
        if re.search(r"windrow (master|agent) ", command):
            self.start(command)
            return
        done = type_line(command, self.folder, self.environment, 200)
        self.told = done.stdout + done.stderr
        expected = (0,) if line in self.typed else FAILS.get(line, (0,))
        assert done.returncode in expected, f"{command}: {done.returncode}\n{self.told}"
        self.typed.append(line)

    def start(self, command: str) -> None:
        """A command that does not end until the reader is done; its first line says that it is ready."""
        process = subprocess.Popen(
            ["bash", "-c", re.sub(r"windrow (?=master|agent)", "exec windrow ", command)],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.processes.enter_context(process)
        self.processes.callback(process.terminate)
        assert process.stdout is not None
        if " master " in command:
            assert json.loads(process.stdout.readline())["ready"]

    def sees(self, lines: list[str]) -> None:
        """What the page shows is in the output of the last command; `…` stands for anything."""
        for line in lines:
            assert re.search(".*".join(map(re.escape, line.strip().split("…"))), self.told), f"{line}\n{self.told}"


@pytest.mark.timeout(600)
def test_the_tutorial_from_beginning_to_end(tmp_path: Path) -> None:
    folder = tmp_path / "my tutorial"
    folder.mkdir()
    with contextlib.ExitStack() as processes:
        reader = Reader(folder, processes)
        for part in parts():
            if part.kind == "commands":
                for line in part.lines:
                    reader.type(line)
            elif part.kind == "output":
                reader.sees(part.lines)
            else:
                (folder / part.kind).parent.mkdir(exist_ok=True)
                (folder / part.kind).write_text("\n".join(part.lines) + "\n")
    rows = (folder / "totals.csv").read_text().splitlines()
    prices = [12.5 if number == 17 else 2.5 * (number % 7) for number in range(610)]
    assert rows == [f"{number},{number % 5 * price:.2f},EUR" for number, price in enumerate(prices)]
