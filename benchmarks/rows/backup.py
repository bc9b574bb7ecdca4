"""No-op mini-batches while the state folder is backed up: what it costs the job, and that nothing is missing."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

from benchmarks.measurement import Contender, Metric, Outcome, Row
from benchmarks.programs import ROOT
from benchmarks.rows.file_work import check_rows, make_files
from benchmarks.served import WINDROW
from benchmarks.windrow_job import RunningJob, files_job

COUNT = 100_000
MADE_BEFORE = 20_000
"""A backup begins when so many rows are committed, so that there is something to save."""


def _windrow(*arguments: str) -> dict[str, object]:
    done = subprocess.run(
        [WINDROW, *arguments, "--format", "json"], capture_output=True, text=True, check=False, timeout=600,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"windrow {arguments[0]}: {done.stderr}")
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def _done(state: Path) -> int:
    """The mini-batches that the master has acknowledged."""
    jobs = subprocess.run(
        [WINDROW, "job", "list", "--state", str(state), "--format", "json"], capture_output=True, text=True, check=True
    )
    return sum(step["mini_batches"]["succeeded"] for job in json.loads(jobs.stdout) for step in job["steps"])


def _contenders(folder: Path) -> list[Contender]:
    names = make_files(folder / "input", COUNT)

    def run(run: Path, *, with_backup: bool) -> Outcome:
        job = files_job(run, work="noop", input_path=folder / "input", mini_batch_size=1)
        values: dict[str, float] = {}
        with RunningJob(job) as running:
            running.wait_until("the first run()", lambda: any(job.stamps.glob("first-*")))
            # Asked for in both, since that costs, too.
            while (before := _done(job.state)) < MADE_BEFORE:
                time.sleep(0.05)
            if with_backup:
                begun = time.monotonic()
                told = _windrow("backup", str(run / "backup"), "--state", str(job.state))
                values["took"] = time.monotonic() - begun
                values["megabytes"] = float(str(told["bytes"])) / 1e6
            times = running.finish()
        check_rows(job.output, names)
        if with_backup:
            _windrow("restore", str(run / "backup"), "--state", str(run / "restored"))
            found = _done(run / "restored")
            if found < before:
                raise RuntimeError(f"{before} results were acknowledged before the backup; {found} are in it")
        assert times.after_start is not None
        return Outcome({"rate": COUNT / times.after_start, **values})

    return [
        Contender("Windrow", lambda scratch: run(scratch, with_backup=False)),
        Contender("Windrow, backed up meanwhile", lambda scratch: run(scratch, with_backup=True)),
    ]


ROW = Row(
    key="backup",
    title=f"{COUNT:,} no-op mini-batches, with and without a backup of the state folder meanwhile",
    aim="the rate falls by at most 10 %, and no acknowledged result is missing in the backup",
    metrics=[
        Metric("rate", "rate of the whole job", "/s", 0, more_is_better=True),
        Metric("took", "backup", "s"),
        Metric("megabytes", "size", "MB", 1),
    ],
    contenders=_contenders,
)
