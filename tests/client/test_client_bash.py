"""Completion in a real bash, which ends words at colons."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from client_workspace import DEADLINE_S, Workspace
from windrow.cli.bash_words import rejoined

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")


@pytest.mark.parametrize(
    ("typed", "words", "at", "kept"),
    [
        ("windrow job show la", ["windrow", "job", "show", "la"], 3, ""),
        ("windrow job logs last :", ["windrow", "job", "logs", "last:"], 3, "last:"),
        ("windrow job logs last : sc", ["windrow", "job", "logs", "last:sc"], 3, "last:"),
        ("windrow mb list --only =", ["windrow", "mb", "list", "--only="], 3, "--only="),
        ("windrow mb list --only = fa", ["windrow", "mb", "list", "--only=fa"], 3, "--only="),
        ("windrow job show --master = a : 1 x", ["windrow", "job", "show", "--master=a:1", "x"], 4, ""),
        ("windrow job show --master = a : 1", ["windrow", "job", "show", "--master=a:1"], 3, "--master=a:"),
        ("windrow job ", ["windrow", "job", ""], 2, ""),
    ],
)
def test_words_are_joined_as_they_were_typed(typed: str, words: list[str], at: int, kept: str) -> None:
    given = typed.split(" ")
    assert rejoined(given, len(given) - 1) == (words, at, kept)


class Bash:
    """An interactive bash with completion of `windrow`, on a terminal."""

    def __init__(self, workspace: Workspace) -> None:
        self._terminal, theirs = os.openpty()
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = workspace.environment(TERM="dumb", PS1="ready> ", PATH=path, INPUTRC="/dev/null")
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"],
            cwd=workspace.folder,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.shown = ""
        self.type("bind 'set bell-style none'; bind 'set enable-bracketed-paste off'\n")
        # typer writes a script for the shell from which it is called, or for the one that is named.
        self.type('eval "$(_WINDROW_COMPLETE=source_bash windrow)" && complete -p windrow\n')
        self.until(r"complete -o default -F \w+ windrow\s+ready> $")

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def until(self, pattern: str) -> None:
        """Wait until what was shown since the last call matches."""
        deadline = time.monotonic() + DEADLINE_S
        while not re.search(pattern, self.shown):
            assert time.monotonic() < deadline, self.shown
            if select.select([self._terminal], [], [], 0.1)[0]:
                self.shown += os.read(self._terminal, 65536).decode()
        self.shown = ""

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)


@pytest.fixture
def bash(workspace: Workspace) -> Iterator[Bash]:
    """A bash beside a run that has ended."""
    workspace.write(["1"], name="name: digits")
    assert workspace.run("run", "job.yml").returncode == 0
    bash = Bash(workspace)
    yield bash
    bash.close()


def test_names_of_jobs_and_of_their_steps_are_completed_on_a_state_folder(bash: Bash) -> None:
    bash.type("windrow job show di\t")
    bash.until(r"job show digits $")
    bash.type("\x15windrow job logs digits:\t")
    bash.until(r"job logs digits:score $")
    bash.type("\x15windrow job logs last:sc\t")
    bash.until(r"job logs last:score $")
    bash.type("\x15windrow mb list --only=fai\t")
    bash.until(r"mb list --only=failed $")
    bash.type("\x15windrow job show \t\t")
    bash.until(r"digits +last\s")
