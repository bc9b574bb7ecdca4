"""20,000 mini-batches of one file do nothing: the cost of the system itself."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from benchmarks.measurement import Contender, Metric, Outcome, Row
from benchmarks.programs import Timeline
from benchmarks.rows.file_work import contenders, make_files
from benchmarks.windrow_job import files_job

COUNT = 20_000


def _reading(times: Timeline) -> dict[str, float]:
    assert times.after_start is not None
    return {"rate": COUNT / times.after_start, "after_start": times.after_start, "whole": times.end}


def _syncs(folder: Path, run: Path) -> Outcome:
    """Count fsync and fdatasync of all processes, in a run that is not timed, because tracing slows it."""
    job = files_job(run, work="noop", input_path=folder, mini_batch_size=1)
    report = run / "strace.txt"
    trace = [
        "strace",
        "-f",
        "--seccomp-bpf",
        "-c",
        "-e",
        "trace=fsync,fdatasync,msync,sync_file_range",
        "-o",
        str(report),
    ]
    result = subprocess.run([*trace, *job.command], cwd=run, capture_output=True, text=True, check=False, timeout=600)
    if result.returncode != 0:
        return Outcome({}, f"strace: {result.stderr.strip().splitlines()[-1:]}")
    calls = {
        match[2]: int(match[1]) for match in re.finditer(r"(\d+)\s+(?:\d+\s+)?(f\w*sync)$", report.read_text(), re.M)
    }
    counts = {name: float(count) for name, count in calls.items()}
    return Outcome({"syncs": sum(counts.values()), **counts}, "in runs of their own under strace, not timed")


def _contenders(folder: Path) -> list[Contender]:
    names = make_files(folder / "input", COUNT)
    return [
        *contenders(folder / "input", names, work="noop", batch_size=1, reading=_reading),
        Contender(
            "Windrow, syncs counted", lambda run: _syncs(folder / "input", run), None if _has_strace() else "strace"
        ),
    ]


def _has_strace() -> bool:
    try:
        return subprocess.run(["strace", "-V"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


ROW = Row(
    key="noop",
    title="20,000 no-op mini-batches of one file (Windrow: durable; the others: not)",
    aim="Windrow ≥ 12,000/s, stretch 20,000/s, at least one sync an acknowledged group",
    metrics=[
        Metric("rate", "rate", "/s", 0, more_is_better=True),
        Metric("after_start", "first run() to output", "s"),
        Metric("whole", "whole command", "s"),
        Metric("syncs", "syncs", "", 0),
        Metric("fdatasync", "fdatasync", "", 0),
        Metric("fsync", "fsync", "", 0),
    ],
    contenders=_contenders,
)
