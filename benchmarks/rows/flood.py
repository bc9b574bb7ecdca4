"""Mini-batches that wait, while strangers flood the master: the rate of the job, with and without."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import windrow
from windrow.rpc.contexts import Access

from benchmarks.measurement import Contender, Metric, Outcome, Row
from benchmarks.programs import ROOT
from benchmarks.rows.file_work import check_rows, make_files
from benchmarks.served import Served
from benchmarks.waiting import wait_succeeded, wait_until
from benchmarks.windrow_job import files_job

COUNT = 400
STREAMS = 3_000
RATE = 10_000


@contextmanager
def _strangers(address: str, reached: dict[str, float]) -> Iterator[None]:
    """A flood, on a processor of its own as far as there is one; puts what it has reached into `reached`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.flooding", address, "--streams", str(STREAMS), "--rate", str(RATE)],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
    assert process.stdin is not None and process.stdout is not None
    try:
        if not process.stdout.readline():
            raise RuntimeError("the flood did not begin")
        yield
        process.stdin.close()
        reached.update(json.loads(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _contenders(folder: Path) -> list[Contender]:
    names = make_files(folder / "input", COUNT)

    def run(run: Path, *, flooded: bool) -> Outcome:
        job = files_job(run, work="rest", input_path=folder / "input", mini_batch_size=1)
        token = secrets.token_hex(32)
        reached: dict[str, float] = {}
        with Served(run, folder.parent, token) as served:
            served.add_agent("worker", slots=2)
            master = psutil.Process(served.master.pid)
            with windrow.Client(access=Access(served.address, "", token)) as client:
                wait_until("the node is ready", lambda: [node for node in client.list_nodes() if node.state == "ready"])
                with _strangers(served.address, reached) if flooded else _nobody():
                    begun, before = time.monotonic(), sum(master.cpu_times()[:2])
                    submitted = client.submit(job.folder / "job.yml")
                    wait_succeeded(client, submitted.job_id)
                    took, used = time.monotonic() - begun, sum(master.cpu_times()[:2]) - before
                memory = master.memory_info().rss / 1e6
        check_rows(job.output, names)
        return Outcome({"rate": COUNT / took, "master": used / took, "memory": memory, **reached})

    return [
        Contender("Windrow", lambda scratch: run(scratch, flooded=False)),
        Contender("Windrow, flooded", lambda scratch: run(scratch, flooded=True)),
    ]


@contextmanager
def _nobody() -> Iterator[None]:
    yield


ROW = Row(
    key="flood",
    title=f"{COUNT} mini-batches of 50 ms of waiting, while strangers open {STREAMS:,} streams and try {RATE:,} "
    "calls a second",
    aim="the rate falls by at most 20 %",
    metrics=[
        Metric("rate", "rate of the whole job", "/s", 1, more_is_better=True),
        Metric("refused", "calls refused", "/s", 0),
        Metric("streams", "streams open at the end", "", 0),
        Metric("closed", "connections closed", "", 0),
        Metric("master", "processors that the master uses", ""),
        Metric("memory", "memory of the master", "MB", 0),
    ],
    contenders=_contenders,
)
