"""SIGKILL ends a worker in the middle: how much later the work is done, and what runs twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.measurement import Contender, Metric, Outcome, Row
from benchmarks.programs import missing_module, peer
from benchmarks.rows.file_work import PEERS, check_rows, make_files
from benchmarks.windrow_job import files_job

COUNT = 40
KILLED = 20
HANG_S = 30.0


def _outcome(undisturbed: float | None, killed: float | None, stamps: Path) -> Outcome:
    assert undisturbed is not None and killed is not None
    executions = (stamps / "executions").read_text().splitlines()
    return Outcome({"delay": killed - undisturbed, "again": float(len(executions) - COUNT)})


def _contenders(folder: Path) -> list[Contender]:
    names = make_files(folder / "input", COUNT)
    (folder / "input" / names[KILLED]).rename(folder / "input" / f"{names[KILLED]}-kill")
    names[KILLED] += "-kill"

    def windrow(run: Path) -> Outcome:
        done = []
        for work in ("logged_spin", "spin_and_die_once"):
            (run / work).mkdir()
            job = files_job(run / work, work=work, input_path=folder / "input", mini_batch_size=1)
            done.append(job.run().after_start)
            check_rows(job.output, names)
        return _outcome(done[0], done[1], run / "spin_and_die_once" / "stamps")

    def other(module: str, optional: bool) -> Callable[[Path], Outcome]:
        def run_peer(run: Path) -> Outcome:
            done = []
            for work in ("logged_spin", "spin_and_die_once"):
                (run / work).mkdir()
                options: dict[str, object] = {"work": work, "folder": folder / "input", "batch-size": 1}
                times = peer(module, run / work, options, optional=optional, timeout_s=HANG_S)
                if times.exit_code is None:
                    return Outcome({}, f"hangs (killed after {HANG_S:.0f} s)")
                if times.exit_code != 0:
                    return Outcome({}, "fails: " + (times.errors.strip().splitlines() or ["?"])[-1][:60])
                done.append(times.after_start)
                check_rows(run / work / "rows.txt", names)
            return _outcome(done[0], done[1], run / "spin_and_die_once" / "stamps")

        return run_peer

    return [Contender("Windrow", windrow)] + [
        Contender(name, other(program, module is not None), missing_module(module) if module else None)
        for name, (program, module) in PEERS.items()
    ]


ROW = Row(
    key="worker_killed",
    title="A worker killed by SIGKILL in the middle of 40 mini-batches of 50 ms",
    aim="Windrow done ≤ 0.2 s later, one execution more",
    metrics=[Metric("delay", "done later by", "s", 3), Metric("again", "executions more", "", 0)],
    contenders=_contenders,
)
