"""Logs about jobs while they run: progress overviews, the scheduler's view, metrics.

They are written now and then, from what is durable in the store, and delay no commit. All methods belong to one thread.
Nothing is written twice: the end of a step is left out if its overview ends with it already, whichever master wrote
that; events are left out if this master has written them, or if they are of an earlier master's time.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any

from windrow_master.core.counters import Counters
from windrow_master.core.ids import JobKey, StepId
from windrow_master.core.records import EventRow, StepRow, planned_in_checkpoint
from windrow_master.core.states import ENDED_JOBS, StepState
from windrow_master.output.target import temporary_path
from windrow_master.reports import overview
from windrow_master.reports.master_role import MasterRole
from windrow_master.reports.metrics import FILE_NAME, append_metrics, metrics_of
from windrow_master.step_paths import StepPaths
from windrow_master.store.protocol import StoreReader

METRICS_INTERVAL_S = 30.0
EVENTS_AT_ONCE = 1000
NODE_EVENTS_KEPT = 1000
"""At most this many events of nodes are logged for the time between two looks at a job."""


class _LiveStep:
    """The logs of one step."""

    def __init__(self, row: StepRow, job_id: str, incarnation: int, since: float, began: float) -> None:
        """`since`: when this master took the step up; `began`: when this master began."""
        continued = row.start_time is not None and row.start_time < began
        self.overview = overview.Overview(row.name, job_id, incarnation, continued=continued)
        self.role = MasterRole(row, incarnation, since)
        self.overview_name = overview.file_name(since)
        self.metrics_s = 0.0
        self.ended = False
        """The step has ended, and its last lines are written."""


class _LiveJob:
    """The logs of one job. `settings`: of its steps, by ordinal."""

    def __init__(self, job_id: str, settings: list[Mapping[str, Any]], logs: Path, since: float) -> None:
        self.job_id = job_id
        self.settings = settings
        self.logs = logs
        self.since = since
        self.steps: dict[StepId, _LiveStep] = {}


class LiveLogs:
    """Writes the logs of all jobs of a master."""

    def __init__(
        self,
        reader: StoreReader,
        incarnation: int,
        logs_of: Callable[[str], Path],
        clock: Callable[[], float],
        since: float,
    ) -> None:
        """`logs_of(job_id)`: the job's logs folder. `clock`: seconds since 1970. `since`: when this master began."""
        self._reader = reader
        self._incarnation = incarnation
        self._logs_of = logs_of
        self._clock = clock
        self._since = since
        self._jobs: dict[JobKey, _LiveJob] = {}
        self._node_events: deque[tuple[int, EventRow]] = deque(maxlen=NODE_EVENTS_KEPT)
        self._node_event_after = 0
        self._told: dict[JobKey, tuple[int, int]] = {}
        """By job: its last event, and the last of nodes, that its logs hold. Kept when a job ends: it may run again."""

    def look(self, job_key: JobKey) -> None:
        """Write what is new about a job. Raises OSError, StateError."""
        job = self._jobs.get(job_key)
        if job is None:
            row = self._reader.job_by_key(job_key)
            if row is None:
                return
            settings = json.loads(row.document or b"{}").get("steps", [])
            since = max(self._since, row.create_time)
            job = self._jobs[job_key] = _LiveJob(row.job_id, settings, self._logs_of(row.job_id), since)
            if row.state not in ENDED_JOBS:
                remove_results(job.logs)
        self._write(job_key, job)

    def end(self, job_key: JobKey) -> None:
        """Write the last lines about a job that has ended. Raises OSError, StateError."""
        self.look(job_key)
        self._jobs.pop(job_key, None)

    def _news(self, job_key: JobKey, since: float) -> tuple[list[EventRow], list[EventRow]]:
        """Events since the last look at a job: the job's own, and those of nodes, which each job's logs hold."""
        own_after, node_after = self._told.get(job_key, (0, 0))
        own_last, own = self._events_since(job_key, own_after)
        self._node_event_after, new = self._events_since(None, self._node_event_after)
        self._node_events.extend(new)
        of_nodes = takewhile(lambda one: one[0] > node_after, reversed(self._node_events))
        self._told[job_key] = (own_last, self._node_event_after)
        return [event for _, event in own], [event for _, event in of_nodes if event.time >= since]

    def _events_since(self, job_key: JobKey | None, after: int) -> tuple[int, list[tuple[int, EventRow]]]:
        """The number of the last event, and the events after `after` with their numbers, except an earlier master's."""
        found: list[tuple[int, EventRow]] = []
        while page := self._reader.events_of(job_key, after, EVENTS_AT_ONCE):
            after = page[-1][0]
            found += [one for one in page if one[1].time >= self._since - 1]
            if len(page) < EVENTS_AT_ONCE:
                break
        return after, found

    def _write(self, job_key: JobKey, job: _LiveJob) -> None:
        own, of_nodes = self._news(job_key, job.since)
        steps = self._reader.steps_of(job_key)
        names = {step.name for step in steps}
        now = self._clock()
        for step in steps:
            if step.state == StepState.WAITING:
                continue
            live = job.steps.get(step.step_id)
            if live is None:
                since = max(job.since, step.start_time or (step.end_time or now))
                live = job.steps[step.step_id] = _LiveStep(step, job.job_id, self._incarnation, since, self._since)
                live.ended = step.end_time is not None and _is_told(job.logs / step.name, step)
            if live.ended:
                continue
            mine = [event for event in own if event.message not in names or event.message == step.name]
            for event in mine:
                if event.kind == "all_tasks_scheduled":
                    live.overview.scheduled = event.time
            self._write_step(job, live, step, sorted([*mine, *of_nodes], key=lambda e: e.time), now)
            live.ended = step.end_time is not None

    def _write_step(self, job: _LiveJob, live: _LiveStep, step: StepRow, events: list[EventRow], now: float) -> None:
        counters = Counters.from_json(step.counters)
        logs = job.logs / step.name
        written = self._written_bytes(job, step) if step.state == StepState.CONCATENATING else None
        told = live.overview.lines(step, counters, now, written)
        if told:
            if not overview.same_day(live.overview_name, now):
                live.overview_name = overview.file_name(now)
            _append(logs / live.overview_name, told)
        if lines := live.role.lines(step, counters, events, now):
            _append(logs / "sys" / live.role.file_name, lines)
        ended = step.end_time is not None
        if (ended or now - live.metrics_s >= METRICS_INTERVAL_S) and step.start_time is not None:
            live.metrics_s = now
            at = step.end_time or now
            moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
            values = metrics_of(
                counters, planned=planned_in_checkpoint(step.checkpoint), elapsed_s=max(0.0, at - step.start_time)
            )
            settings = job.settings[step.ordinal] if step.ordinal < len(job.settings) else {}
            prefix = settings.get("metrics_name_prefix", "")
            append_metrics(logs / FILE_NAME, moment, values, prefix)
            if settings.get("push_metrics_to_parent"):
                # The name of the step keeps the metrics of several steps apart.
                several = f"{step.name}/" if len(job.settings) > 1 and not prefix else ""
                append_metrics(job.logs / FILE_NAME, moment, values, prefix or several)

    def _written_bytes(self, job: _LiveJob, step: StepRow) -> int | None:
        """The bytes of the output so far, while it is concatenated."""
        target = StepPaths.from_json(step.paths).append_row
        row = self._reader.job_by_id(job.job_id)
        if target is None or row is None or "://" in target:
            return None
        partial = temporary_path(Path(target), job.job_id, step.step_id, row.generation, self._incarnation)
        try:
            return partial.stat().st_size
        except OSError:
            return None


def _is_told(logs: Path, step: StepRow) -> bool:
    """Whether the overview of an ended step already has its last lines."""
    last = max(logs.glob(overview.ALL_FILES), default=None)
    if last is None:
        return False
    ending = "".join(overview.ending(step, Counters.from_json(step.counters))).encode("utf-8", "backslashreplace")
    with last.open("rb") as file:
        file.seek(max(0, last.stat().st_size - len(ending)))
        return file.read() == ending


def remove_results(logs: Path) -> None:
    """Remove the results of an earlier end, when a job runs again."""
    for pattern in ("job_result.txt", "*/job_result.txt", "*/job_error.txt"):
        for path in logs.glob(pattern):
            path.unlink(missing_ok=True)


def _append(target: Path, lines: list[str]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(lines)
