"""A job is submitted where no agent is: a fleet asks for one, whose process starts and runs the first mini-batch."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil
import windrow
from windrow.sdk.fleet import Allocation

from benchmarks.measurement import Contender, Metric, Outcome, Row
from benchmarks.rows.file_work import check_rows, make_files
from benchmarks.served import Served
from benchmarks.waiting import wait_succeeded, wait_until
from benchmarks.windrow_job import files_job

COUNT = 100
FLEET = "site"
FILE = """\
name: {fleet}
groups:
  local:
    provider: process
    slots: 2
    max: 1
    exit_idle: 1s
    agent: {{folder: "{agents}"}}
    process: {{folder: "{known}"}}
"""


def _contenders(folder: Path) -> list[Contender]:
    names = make_files(folder / "input", COUNT)

    def run(place: Path) -> Outcome:
        agents, known = place / "agents", place / "known"
        agents.mkdir()
        (place / "fleet.yml").write_text(FILE.format(fleet=FLEET, agents=agents, known=known))
        with Served(place, data=folder.parent) as served, windrow.Client(served.address) as client:
            served.start("fleet", ["fleet", "run", "fleet.yml", "--master", served.address])
            wait_until("the master knows the fleet", lambda: any(one.name == FLEET for one in client.fleets.list()))
            job = files_job(place, work="noop", input_path=folder / "input", mini_batch_size=1)
            submitted_s = time.time()
            job_id = client.submit(job.folder / "job.yml").job_id
            # A process that has ended says no more when it started.
            started_s = _agent_started_s(client)
            wait_succeeded(client, job_id)
            check_rows(job.output, names)
            (allocation,) = _allocations(client)
            wait_until("the agent has left", lambda: all(one.has_ended for one in _allocations(client)))
        assert allocation.begin_time is not None
        first_run_s = min(int(path.read_text()) for path in job.stamps.glob("first-*")) / 1e9
        return Outcome(
            {
                "asked": allocation.begin_time.timestamp() - submitted_s,
                "first_run": first_run_s - started_s,
                "whole": first_run_s - submitted_s,
            }
        )

    missing = None if sys.platform == "linux" else "Linux"
    return [Contender("Windrow, processes of this machine", run, missing)]


def _allocations(client: windrow.Client) -> tuple[Allocation, ...]:
    return tuple(client.fleets.get(FLEET).allocations or ())


def _agent_started_s(client: windrow.Client) -> float:
    """When the process of the fleet's one agent started, in seconds since 1970."""
    found: list[float] = []

    def look() -> bool:
        for allocation in _allocations(client):
            if allocation.engine_id:
                # The process that keeps the agent has no other child.
                keeper = psutil.Process(int(allocation.engine_id.rpartition(" ")[2]))
                found.extend(_started_s(child.pid) for child in keeper.children())
        return bool(found)

    wait_until("the agent's process has started", look)
    return min(found)


def _started_s(pid: int) -> float:
    """When a process started, to a hundredth of a second: the kernel tells the time of its own start in whole ones."""
    since_boot = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(since_boot) / os.sysconf("SC_CLK_TCK")
    return time.time() - age_s


ROW = Row(
    key="fleet",
    title="A job is submitted where no agent is, and a fleet of processes of this machine gets one",
    aim="asked for ≤ 2 s after submission; first run() ≤ 2 s after the agent's process has started",
    metrics=[
        Metric("asked", "asked for after", "s"),
        Metric("first_run", "process to first run()", "s"),
        Metric("whole", "submission to first run()", "s"),
    ],
    contenders=_contenders,
)
