"""`windrow top`: what the screen shows, that it fits, and the keys on a real terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

import pytest
from client_workspace import DEADLINE_S, Workspace, kill, served_master, wait_until
from rich.console import Console
from windrow.cli.top.frame import VIEWS, frame
from windrow.cli.top.moment import Moment, Watcher
from windrow.sdk.job import ItemCounts, Job, JobState, MiniBatchCounts, Step
from windrow.sdk.node import Gpu, Node, Worker, WorkerGpu
from windrow_command import WINDROW

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def job(name: str, state: JobState = JobState.RUNNING, done: int = 50, steps: int = 1) -> Job:
    begun = NOW - timedelta(seconds=100)
    made = tuple(
        Step(f"step{at}", "running", planned=True, start_time=begun, step_id=at + 1,
             mini_batches=MiniBatchCounts(total=100, succeeded=done), items=ItemCounts(total=200, ok=2 * done))
        for at in range(steps)
    )  # fmt: skip
    return Job(name, name, state, steps=made, create_time=begun)


def node(name: str, *workers: Worker) -> Node:
    return Node(name, "ready", slots=8, workers=len(workers), processes=workers, cpu_percent=97.0, leases=len(workers),
                memory_bytes=1 << 34, memory_used_bytes=1 << 33, disk_free_bytes=1 << 40, silent_s=1.0)  # fmt: skip


def screen(moment: Moment, view: str, width: int, height: int) -> list[str]:
    console = Console(width=width, height=height, color_system=None, force_terminal=False)
    with console.capture() as shown:
        console.print(frame(moment, view, width, height))
    return shown.get().splitlines()


def moment_of(jobs: Sequence[Job], nodes: Sequence[Node]) -> Moment:
    return Watcher("gpu1:8470").moment(jobs, nodes, 5000.0, NOW)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 24), (200, 60)])
def test_every_screen_fits(view: str, width: int, height: int) -> None:
    jobs = [job(f"nightly-scoring-of-everything-2026110{at % 10}-120000-{at:04x}", steps=3) for at in range(60)]
    worker = Worker(7, 1, "running", 12.0, 1 << 30, 1_234_567)
    nodes = [node(f"a-node-with-a-long-name-{at}.example.org", worker, worker) for at in range(80)]
    lines = screen(moment_of(jobs, nodes), view, width, height)
    assert len(lines) < height
    assert all(len(line) <= width for line in lines), lines
    assert re.fullmatch(r"… and [\d,]+ more", lines[-1].strip())


def test_jobs_at_work_come_first_with_their_own_rates_and_steps() -> None:
    jobs = [job("done", JobState.COMPLETED, 100), job("two", steps=2), job("one", done=25)]
    text = "\n".join(screen(moment_of(jobs, []), "jobs", 120, 24))
    assert [text.index(name) for name in ("two", "step0", "step1", "one", "done")] == sorted(
        text.index(name) for name in ("two", "step0", "step1", "one", "done")
    )
    row = next(line for line in text.splitlines() if line.startswith("one"))
    assert "25 %" in row and "0.5 items/s" in row and "5 min" in row
    assert "2 jobs at work" in text.splitlines()[0]
    assert all(re.search(rf"^{name} .* 1min *$", text, re.MULTILINE) for name in ("done", "one")), text


def test_workers_say_what_they_do_and_for_which_step() -> None:
    workers = (
        Worker(0, 1, "running", 40.0, 1 << 30, 17),
        Worker(1, 1, "init", 9.0, 1 << 20),
        Worker(2, 99, "idle", 1.0, 0),
    )
    lines = screen(moment_of([job("digits")], [node("n1", *workers)]), "workers", 100, 24)
    first, second, third = lines[-3:]
    assert re.search(r"n1 +000 +digits:step0 +run\(\) +41s +17 +1.1 GB", first)
    assert "init()" in second and "10s" in second
    assert "digits" not in third, "it serves a step of a job that is not shown"


@pytest.mark.parametrize("width", [80, 100, 120])
def test_figures_of_gpus_are_whole_or_left_out(width: int) -> None:
    halves = WorkerGpu((0,), 0.5, 38_600_000_000, 100.0)
    idle = WorkerGpu((10, 11, 12, 13), 1.0, 38_600_000_000, 0.0, 7200.0)
    workers = (Worker(0, 1, "running", 4000.0, 1 << 34, 1_234_567, halves), Worker(1, 1, "init", 9.0, 1 << 34, 5, idle))
    gpus = tuple(Gpu(str(at), busy_percent=100.0, trouble="lost" if at == 3 else "") for at in range(16))
    one = node("gpu-node-with-a-long-name-01", *workers)._replace(
        gpu_count=15, gpus=gpus, slots=128, workers=128, leases=4096, cpu_percent=100.0, memory_used_bytes=999 << 30
    )
    now = moment_of([job("training-of-the-nightly-model")], [one])
    for view in ("nodes", "workers"):
        heads, *rows = [line for line in screen(now, view, width, 24)[3:] if line.strip()]
        assert "…" not in heads and "BUSY" in heads, heads
        for row in rows:
            cells = row.split("  ")
            assert sum("…" in cell for cell in cells) <= 2, "only names are cut"
            assert "100 %" in row or "idle" in row


def test_an_interrupted_job_has_no_rate_and_no_end() -> None:
    text = "\n".join(screen(moment_of([job("one", done=25)], [])._replace(runs_nothing=True), "jobs", 120, 24))
    assert re.search(r"^one +interrupted .* 25 % +1min *$", text, re.MULTILINE), text
    assert "RATE" not in text and "items/s" not in text


def test_without_jobs_or_nodes_it_says_what_to_do() -> None:
    nothing = moment_of([], [])
    assert "windrow job create" in screen(nothing, "jobs", 80, 24)[-1]
    assert "windrow run script.py" in screen(nothing._replace(runs_nothing=True), "jobs", 80, 24)[-1]
    assert "windrow agent" in screen(nothing, "nodes", 80, 24)[-1]


@pytest.fixture
def running(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path)
    workspace.write(["1", "wait", "wait"], name="name: live")
    return workspace


def test_one_frame_of_a_run_is_printed_for_programs(running: Workspace) -> None:
    with running.start("run", "job.yml", "--no-progress") as process:
        try:
            wait_until(lambda: "run()" in running.run("top", "--once", "--view", "workers").stdout, "workers run")
            assert re.search(r"live:score +run\(\)", running.run("top", "live", "--view", "workers").stdout)
            assert re.search(r"live +running .* 33 %", running.run("top", "--once").stdout)
            assert running.run("top", "--view", "rows").returncode == 2
        finally:
            running.gate.touch()
            process.communicate(timeout=DEADLINE_S)


def test_keys_switch_between_the_screens_and_q_ends(tmp_path: Path) -> None:
    running = Workspace(tmp_path)
    running.write(["1", "2"])
    assert running.run("run", "job.yml", "--no-progress").returncode == 0
    with _Screen(running) as screen:
        for key, what in (
            (b"", b"PROGRESS"),
            (b"n", b"A run on this machine brings its own node"),
            (b"w", b"A run on this machine brings its own node"),
            (b"j", b"PROGRESS"),
        ):
            screen.press(key)
            screen.read_until(what)
        screen.leave()


def test_a_run_that_begins_while_it_shows_is_neither_held_up_nor_missed(tmp_path: Path) -> None:
    running = Workspace(tmp_path)
    running.write(["1", "wait"])
    running.gate.touch()
    assert running.run("run", "job.yml", "--no-progress").returncode == 0
    running.gate.unlink()
    with _Screen(running) as screen:
        screen.read_until(b"no run is live")
        with running.start("run", "job.yml", "--no-progress") as process:
            try:
                screen.read_until(b"1 job at work, 1 node ready")
                running.gate.touch()
                screen.press(b"")
                screen.read_until(b"no run is live")
                told, trouble = process.communicate(timeout=DEADLINE_S)
                assert process.returncode == 0, told + trouble
                assert "Waiting for" not in trouble
            finally:
                running.gate.touch()
                process.kill()
        screen.leave()


def test_keys_work_while_the_master_does_not_answer(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    (tmp_path / "store").mkdir()
    with served_master(workspace, tmp_path / "store") as address, _Screen(workspace, "--master", address) as screen:
        screen.read_until(b"There are no jobs yet")
        master = workspace.pid_of("windrow_master")
        assert master is not None
        kill(master)
        screen.read_until(f"No master answers at {address}".encode())
        screen.press(b"n")
        screen.read_until(b"No node is connected")
        screen.leave()


class _Screen:
    """`windrow top` on a terminal of its own."""

    def __init__(self, workspace: Workspace, *options: str) -> None:
        self._controller, terminal = pty.openpty()
        os.set_inheritable(terminal, True)
        self._shown = b""
        self._process = subprocess.Popen(
            [WINDROW, "top", *options],
            cwd=workspace.folder,
            env=workspace.environment(COLUMNS="100", LINES="24", TERM="xterm"),
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
        )
        os.close(terminal)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._controller)

    def press(self, key: bytes) -> None:
        """Press a key, and forget what was shown before."""
        self._shown = b""
        os.write(self._controller, key)

    def read_until(self, what: bytes) -> None:
        end_s = time.monotonic() + DEADLINE_S
        while what not in self._shown:
            assert time.monotonic() < end_s, self._shown[-2000:]
            if select.select([self._controller], [], [], 0.2)[0]:
                self._shown += os.read(self._controller, 1 << 16)

    def leave(self) -> None:
        self.press(b"q")
        # It ends when the terminal has shown all that it wrote.
        with contextlib.suppress(OSError):
            while os.read(self._controller, 1 << 16):
                pass
        assert self._process.wait(DEADLINE_S) == 0
