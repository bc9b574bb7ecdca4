"""Runs a contender as a process of its own, and reads its times from the files that it leaves."""

from __future__ import annotations

import functools
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

peers_python = sys.executable
"""The interpreter that has the optional peers (Ray, Dask, Daft)."""


@dataclass(frozen=True)
class Timeline:
    """Times in seconds since the start of the process. `output`: when the complete file of rows was in place."""

    first_run: float | None
    output: float | None
    end: float
    exit_code: int | None
    """None: it did not end in time, and was killed."""
    errors: str
    processor: float | None = None
    """Seconds of processor time, of all its processes that were waited for. None: not measured."""

    @property
    def after_start(self) -> float | None:
        """Seconds from the first call of the work to the output."""
        return None if self.first_run is None or self.output is None else self.output - self.first_run


@functools.cache
def missing_module(name: str) -> str | None:
    """The name of the module if the peers' interpreter lacks it, else None."""
    found = subprocess.run([peers_python, "-c", f"import {name}"], capture_output=True, check=False).returncode == 0
    return None if found else name


def run_program(
    command: list[str],
    *,
    stamps: Path,
    output: Path,
    cwd: Path,
    timeout_s: float = 600,
    variables: Mapping[str, str] | None = None,
) -> Timeline:
    """Run a command to its end, or kill its whole session after `timeout_s`."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | dict(variables or {})
    stderr = cwd / "stderr.txt"
    with stderr.open("wb") as errors:
        before_s = _processor_s()
        start_ns = time.time_ns()
        process = subprocess.Popen(
            command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
            start_new_session=True,
        )  # fmt: skip
        try:
            exit_code: int | None = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            exit_code = None
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        end_ns = time.time_ns()
    times = timeline(start_ns, end_ns, exit_code, stamps, output, stderr.read_text(errors="replace"))
    return replace(times, processor=_processor_s() - before_s)


def _processor_s() -> float:
    """Processor time of this process's children that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timeline(start_ns: int, end_ns: int, exit_code: int | None, stamps: Path, output: Path, errors: str) -> Timeline:
    firsts = [int(path.read_text()) for path in stamps.glob("first-*")]
    # A rename sets the ctime: the moment at which the complete file was in place.
    done_ns = output.stat().st_ctime_ns if output.exists() else None
    return Timeline(
        first_run=(min(firsts) - start_ns) / 1e9 if firsts else None,
        output=(done_ns - start_ns) / 1e9 if done_ns is not None else None,
        end=(end_ns - start_ns) / 1e9,
        exit_code=exit_code,
        errors=errors,
    )


def free_space(folder: Path) -> int:
    """The free bytes on the disk of a folder."""
    return shutil.disk_usage(folder).free


def peer(module: str, run: Path, options: dict[str, object], *, optional: bool, timeout_s: float = 600) -> Timeline:
    """Run `benchmarks.peers.<module>` with options, and `--output` and `--stamps` in the folder of the run."""
    command = peer_command(module, run, options, optional=optional)
    return run_program(command, stamps=run / "stamps", output=run / "rows.txt", cwd=run, timeout_s=timeout_s)


def peer_command(module: str, run: Path, options: dict[str, object], *, optional: bool) -> list[str]:
    """The command of a peer. Makes the stamps folder in the folder of the run."""
    (run / "stamps").mkdir()
    command = [peers_python if optional else sys.executable, "-m", f"benchmarks.peers.{module}"]
    for key, value in (options | {"output": run / "rows.txt", "stamps": run / "stamps"}).items():
        command += [f"--{key}", str(value)]
    return command
