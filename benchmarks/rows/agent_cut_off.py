"""The network between one of two agents and the master fails silently: how soon its work runs elsewhere."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import windrow

from benchmarks.measurement import Contender, Metric, Outcome, Row
from benchmarks.rows.file_work import check_rows, make_files
from benchmarks.served import Served
from benchmarks.waiting import wait_succeeded, wait_until
from benchmarks.windrow_job import Job, files_job

COUNT = 400
CUT_AFTER = 60


def _contenders(folder: Path) -> list[Contender]:
    names = make_files(folder / "input", COUNT)

    def run_windrow(run: Path) -> Outcome:
        job = files_job(run, work="logged_spin", input_path=folder / "input", mini_batch_size=1)
        with Served(run, data=folder.parent) as served:
            served.add_agent("near", slots=2)
            link = served.link()
            far = served.add_agent("far", slots=2, through=link)
            with windrow.Client(served.address) as client:
                wait_until(
                    "two nodes are ready", lambda: sum(node.state == "ready" for node in client.list_nodes()) == 2
                )
                submitted = client.submit(job.folder / "job.yml")
                wait_until(
                    "both agents work", lambda: len(job.executions()) >= CUT_AFTER and _of(far) & _executing(job)
                )
                far_pids = _of(far)
                link.cut()
                cut_ns = time.time_ns()
                wait_succeeded(client, submitted.job_id)
        check_rows(job.output, names)
        return Outcome(_figures(job, cut_ns, far_pids))

    return [Contender("Windrow, agent cut off", run_windrow)]


def _executing(job: Job) -> set[int]:
    return {pid for _, pid, _ in job.executions()}


def _of(agent: psutil.Process) -> set[int]:
    return {child.pid for child in agent.children(recursive=True)}


def _figures(job: Job, cut_ns: int, far_pids: set[int]) -> dict[str, float]:
    begun = job.executions()
    on_far = {name for _, pid, name in begun if pid in far_pids}
    moved = [at for at, pid, name in begun if at > cut_ns and pid not in far_pids and name in on_far]
    if not moved:
        raise RuntimeError("nothing of the agent that was cut off ran elsewhere: nothing was measured")
    return {"resumed": (min(moved) - cut_ns) / 1e9, "again": float(len(begun) - COUNT)}


ROW = Row(
    key="agent_cut_off",
    title="One of two agents cut off without a word in the middle of 400 mini-batches of 50 ms",
    aim="what it held runs elsewhere ≤ 5 s later",
    metrics=[Metric("resumed", "runs elsewhere after", "s"), Metric("again", "executions more", "", 0)],
    contenders=_contenders,
)
