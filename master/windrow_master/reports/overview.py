"""`job_progress_overview.<yyyymmddhh>.txt`: how far a step is, in lines for people.
Reference: docs/reference/azure-ml/parallel-job.md#logs.

States of an overview: begun -> dividing and processing -> concatenating -> ended. Pure: it returns what to write, and
is given the time.
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime

from windrow.common.quantities import counted

from windrow_master.core.counters import Counters
from windrow_master.core.records import StepRow, planned_in_checkpoint
from windrow_master.core.states import StepState

ALL_FILES = "job_progress_overview.*.txt"
INTERVAL_S = 10.0
"""Between lines on progress; while the step runs, the newest line is never older than 30 s."""
RATE_MOMENTS = 7
"""The estimate of the remaining time follows the rate over this many lines: a minute."""


class Overview:
    """The lines about one step while one master runs it."""

    def __init__(self, step_name: str, job_id: str, incarnation: int, *, continued: bool = False) -> None:
        """`continued`: an earlier master began the step."""
        self._continued = continued
        self._name = step_name
        self._job_id = job_id
        self._incarnation = incarnation
        self._begun = False
        self._planned_told = False
        self.scheduled: float | None = None
        """When the last mini-batch was scheduled, once an event has said so."""
        self._concatenating_since: float | None = None
        self._last_s = 0.0
        self._moments: deque[tuple[float, int]] = deque(maxlen=RATE_MOMENTS)

    def lines(self, row: StepRow, counters: Counters, now: float, written_bytes: int | None = None) -> list[str]:
        """The lines that are due at `now` (seconds since 1970); mostly none.

        `written_bytes`: of the output, while rows are concatenated.
        """
        if row.state == StepState.WAITING and row.end_time is None:
            return []
        lines: list[str] = []
        if not self._begun:
            self._begun = True
            self._last_s = row.start_time or now
            if self._continued:
                lines.append(_line(now, f"The overview continues: master incarnation {self._incarnation}."))
                # The master before has written that.
                self._planned_told = planned_in_checkpoint(row.checkpoint) and self.scheduled is None
            else:
                text = f"Overview of step {self._name} of job {self._job_id} begins: master incarnation "
                lines.append(_line(self._last_s, f"{text}{self._incarnation}."))
        planned = planned_in_checkpoint(row.checkpoint)
        if planned and not self._planned_told:
            self._planned_told = True
            at = self.scheduled or min(now, row.end_time or now)
            text = f"Scheduling finished: {counted(counters.planned, 'mini-batch')}"
            if counters.items_total:
                text += f" with {counted(counters.items_total, 'item')}"
            if row.start_time is not None:
                text += f", {clock(max(0.0, at - row.start_time))} after the first was leased"
            lines.append(_line(at, f"{text}."))
        if row.end_time is not None:
            return lines + ending(row, counters)
        if row.state == StepState.CONCATENATING and self._concatenating_since is None:
            self._concatenating_since = now
            lines.append(_line(now, self._progress(row, counters, now)))
            lines.append(_line(now, "All mini-batches have an outcome; their rows are concatenated next."))
            self._last_s = now
        elif now - self._last_s >= INTERVAL_S:
            self._last_s = now
            if row.state == StepState.CONCATENATING:
                of = f"{written_bytes or 0:,} of {counters.output_bytes:,} bytes written"
                lines.append(_line(now, f"Concatenating the rows: {of}." + _said(row)))
            else:
                lines.append(_line(now, self._progress(row, counters, now)))
        return lines

    def _progress(self, row: StepRow, counters: Counters, now: float) -> str:
        done, wanted = counters.ran, counters.planned - counters.taken_over
        planned = planned_in_checkpoint(row.checkpoint)
        known = f"{wanted:,}{'' if planned else ' (so far)'}"
        taken_over = _taken_over(counters)
        if not done:
            text = f"No mini-batch has been processed yet; scheduled: {known}, with workers: {counters.leased:,}."
            return text + taken_over + _said(row)
        elapsed = max(0.0, now - (row.start_time or now))
        self._moments.append((now, done))
        first_s, first = self._moments[0]
        text = f"Processed {done:,} of {known} mini batches in {clock(elapsed)}.{taken_over}"
        if planned and done < wanted:
            rate = (done - first) / (now - first_s) if now > first_s and done > first else done / max(elapsed, 0.001)
            text += f" Estimated remaining time {clock((wanted - done) / rate)}."
        if counters.failed or counters.retries:
            text += f" Failed: {counters.failed:,}; retried: {counters.retries:,}."
        return text + _said(row)


def ending(row: StepRow, counters: Counters) -> list[str]:
    """The last lines of a step that has ended; they differ by how it ended."""
    end = row.end_time or 0.0
    if row.state == StepState.SKIPPED:
        return [_line(end, f"Skipped: {' '.join(row.message.split())}")]
    name = StepState(row.state).name.title()
    wanted = counters.planned - counters.taken_over
    took = clock(max(0.0, end - (row.start_time or end)))
    told = f"Processed {counters.ran:,} of {wanted:,} mini batches in {took}.{_taken_over(counters)}"
    lines = [_line(end, told)] if row.start_time is not None else []
    failed = counters.failed or counters.items_failed
    numbers = (counters.items_ok, counters.items_failed, counters.items_cancelled)
    noun = "item"
    if not counters.items_total:
        # Mini-batches without input hold no items.
        numbers, noun = (counters.succeeded, counters.failed, counters.cancelled), "mini-batch"
    ok, bad, cancelled = numbers
    what = f"{name}: {counted(ok, noun)} ok, {bad:,} failed, {cancelled:,} cancelled"
    lines.append(_line(end, f"{what}; {counted(counters.rows, 'row')}."))
    if row.message:
        lines.append(_line(end, " ".join(row.message.split())))
    if failed or row.state != StepState.COMPLETED:
        lines.append(_line(end, "Start with job_result.txt: it gives the first causes, and what to do next."))
    return lines


def file_name(now: float) -> str:
    """The file that a line of this moment starts, or is appended to."""
    return f"job_progress_overview.{datetime.fromtimestamp(now, UTC):%Y%m%d%H}.txt"


def same_day(name: str, now: float) -> bool:
    """Whether a file of this name is still the one to append to."""
    return name.split(".")[1][:8] == f"{datetime.fromtimestamp(now, UTC):%Y%m%d}"


def clock(seconds: float) -> str:
    """`0:01:05`, as the vendor's lines have it."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def _taken_over(counters: Counters) -> str:
    return f" Taken over from an earlier job: {counters.taken_over:,} more." if counters.taken_over else ""


def _said(row: StepRow) -> str:
    return f" {' '.join(row.message.split())}" if row.message else ""


def _line(moment: float, text: str) -> str:
    stamp = datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds")
    return f"{stamp} {text}\n"
