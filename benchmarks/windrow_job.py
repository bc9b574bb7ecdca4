"""Windrow as a contender: a job file that the real command runs, with a state folder of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psutil

from benchmarks.programs import ROOT, Timeline, run_program, timeline

WORK_FOLDER = ROOT / "benchmarks" / "work"

JOB = """\
$schema: https://azuremlschemas.azureedge.net/latest/pipelineJob.schema.json
type: pipeline
jobs:
  measured:
    type: parallel
    inputs:
      input:
        type: {input_type}
        path: {input_path}
    outputs:
      rows:
        type: uri_file
        path: {output}
    input_data: ${{{{inputs.input}}}}
    mini_batch_size: "{mini_batch_size}"
    max_concurrency_per_instance: 2
    retry_settings:
      max_retries: 2
      timeout: 600
    task:
      type: run_function
      code: {code}
      entry_script: {entry_script}
      program_arguments: >-
        {arguments}
      append_row_to: ${{{{outputs.rows}}}}
"""


@dataclass(frozen=True)
class Job:
    """One job in a folder of its own. Not `windrow.Job`, which is what a master answers about a job."""

    folder: Path

    @property
    def stamps(self) -> Path:
        """The folder in which the work leaves its times."""
        return self.folder / "stamps"

    @property
    def output(self) -> Path:
        """The file of rows."""
        return self.folder / "rows.txt"

    @property
    def state(self) -> Path:
        """The state folder of master and agent."""
        return self.folder / "state"

    @property
    def command(self) -> list[str]:
        """The command `windrow run` for this job."""
        windrow = str(Path(sys.executable).parent / "windrow")
        return [windrow, "run", str(self.folder / "job.yml"), "--state", str(self.state)]

    def executions(self) -> list[tuple[int, int, str]]:
        """The executions that `logged_spin` recorded: time (ns), process, first file of the mini-batch."""
        log = self.stamps / "executions"
        if not log.exists():
            return []
        rows = (line.split(maxsplit=2) for line in log.read_text().splitlines())
        return [(int(at), int(pid), name) for at, pid, name in rows]

    def run(self, timeout_s: float = 600, **variables: str) -> Timeline:
        """Run the job to its end. Raises RuntimeError with the output of the command if it fails."""
        times = run_program(
            self.command,
            stamps=self.stamps,
            output=self.output,
            cwd=self.folder,
            timeout_s=timeout_s,
            variables=variables,
        )
        if times.exit_code != 0:
            raise RuntimeError(f"windrow run ended with {times.exit_code}:\n{times.errors}")
        return times


def files_job(folder: Path, *, work: str, input_path: Path, mini_batch_size: int) -> Job:
    """A job for the work on files (`work/entry.py`)."""
    arguments = f"--work {work} --stamps {folder / 'stamps'}"
    return _job(folder, "uri_folder", input_path, str(mini_batch_size), "entry.py", arguments)


def table_job(folder: Path, *, input_path: Path, mini_batch_size: str, give: str = "frame") -> Job:
    """A job for a table (`work/table_entry.py`): its DataFrames are returned (`frame`) or counted (`count`)."""
    arguments = f"--stamps {folder / 'stamps'} --give {give} --append_row_dataframe_header True"
    return _job(folder, "mltable", input_path, mini_batch_size, "table_entry.py", arguments)


def partition_job(folder: Path, *, input_path: Path, key: str) -> Job:
    """A job that returns one line for each group of a table."""
    job = table_job(folder, input_path=input_path, mini_batch_size="1", give="group")
    file = folder / "job.yml"
    file.write_text(file.read_text().replace('mini_batch_size: "1"', f"partition_keys: [{key}]"))
    return job


def _job(
    folder: Path, input_type: str, input_path: Path, mini_batch_size: str, entry_script: str, arguments: str
) -> Job:
    job = Job(folder)
    job.stamps.mkdir()
    text = JOB.format(
        input_type=input_type, input_path=input_path, output=job.output, mini_batch_size=mini_batch_size,
        code=WORK_FOLDER, entry_script=entry_script, arguments=arguments,
    )  # fmt: skip
    (folder / "job.yml").write_text(text)
    return job


class RunningJob:
    """A `windrow run` to observe, or to kill processes of, while it runs. Its context leaves no process behind."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._errors = job.folder / "stderr.txt"

    def __enter__(self) -> RunningJob:
        with self._errors.open("wb") as errors:
            self.start_ns = time.time_ns()
            self.process = psutil.Popen(
                self.job.command, cwd=self.job.folder, env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True,
            )  # fmt: skip
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is not None:
            return
        family = [self.process, *self.process.children(recursive=True)]
        # The second signal ends it at once, without finishing what runs.
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(1)
        except psutil.TimeoutExpired:
            self.process.send_signal(signal.SIGINT)
        _, alive = psutil.wait_procs(family, timeout=20)
        for process in alive:
            process.kill()
        psutil.wait_procs(alive)

    def roles(self) -> dict[str, psutil.Process]:
        """Its processes by module: `windrow_master`, `windrow_master.planning`, `windrow_agent`."""
        found: dict[str, psutil.Process] = {}
        for process in self.process.children(recursive=True):
            try:
                arguments = process.cmdline()
            except psutil.Error:
                continue
            for module in ("windrow_master", "windrow_master.planning", "windrow_agent"):
                if module in arguments:
                    found[module] = process
        return found

    def wait_until(self, what: str, condition: Callable[[], object], deadline_s: float = 120) -> None:
        """Poll each millisecond. Raises RuntimeError if the command ends first, or at the deadline."""
        end = time.monotonic() + deadline_s
        while not condition():
            if self.process.poll() is not None or time.monotonic() > end:
                why = "ended" if self.process.poll() is not None else "took too long"
                raise RuntimeError(f"windrow run {why} before {what}:\n{self._errors.read_text(errors='replace')}")
            time.sleep(0.001)

    def finish(self) -> Timeline:
        """Wait for the end. Raises RuntimeError if the job failed."""
        code = self.process.wait(600)
        end_ns = time.time_ns()
        errors = self._errors.read_text(errors="replace")
        if code != 0:
            raise RuntimeError(f"windrow run ended with {code}:\n{errors}")
        return timeline(self.start_ns, end_ns, code, self.job.stamps, self.job.output, errors)
