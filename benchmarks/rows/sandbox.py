"""20,000 mini-batches of one file do nothing, confined and not: what each sandbox costs at the start and at work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.measurement import Contender, Metric, Outcome, Row
from benchmarks.rows.file_work import check_rows, make_files
from benchmarks.rows.noop import COUNT
from benchmarks.windrow_job import files_job

MODES = ("off", "auto", "given", "strict")


def _contenders(folder: Path) -> list[Contender]:
    names = make_files(folder / "input", COUNT)

    def run_as(mode: str) -> Callable[[Path], Outcome]:
        def run(place: Path) -> Outcome:
            job = files_job(place, work="noop", input_path=folder / "input", mini_batch_size=1)
            # The work leaves its times in a folder that is no output of the job.
            times = job.run(WINDROW_SANDBOX=mode, WINDROW_ALLOW_PATH=f"{job.stamps}:rw {folder.parent}")
            check_rows(job.output, names)
            assert times.first_run is not None
            assert times.after_start is not None
            assert times.processor is not None
            rate = COUNT / times.after_start
            return Outcome(
                {"rate": rate, "first_run": times.first_run, "whole": times.end, "processor": times.processor}
            )

        return run

    return [Contender(f"--sandbox {mode}", run_as(mode)) for mode in MODES]


ROW = Row(
    key="sandbox",
    title="The same 20,000 no-op mini-batches in a sandbox",
    aim="--sandbox strict costs ≤ 3 % of the rate, and ≤ 3 % of the time to the first run()",
    metrics=[
        Metric("rate", "rate", "/s", 0, more_is_better=True),
        Metric("first_run", "to the first run()", "s", 3),
        Metric("whole", "whole command", "s"),
        Metric("processor", "processor time", "s"),
    ],
    contenders=_contenders,
)
