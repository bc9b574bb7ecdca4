"""A master that is killed with millions of mini-batches to do: how long the next one takes until it serves, and what it
needs."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import time
from pathlib import Path

import psutil
import windrow

from benchmarks.measurement import Contender, Metric, Outcome, Row
from benchmarks.served import WINDROW

COUNTS = (1_000_000, 10_000_000)
PATIENCE_S = 600
JOB = """\
type: pipeline
jobs:
  ranks:
    type: parallel
    outputs: {{rows: {{type: uri_file}}}}
    task:
      type: run_function
      code: ./code
      entry_script: entry.py
      program_arguments: --rank_mini_batch_count {count}
      append_row_to: ${{{{outputs.rows}}}}
"""


class _Master:
    """A served master over a state folder, killed at the end."""

    def __init__(self, state: Path) -> None:
        command = [
            WINDROW,
            "master",
            f"--state={state}",
            "--listen=127.0.0.1:0",
            "--limit=ready_mini_batches=2000000000",
        ]
        begin = time.perf_counter()
        with (state.parent / "master.stderr").open("ab") as errors:
            self.process = psutil.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
        line = self.process.stdout.readline()
        self.ready_s = time.perf_counter() - begin
        self.address = json.loads(line)["address"]

    def peak_mb(self) -> float:
        """The most memory that it has had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024

    def processor_s(self) -> float:
        """The processor time that it has taken."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def _killed_with(folder: Path, count: int) -> Path:
    """The state folder of a master that was killed when it had divided a job into so many mini-batches."""
    place = folder / f"{count}"
    (place / "code").mkdir(parents=True)
    (place / "code" / "entry.py").write_text("def run(mini_batch):\n    return ['row']\n")
    (place / "job.yml").write_text(JOB.format(count=count))
    master = _Master(place / "state")
    try:
        with windrow.Client(master.address) as client:
            job_id = client.submit(place / "job.yml").job_id
            end = time.monotonic() + PATIENCE_S
            while not client.get(job_id).steps[0].planned:
                if time.monotonic() > end:
                    raise RuntimeError(f"{count} mini-batches were not divided within {PATIENCE_S} s")
                time.sleep(0.1)
    finally:
        master.kill()
    return place / "state"


def _restart(killed: Path, run: Path) -> Outcome:
    state = run / "state"
    shutil.copytree(killed, state)
    master = _Master(state)
    try:
        return Outcome({"ready": master.ready_s, "processor": master.processor_s(), "memory": master.peak_mb()})
    finally:
        master.kill()
        shutil.rmtree(state)


def _contenders(folder: Path) -> list[Contender]:
    return [
        Contender(f"Windrow, {count:,} mini-batches", functools.partial(_restart, _killed_with(folder, count)))
        for count in COUNTS
    ]


ROW = Row(
    key="restart",
    title="A master killed with mini-batches to do, until the next one serves",
    aim="10,000,000 mini-batches: ≤ 10 s, ≤ 1 GB",
    metrics=[
        Metric("ready", "until it serves", "s", 1),
        Metric("processor", "processor time", "s", 1),
        Metric("memory", "memory at most", "MB", 0),
    ],
    contenders=_contenders,
    runs=3,
)
