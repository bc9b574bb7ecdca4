"""`windrow top`: its frames at every size of a terminal, and the real command on a real one."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import pytest
from client_workspace import DEADLINE_S, MAIN, Workspace, wait_until
from windrow.cli.top import View
from windrow.cli.top.columns import Bar, Below, Cell, Column, laid_out
from windrow.cli.top.frame import frame
from windrow.cli.top.looks import Look, ShownJob
from windrow.sdk.job import ItemCounts, Job, JobState, MiniBatchCounts, Step, StepReason
from windrow.sdk.node import Node, Worker

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def step(name: str = "score", number: int = 1, state: str = "running", done: int = 4, failed: int = 1) -> Step:
    return Step(
        name,
        state,
        planned=True,
        mini_batches=MiniBatchCounts(10, 8 - done - failed, 2, done, failed),
        items=ItemCounts(100, 10 * done, 10 * failed),
        step_id=number,
    )


def shown(name: str, state: JobState, *steps: Step, reasons: Sequence[StepReason] = ()) -> ShownJob:
    return ShownJob(Job(name, name, state, steps=steps), 125.0, 42.0, 3.5, reasons)


def node(name: str, *workers: Worker, state: str = "ready") -> Node:
    return Node(name, state, "", 8, 64_000_000_000, 1, 4, 55.0, 20_000_000_000, 10**12, 4, 5, 0.4, processes=workers)


def look(jobs: Sequence[ShownJob] = (), nodes: Sequence[Node] = (), **more: object) -> Look:
    return Look("127.0.0.1:8470", NOW, jobs, nodes)._replace(**more)


WAITS = [StepReason("score", "WORKERS_STARTING", "…", "init() for 12 s on 4 workers")]
OLD = shown("old", JobState.COMPLETED_WITH_FAILURES, step("old", 99, "completed"))
BUSY = look(
    [
        shown("digits-20260501-101500-ab12", JobState.RUNNING, step(done=0, failed=0), reasons=WAITS),
        shown("a-job-with-a-very-long-name-indeed-0000000000000000000000000000", JobState.RUNNING, step("other", 2)),
        *(OLD._replace(job=OLD.job._replace(job_id=f"old-{number:03d}")) for number in range(50)),
    ],
    [
        node(
            "gpu-1", Worker(0, 1, "running", 75.0, 1234, 10**9), Worker(1, 2, "init", 12.0), Worker(2, 1, "idle", 90.0)
        ),
        node("gpu-2", Worker(0, 2, "building", 5.0), state="draining"),
    ],
)


@pytest.mark.parametrize("view", View)
@pytest.mark.parametrize("width", [40, 80, 120, 200])
@pytest.mark.parametrize("height", [5, 24, 60])
def test_every_view_fits_the_terminal(view: View, width: int, height: int) -> None:
    for one in (BUSY, BUSY._replace(only="digits"), look(), look(note="The master accepts no changes: " + "x" * 300)):
        lines = frame(one, view, width, height).lines
        assert len(lines) <= height
        assert max(line.cell_len for line in lines) <= width


def text(one: Look, view: View, width: int = 120, height: int | None = 24, offset: int = 0) -> str:
    return "\n".join(line.plain.rstrip() for line in frame(one, view, width, height, offset).lines)


@pytest.mark.parametrize("width", [80, 120])
def test_jobs_are_told_with_a_bar_and_what_they_wait_for(width: int) -> None:
    told = text(BUSY, View.JOBS, width)
    assert "windrow top  127.0.0.1:8470  2 jobs at work, 2 nodes, 1/3 workers busy" in told
    assert re.search(r"(?m)^digits-20260501-101500-ab\S+ +─+ +0% +0/100 .*running$", told)
    assert "  init() for 12 s on 4 workers\n" in told
    assert re.search(r"(?m)^a-job-with-a-very.* ━+─+ +50% +50/100 .*running$", told)
    assert ("3.5/s" in told) == (width == 120)
    assert told.endswith("more below")


def test_rows_that_do_not_fit_are_scrolled() -> None:
    top, down = frame(BUSY, View.JOBS, 80, 24), frame(BUSY, View.JOBS, 80, 24, 5)
    assert top.offset_max == down.offset_max == 53 - 19
    assert down.lines[4].plain == top.lines[9].plain
    last = text(BUSY, View.JOBS, 80, offset=1000)
    assert "old-049" in last and last.endswith(f"{top.offset_max} above, 0 below")
    assert "old-049" in text(BUSY, View.JOBS, 80, None), "all rows where there is no screen"


def test_one_job_is_told_by_step_those_at_work_first() -> None:
    steps = [step(f"s{number:03d}", number, "completed") for number in range(300)]
    steps[250] = step("s250", 250)
    one = shown("pipeline", JobState.RUNNING, *steps)
    told = text(look([one], only="pipeline"), View.JOBS)
    assert "running, 2 min 5 s, 42 s to go, 3.5 items/s, 300 steps: 299 completed, 1 running" in told
    assert told.splitlines()[5].startswith("s250 ")
    assert len(told.splitlines()) <= 24


@pytest.mark.parametrize("width", [80, 120])
def test_nodes_are_told_with_slots_processor_and_memory(width: int) -> None:
    told = text(BUSY, View.NODES, width)
    assert re.search(r"(?m)^gpu-1 +ready +1 +4 +55% of 8 .*20\.0 GB of 64\.0 GB", told)
    assert re.search(r"(?m)^gpu-2 +draining ", told)


def test_workers_are_told_with_phase_mini_batch_and_for_how_long_the_longest_first() -> None:
    rows = text(BUSY, View.WORKERS).splitlines()[4:]
    assert re.match(
        r"gpu-1 +process000 +run\(\) +1 min 15 s +1,234 +score +digits-20260501-101500-ab12 +1\.0 GB$", rows[0]
    )
    assert re.match(r"gpu-1 +process001 +init\(\) +12 s +other +a-job", rows[1])
    assert re.match(r"gpu-2 +building environment +5\.0 s ", rows[2])
    assert re.match(r"gpu-1 +process002 +idle ", rows[3])


def test_columns_that_do_not_fit_are_left_out_the_least_important_first() -> None:
    columns = (Column("NAME", cut_to=6, keep=9), Column("", is_bar=True), Column("X", keep=1), Column("EMPTY"))
    rows = [(Cell("a" * 20), Bar(0.5, 0.01), Cell("x" * 9), Cell("")), Below("told")]

    def lines(width: int) -> list[str]:
        return [line.plain for line in laid_out(columns, rows, width)]

    assert lines(41) == [
        "NAME" + " " * 28 + "X",
        "aaaaaaaaaaaaaaaaaaaa  ━━━━━───  xxxxxxxxx",
        "  told",
    ]
    assert lines(43)[1] == "aaaaaaaaaaaaaaaaaaaa  ━━━━━━────  xxxxxxxxx"
    assert lines(30)[1] == "aaaaaaaa…  ━━━━━───  xxxxxxxxx"
    assert lines(26)[1] == "aaaaaaaaaaaaaaa…  ━━━━━───"
    assert lines(6)[1] == "aaaaa…"


class OnTerminal:
    """A command on a terminal, and what it shows."""

    def __init__(self, workspace: Workspace, *arguments: str, columns: int = 80, lines: int = 24) -> None:
        self.terminal, theirs = os.openpty()
        # Kept open, to see the terminal as the command leaves it.
        self._theirs = os.dup(theirs)
        termios.tcsetwinsize(theirs, (lines, columns))
        self.before = termios.tcgetattr(self.terminal)
        environment = workspace.environment(TERM="xterm", NO_COLOR="")
        for name in ("COLUMNS", "LINES"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", MAIN, *arguments],
            cwd=workspace.folder,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.shown = ""

    def until(self, is_there: Callable[[str], object]) -> str:
        """Wait until what was shown since the last call is as wanted; return it."""
        deadline = time.monotonic() + DEADLINE_S
        since = len(self.shown)
        while not is_there(plain(self.shown[since:])):
            assert time.monotonic() < deadline, self.shown[since:]
            if select.select([self.terminal], [], [], 0.1)[0]:
                self.shown += os.read(self.terminal, 65536).decode(errors="replace")
            else:
                assert self.process.poll() is None, f"it ended: {self.shown}"
        return plain(self.shown[since:])

    def press(self, key: str) -> None:
        os.write(self.terminal, key.encode())

    def ended(self) -> int:
        """Read to its end; return the exit code."""
        while self.process.poll() is None or select.select([self.terminal], [], [], 0)[0]:
            if select.select([self.terminal], [], [], 0.1)[0]:
                self.shown += os.read(self.terminal, 65536).decode(errors="replace")
        code = self.process.wait(DEADLINE_S)
        self.after = termios.tcgetattr(self._theirs)
        os.close(self._theirs)
        os.close(self.terminal)
        return code


def plain(shown: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)


def test_a_run_of_this_folder_is_watched_live_until_q(workspace: Workspace) -> None:
    workspace.write(["1", "wait"])
    with workspace.start("run", "job.yml") as run:
        wait_until(lambda: workspace.run("top", "last", "--once").returncode == 0, "there is a job")
        top = OnTerminal(workspace, "top")
        top.until(lambda shown: re.search(r"━+─+ +50% +1/2 .*running", shown))
        top.press("w")
        top.until(lambda shown: re.search(r"process00\d +run\(\) ", shown))
        top.press("2")
        top.until(lambda shown: re.search(r"NODE +STATE +BUSY +SLOTS", shown))
        workspace.gate.touch()
        top.press("j")
        top.until(lambda shown: re.search(r"100% +2/2 .*completed", shown))
        top.press("q")
        assert top.ended() == 0
        assert "\x1b[?1049h" in top.shown and "\x1b[?1049l" in top.shown
        assert run.wait(DEADLINE_S) == 0
        run.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_the_terminal_in_order(workspace: Workspace, number: signal.Signals) -> None:
    workspace.write(["1"])
    assert workspace.run("run", "job.yml").returncode == 0
    top = OnTerminal(workspace, "top", "last", columns=120)
    top.until(lambda shown: re.search(r"score +━+ +100% +1/1 ", shown))
    os.kill(top.process.pid, number)
    assert top.ended() == 0
    assert top.after == top.before
    assert "\x1b[?1049l" in top.shown and "\x1b[?25h" in top.shown


def test_once_prints_one_frame_and_needs_no_terminal(workspace: Workspace) -> None:
    workspace.write(["1", "2"])
    assert workspace.run("run", "job.yml").returncode == 0
    once = workspace.run("top", "--once")
    assert once.returncode == 0 and "\x1b" not in once.stdout
    assert re.search(r"(?m)^\S+ +━+ +100% +2/2 .*completed$", once.stdout)
    assert re.search(r"(?m)^score +━+ +100% +2/2 .*completed$", workspace.run("top", "last", "--once").stdout)
    assert "No worker runs" in workspace.run("top", "--once", "--view", "workers").stdout
    refused = workspace.run("top")
    assert refused.returncode == 2 and "--once" in refused.stderr
