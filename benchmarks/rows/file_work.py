"""The contenders for rows that work on a folder of files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from benchmarks.measurement import Contender, Outcome
from benchmarks.programs import Timeline, missing_module, peer
from benchmarks.windrow_job import files_job

Reading = Callable[[Timeline], dict[str, float]]
"""A function from times to metrics."""

PEERS = {
    "multiprocessing.Pool": ("pool", None),
    "concurrent.futures": ("futures", None),
    "Dask": ("dask_client", "distributed"),
    "Ray": ("ray_tasks", "ray"),
}


def make_files(folder: Path, count: int, content: bytes = b"") -> list[str]:
    """Make the files `000000`, `000001`, …; return their names."""
    width = len(str(count - 1))
    folder.mkdir()
    names = [f"{number:0{width}d}" for number in range(count)]
    inside = os.open(folder, os.O_RDONLY)
    for name in names:
        handle = os.open(name, os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=inside)
        if content:
            os.write(handle, content)
        os.close(handle)
    os.close(inside)
    return names


def million_files(folder: Path) -> tuple[Path, list[str]]:
    """A folder of 1,000,000 empty files, made once for all rows of a command, and their names."""
    shared = folder.parent / "million-files"
    if not shared.exists():
        return shared, make_files(shared, 1_000_000)
    return shared, [f"{number:06d}" for number in range(1_000_000)]


def check_rows(output: Path, names: list[str]) -> None:
    """Raises RuntimeError unless each name is the first word of exactly one row, in order."""
    with open(output) as file:
        found = [line.split()[0] for line in file]
    if found != names:
        raise RuntimeError(f"{output}: {len(found)} rows that are not the {len(names)} expected ones, in order")


def contenders(
    folder: Path, names: list[str], *, work: str, batch_size: int, reading: Reading, timeout_s: float = 600
) -> list[Contender]:
    """Windrow and its peers, each checked for exactly the expected rows."""

    def windrow(run: Path) -> Outcome:
        job = files_job(run, work=work, input_path=folder, mini_batch_size=batch_size)
        times = job.run(timeout_s)
        check_rows(job.output, names)
        return Outcome(reading(times))

    def other(module: str, optional: bool) -> Callable[[Path], Outcome]:
        def run_peer(run: Path) -> Outcome:
            options: dict[str, object] = {"work": work, "folder": folder, "batch-size": batch_size}
            times = peer(module, run, options, optional=optional, timeout_s=timeout_s)
            if times.exit_code is None:
                return Outcome({}, f"hangs (killed after {timeout_s:.0f} s)")
            if times.exit_code != 0:
                return Outcome({}, "fails: " + (times.errors.strip().splitlines() or ["?"])[-1][:100])
            check_rows(run / "rows.txt", names)
            return Outcome(reading(times))

        return run_peer

    return [Contender("Windrow", windrow)] + [
        Contender(name, other(program, module is not None), missing_module(module) if module else None)
        for name, (program, module) in PEERS.items()
    ]
