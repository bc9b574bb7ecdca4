"""1,000,000 mini-batches: the memory of master and planner, and how fast the master answers meanwhile."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from windrow.rpc.v1 import job_service_pb2, job_service_pb2_grpc

from benchmarks.measurement import Contender, Metric, Outcome, Row
from benchmarks.programs import ROOT, peer_command, timeline
from benchmarks.rows.file_work import check_rows, million_files
from benchmarks.windrow_job import RunningJob, files_job

PAUSE_S = 0.05


def _contenders(folder: Path) -> list[Contender]:
    files, names = million_files(folder)

    def windrow(run: Path) -> Outcome:
        job = files_job(run, work="noop", input_path=files, mini_batch_size=1)
        memory_mb = 0.0
        answers_s: list[float] = []
        with RunningJob(job) as running:
            running.wait_until("the first run()", lambda: any(job.stamps.glob("first-*")))
            stub, job_id = _connect(running)
            while running.process.poll() is None:
                memory_mb = max(memory_mb, _memory_mb(running))
                start = time.perf_counter()
                try:
                    stub.GetJob(job_service_pb2.GetJobRequest(job_id=job_id), timeout=30)
                    answers_s.append(time.perf_counter() - start)
                except Exception:
                    break  # the run has ended, and its master with it
                time.sleep(PAUSE_S)
            times = running.finish()
        check_rows(job.output, names)
        assert times.after_start is not None
        slowest = statistics.quantiles(answers_s, n=100)
        return Outcome(
            {
                "memory": memory_mb,
                "median": 1000 * statistics.median(answers_s),
                "p99": 1000 * slowest[98],
                "worst": 1000 * max(answers_s),
                "rate": len(names) / times.after_start,
            }
        )

    def other(module: str) -> Callable[[Path], Outcome]:
        def run_peer(run: Path) -> Outcome:
            options: dict[str, object] = {"work": "noop", "folder": files, "batch-size": 1}
            command = peer_command(module, run, options, optional=False)
            start_ns = time.time_ns()
            memory_mb = 0.0
            process = psutil.Popen(command, cwd=run, env=os.environ | {"PYTHONPATH": str(ROOT)})
            while process.poll() is None:
                with contextlib.suppress(psutil.Error):
                    memory_mb = max(memory_mb, process.memory_info().rss / 1e6)
                time.sleep(PAUSE_S)
            times = timeline(start_ns, time.time_ns(), process.returncode, run / "stamps", run / "rows.txt", "")
            check_rows(run / "rows.txt", names)
            assert times.after_start is not None
            return Outcome({"memory": memory_mb, "rate": len(names) / times.after_start}, "its parent process")

        return run_peer

    return [
        Contender("Windrow", windrow),
        Contender("multiprocessing.Pool", other("pool")),
        Contender("concurrent.futures", other("futures")),
    ]


def _connect(running: RunningJob) -> tuple[job_service_pb2_grpc.JobServiceStub, str]:
    import json

    import grpc
    from windrow.rpc import session_key
    from windrow.rpc.bearer import Bearer

    address = json.loads((running.job.state / "embedded.json").read_text())["address"]
    channel = grpc.intercept_channel(grpc.insecure_channel(address), Bearer(lambda: session_key.read(address)))
    stub = job_service_pb2_grpc.JobServiceStub(channel)
    return stub, stub.ListJobs(job_service_pb2.ListJobsRequest(), timeout=30).jobs[0].job_id


def _memory_mb(running: RunningJob) -> float:
    total = 0
    for name, process in running.roles().items():
        if name.startswith("windrow_master"):
            try:
                total += process.memory_info().rss
            except psutil.Error:
                continue
    return total / 1e6


ROW = Row(
    key="million_mini_batches",
    title="1,000,000 mini-batches of one file",
    aim="master and planner together < 300 MB (resident; shared pages count in each); `job show`'s call < 50 ms",
    metrics=[
        Metric("memory", "memory at its peak", "MB", 0),
        Metric("median", "job show, median", "ms", 1),
        Metric("p99", "99th percentile", "ms", 1),
        Metric("worst", "slowest", "ms", 1),
        Metric("rate", "rate", "/s", 0, more_is_better=True),
    ],
    contenders=_contenders,
    runs=1,
)
