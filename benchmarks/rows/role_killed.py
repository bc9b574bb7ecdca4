"""SIGKILL ends the master or the agent in the middle: how long no mini-batch begins, and what runs twice."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.measurement import Contender, Metric, Outcome, Row
from benchmarks.rows.file_work import check_rows, make_files
from benchmarks.windrow_job import RunningJob, files_job

COUNT = 200
KILL_AFTER = 60


def _killed(folder: Path, names: list[str], victim: str) -> Callable[[Path], Outcome]:
    def run_windrow(run: Path) -> Outcome:
        job = files_job(run, work="logged_spin", input_path=folder, mini_batch_size=1)
        with RunningJob(job) as running:
            running.wait_until("a third of the work", lambda: len(job.executions()) >= KILL_AFTER)
            process = running.roles()[victim]
            killed_ns = time.time_ns()
            process.kill()
            times = running.finish()
        check_rows(job.output, names)
        begins = sorted(at for at, _, _ in job.executions())
        around = [at for at in begins if at <= killed_ns][-1:] + [at for at in begins if at > killed_ns]
        pause = max(later - earlier for earlier, later in itertools.pairwise(around)) / 1e9
        return Outcome({"pause": pause, "again": float(len(begins) - COUNT), "whole": times.end})

    return run_windrow


def _contenders(folder: Path) -> list[Contender]:
    names = make_files(folder / "input", COUNT)
    return [
        Contender("Windrow, agent killed", _killed(folder / "input", names, "windrow_agent")),
        Contender("Windrow, master killed", _killed(folder / "input", names, "windrow_master")),
    ]


ROW = Row(
    key="role_killed",
    title="Agent or master killed by SIGKILL in the middle of 200 mini-batches of 50 ms, two workers",
    aim="work runs again ≤ 2 s (agent), ≤ 3 s (master); nothing committed runs again",
    metrics=[
        Metric("pause", "longest time without a begin", "s"),
        Metric("again", "executions more", "", 0),
        Metric("whole", "whole command", "s"),
    ],
    contenders=_contenders,
)
