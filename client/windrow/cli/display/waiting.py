"""What a job waits for, in one line: from its beginning to its first result, and whenever no result comes for a while.

The reasons are those of `windrow job explain`; what the workers do is from the last heartbeats of their nodes. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from windrow.common.quantities import counted, duration
from windrow.sdk.job import Job, Step, StepReason
from windrow.sdk.node import Node

FIRST_LULL_S = 0.4
LULL_S = 5.0
STEPS_NAMED = 3

AT_WORK = ("WORKERS_STARTING", "RUNNING", "NO_PROGRESS")
"""Codes of steps whose mini-batches are leased: what holds them up is in the workers."""

SHORT = {
    "COMPARING_INPUTS": "comparing its inputs with those of earlier jobs",
    "VERIFYING_ROWS": "verifying the rows of earlier steps",
    "ENDING_WORKERS": "ending workers (shutdown(), uploads)",
    "GATHERING_ROWS": "gathering rows",
    "NODES_ANSWER": "telling nodes of the step",
}
"""Codes of which one phrase says all that a line has room for."""

WORKER_WORDS = {
    "starting": "starting Python and loading the script",
    "init": "init()",
    "loading": "loading data",
    "running": "run()",
    "returning": "writing rows",
    "stopping": "shutdown()",
}


def lull_s(job: Job) -> float:
    """After how many seconds without a result it is told what a job waits for: at once until its first result, and
    later only if mini-batches take long.
    """
    return LULL_S if job.mini_batches.ran else FIRST_LULL_S


def waiting_line(job: Job, reasons: Sequence[StepReason], nodes: Sequence[Node]) -> str:
    """Return what the steps at work wait for, such as `score: init() for 12 s on 4 workers`; empty if nothing is
    known.
    """
    steps = {step.name: step for step in job.steps if step.state in ("running", "concatenating")}
    told = [
        (reason.step, words)
        for reason in reasons
        if reason.step in steps and (words := _words(steps[reason.step], reason, nodes))
    ]
    alone = len(job.steps) == 1
    parts = [words if alone else f"{name}: {words}" for name, words in told[:STEPS_NAMED]]
    if left := len(told) - STEPS_NAMED:
        parts += [counted(left, "more step")] if left > 0 else []
    return "; ".join(parts)


def _words(step: Step, reason: StepReason, nodes: Sequence[Node]) -> str:
    builds = [(node.builds[step.step_id], node.node_id) for node in nodes if step.step_id in node.builds]
    if builds:
        seconds, node_id = max(builds)
        where = f"on {node_id}" if len(builds) == 1 else f"on {counted(len(builds), 'node')}"
        return f"building its environment for {_time(seconds)} {where}"
    if reason.code in AT_WORK:
        return _of_workers(step, nodes)
    if reason.code == "DIVIDING_INPUT":
        planned = step.mini_batches.total
        return f"listing its input ({counted(planned, 'mini-batch')} so far)" if planned else "listing its input"
    # Elsewhere the first sentence says what it waits for, and the rest what to do.
    return SHORT.get(reason.code) or reason.message.partition(". ")[0].rstrip(".")


def _of_workers(step: Step, nodes: Sequence[Node]) -> str:
    """What the step's workers do, and for how long: those that are furthest first."""
    found: dict[str, list[float]] = {}
    for node in nodes:
        for worker in node.processes:
            if worker.step_id == step.step_id and worker.phase in WORKER_WORDS:
                found.setdefault(worker.phase, []).append(worker.phase_s + (node.silent_s or 0.0))
    parts = [
        f"{words} for {_time(max(found[phase]))} on {counted(len(found[phase]), 'worker')}"
        for phase, words in reversed(WORKER_WORDS.items())
        if phase in found
    ]
    return ", ".join(parts) or "starting workers"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else duration(seconds)
