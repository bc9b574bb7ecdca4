"""`sys/master_role.<incarnation>.txt`: the scheduler's view of a step, a file for each master that has run it.

Lines are written as Azure ML writes them (docs/reference/azure-ml/parallel-job.md#logs): `YYYY-MM-DD
hh:mm:ss,mmm|LEVEL|pid|thread-id|message`, in UTC. They report states, events and checkpoints, not each mini-batch.
"""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime

from windrow_master.core.counters import Counters
from windrow_master.core.records import EventRow, StepRow
from windrow_master.core.states import Cause, StepState

CHECKPOINT_INTERVAL_S = 10.0
_WARNINGS = frozenset(
    ("node_lost", "node_quarantined", "node_set_aside", "rows_lost", "shutdown_lost", "paused", "cancelled")
)
_TEXTS = {
    "submitted": "The job was submitted.",
    "first_task_scheduled": "The first mini-batches are scheduled.",
    "all_tasks_scheduled": "All mini-batches are scheduled: the whole input is divided.",
    "cancelled": "The job was cancelled.",
}


class MasterRole:
    """The lines of one master about one step."""

    def __init__(self, step: StepRow, incarnation: int, since: float) -> None:
        """`since`: when this master took the step up (seconds since 1970)."""
        self.file_name = f"master_role.{incarnation}.txt"
        self._state = int(StepState.WAITING)
        self._message = ""
        self._checkpoint: bytes | None = None
        self._checkpoint_s = 0.0
        self._causes: dict[str, int] = {}
        self._opening = line(since, "INFO", f"Step {step.name!r} ({step.step_id}): master incarnation {incarnation}.")

    def lines(self, step: StepRow, counters: Counters, events: list[EventRow], now: float) -> list[str]:
        """Return lines about what has changed since the last call."""
        lines = [self._opening] if self._opening else []
        self._opening = ""
        for event in events:
            text = _TEXTS.get(event.kind) or f"{event.kind}: {' '.join(event.message.split())}".rstrip(": ")
            lines.append(line(event.time, "WARNING" if event.kind in _WARNINGS else "INFO", text))
        ended = step.end_time is not None
        at = min(now, step.end_time or now)
        due = ended or now - self._checkpoint_s >= CHECKPOINT_INTERVAL_S
        if step.checkpoint and step.checkpoint != self._checkpoint and due:
            self._checkpoint, self._checkpoint_s = step.checkpoint, now
            stored = json.loads(step.checkpoint)
            lines.append(
                line(
                    at,
                    "INFO",
                    f"Checkpoint: mini-batches {stored.get('mini_batches')}, items {stored.get('items')}, position "
                    f"{json.dumps(stored.get('position'))[:500]}, finished {stored.get('done')}.",
                )
            )
        for cause, count in counters.failed_attempts.items():
            if count > self._causes.get(cause, 0) and (due or cause not in self._causes):
                self._causes[cause] = count
                lines.append(line(at, "WARNING", f"Failed attempts by {Cause(int(cause)).name.lower()}: {count}."))
        if step.state != self._state:
            self._state = step.state
            text = (
                f"The step is {StepState(step.state).name}: {counters.planned} mini-batches, {counters.queued} queued, "
                f"{counters.leased} leased, {counters.succeeded} succeeded, {counters.failed} failed, "
                f"{counters.cancelled} cancelled."
            )
            if counters.taken_over:
                text = f"{text[:-1]}; taken over: {counters.taken_over}."
            lines.append(line(at, "ERROR" if step.state == StepState.FAILED else "INFO", text))
        if step.message and step.message != self._message:
            self._message = step.message
            lines.append(line(at, "INFO", " ".join(step.message.split())))
        return lines


def line(moment: float, level: str, message: str) -> str:
    """One line, with its newline."""
    at = datetime.fromtimestamp(moment, UTC)
    stamp = f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d}"
    return f"{stamp}|{level}|{os.getpid()}|{threading.get_ident()}|{message}\n"
