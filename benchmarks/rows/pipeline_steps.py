"""A chain of steps, each of which only reads the one before: the cost of a step itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from benchmarks.measurement import Contender, Metric, Outcome, Row
from benchmarks.programs import run_program
from benchmarks.windrow_job import Job

STEPS = 20
STAMP = "date +%s%N"

SCRIPT = """\
import time
def run(mini_batch):
    return [time.time_ns() for _ in mini_batch]
"""


def _outcome(folder: Path, files: list[Path]) -> Outcome:
    """The time from the work of the first step to that of the last, for each step between."""
    stamps = [int(file.read_text()) for file in files]
    if stamps != sorted(stamps):
        raise RuntimeError(f"the steps in {folder} did not run one behind the other: {stamps}")
    return Outcome({"step": (stamps[-1] - stamps[0]) / (STEPS - 1) / 1e9})


def _files(folder: Path) -> list[Path]:
    return [folder / f"step{number:02d}" for number in range(STEPS)]


def _run_job(folder: Path, jobs: list[str]) -> Outcome:
    job = Job(folder)
    job.stamps.mkdir()
    (folder / "job.yml").write_text("type: pipeline\njobs:\n" + "\n".join(jobs))
    job.run()
    return _outcome(folder, _files(folder))


def _commands(folder: Path) -> Outcome:
    jobs = []
    for number, file in enumerate(_files(folder)):
        read = "" if not number else f", inputs: {{i: '${{{{parent.jobs.s{number - 1}.outputs.o}}}}'}}"
        jobs.append(
            f"  s{number}: {{type: command, command: '{STAMP} > ${{{{outputs.o}}}}', "
            f"outputs: {{o: {{type: uri_file, path: {file}}}}}{read}}}"
        )
    return _run_job(folder, jobs)


def _parallel_steps(folder: Path) -> Outcome:
    (folder / "code").mkdir()
    (folder / "code" / "stamp.py").write_text(SCRIPT)
    (folder / "first").write_text("0")
    jobs = []
    for number, file in enumerate(_files(folder)):
        read = f"'${{{{parent.jobs.s{number - 1}.outputs.o}}}}'" if number else "{type: uri_file, path: ./first}"
        jobs.append(
            f"  s{number}: {{type: parallel, inputs: {{i: {read}}}, input_data: '${{{{inputs.i}}}}', "
            f"outputs: {{o: {{type: uri_file, path: {file}}}}}, task: {{type: run_function, code: ./code, "
            "entry_script: stamp.py, append_row_to: '${{outputs.o}}'}}"
        )
    return _run_job(folder, jobs)


def _make(folder: Path) -> Outcome:
    lines = []
    for number, file in enumerate(_files(folder)):
        before = "" if not number else _files(folder)[number - 1].name
        lines.append(f"{file.name}: {before}\n\t{STAMP} > $@\n")
    (folder / "Makefile").write_text("\n".join(reversed(lines)))
    subprocess.run(["make", "-s", _files(folder)[-1].name], cwd=folder, check=True)
    return _outcome(folder, _files(folder))


def _shell(folder: Path) -> Outcome:
    (folder / "steps.sh").write_text("set -e\n" + "\n".join(f"{STAMP} > {file.name}" for file in _files(folder)))
    (folder / "stamps").mkdir()
    times = run_program(
        ["sh", "steps.sh"], stamps=folder / "stamps", output=_files(folder)[-1], cwd=folder, timeout_s=60
    )
    if times.exit_code != 0:
        raise RuntimeError(times.errors)
    return _outcome(folder, _files(folder))


def _contenders(folder: Path) -> list[Contender]:
    return [
        Contender("Windrow, command steps", _commands),
        Contender("Windrow, parallel steps of one file", _parallel_steps),
        Contender("make", _make, missing=None if shutil.which("make") else "make"),
        Contender("sh", _shell),
    ]


ROW = Row(
    key="pipeline_steps",
    title=f"A pipeline of {STEPS} steps in a chain that do nothing (Windrow: durable; the others: not)",
    aim="a pipeline's overhead ≤ 0.3 s a step",
    metrics=[Metric("step", "a step", "s", 3)],
    contenders=_contenders,
)
