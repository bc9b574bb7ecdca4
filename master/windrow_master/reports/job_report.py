"""The figures of a job in one JSON document (docs/contracts.md, section 6), made where the data is.

One pass over the stored attempts of each step, a page at a time; memory does not grow with their number.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from windrow.spec.one_line.request import is_one_line
from windrow.spec.one_line.words import failure_in_options, in_options

from windrow_master.core.counters import Counters
from windrow_master.core.ids import StepId
from windrow_master.core.records import JobRow, StepRow, planned_in_checkpoint
from windrow_master.core.states import ENDED_STEPS, JobState, StepState
from windrow_master.planning.file_lists import FILES_DEFAULT
from windrow_master.reports.job_figures import ROWS_MAX, RunningAttempt, StepFigures, WorkerKey
from windrow_master.step_paths import StepPaths
from windrow_master.store.protocol import StoreReader

FORMAT = 1
DETAIL_CHARACTERS_MAX = 4000
MIN_RANGE_US = 1000
FAILURES_AT_ONCE = 1000
ROWS_IN_ALL = 4096
"""Lanes over all steps, so that the document stays within its bound whatever the pipeline."""


class Present(NamedTuple):
    """What is known of this moment (`at_s`: seconds since 1970), and stored nowhere. `running`: what is at work, by
    step. `forecast`: what lies ahead of a job that has not ended (`core.forecasts.JobForecast`). `gpu_workers`: what
    holds GPUs, by step. `live_workers`: those that nodes have; None if that is not known. `why`: for each step that has
    not ended, why it is in its state, in words.
    """

    at_s: float
    running: Mapping[StepId, Sequence[RunningAttempt]] = MappingProxyType({})
    forecast: Mapping[str, float | None] | None = None
    gpu_workers: Mapping[StepId, Sequence[Mapping[str, Any]]] = MappingProxyType({})
    live_workers: Collection[WorkerKey] | None = None
    why: Mapping[str, str] = MappingProxyType({})


def job_report(reader: StoreReader, job: JobRow, steps: Sequence[StepRow], now: Present) -> bytes:
    """The document. Raises StateError."""
    document = json.loads(job.document)
    job_file = document.get("job_file", "")
    rows_max = max(8, min(ROWS_MAX, ROWS_IN_ALL // max(1, len(steps))))
    report = {
        "format": FORMAT,
        "job": {
            "job_id": job.job_id,
            "display_name": document.get("display_name") or job.job_id,
            "experiment_name": document.get("experiment_name", ""),
            "project": job.queue,
            "submitter": job.submitter,
            "state": JobState(job.state).name.lower(),
            "message": in_options(job.message, job_file),
            "has_job_file": not is_one_line(job_file),
            "create_s": job.create_time,
            "end_s": job.end_time,
            "now_s": now.at_s,
            "at_work_s": _at_work_s(reader, job, now.at_s),
            "forecast": None if now.forecast is None else dict(now.forecast),
        },
        "steps": [
            {"is_command": _is_command(document, step), "settings": _settings(document, step)}
            | _step(reader, step, job_file, now, rows_max)
            | _gpus(step, now.gpu_workers.get(step.step_id, ())[:rows_max])
            for step in steps
        ],
    }
    return json.dumps(report, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "backslashreplace")


def _at_work_s(reader: StoreReader, job: JobRow, now_s: float) -> float:
    """How long the job has been running, without the times between an end and a retry."""
    rests_s, ended_s, after = 0.0, None, 0
    while events := reader.events_of(job.job_key, after):
        after = events[-1][0]
        for _, event in events:
            if event.kind == "ended":
                ended_s = event.time
            elif event.kind == "retried" and ended_s is not None:
                rests_s += max(0.0, event.time - ended_s)
                ended_s = None
    end_s = job.end_time if job.end_time is not None else now_s
    return max(0.0, end_s - job.create_time - rests_s)


def _is_command(document: Mapping[str, Any], step: StepRow) -> bool:
    steps = document.get("steps", ())
    return step.ordinal < len(steps) and steps[step.ordinal].get("command") is not None


def _settings(document: Mapping[str, Any], step: StepRow) -> dict[str, Any]:
    """The settings of a step that decide about its pace."""
    steps = document.get("steps", ())
    found = steps[step.ordinal] if step.ordinal < len(steps) else {}
    rate = found.get("rate_limit") or {}
    counts_files = json.loads(step.reader or b"{}").get("kind") == "files"
    return {
        "mini_batch_size": found.get("mini_batch_size") or (FILES_DEFAULT if counts_files else None),
        "size_counts": "files" if counts_files else "bytes",
        "has_groups": bool(found.get("partition_keys")),
        "speculate": found.get("speculate", False),
        "rate_per_s": rate.get("per_s"),
        "cpus_per_worker": found.get("cpus_per_worker"),
        "memory_per_worker": found.get("memory_per_worker", 0),
        "gpus_per_worker": found.get("gpus_per_worker", 0),
    }


def _step(
    reader: StoreReader,
    step: StepRow,
    job_file: str,
    now: Present,
    rows_max: int,
) -> dict[str, Any]:
    counters = Counters.from_json(step.counters)
    told = {
        "name": step.name,
        "state": StepState(step.state).name.lower(),
        "message": in_options(step.message, job_file),
        "why": "" if StepState(step.state) in ENDED_STEPS else in_options(now.why.get(step.name, ""), job_file),
        "error_category": step.error_category,
        "reused_from": StepPaths.from_json(step.paths).reused_from,
        "start_s": step.start_time,
        "end_s": step.end_time,
        "planned": planned_in_checkpoint(step.checkpoint),
        "mini_batches": {
            "total": counters.planned,
            "queued": counters.queued,
            "leased": counters.leased,
            "succeeded": counters.succeeded,
            "failed": counters.failed,
            "cancelled": counters.cancelled,
            "taken_over": counters.taken_over,
            "speculated": counters.speculated,
            "speculated_won": counters.speculated_won,
        },
        "items": {
            "total": counters.items_total,
            "ok": counters.items_ok,
            "failed": counters.items_failed,
            "cancelled": counters.items_cancelled,
            "taken_over": counters.items_taken_over,
        },
        "rows": counters.rows,
        "retries": counters.retries,
        "starts": counters.starts,
        "data_cache": counters.data_cache,
        "failures": _failures(counters, job_file),
        "figures": None,
    }
    if step.start_time is not None:
        begin = int(step.start_time * 1e6)
        end = int((step.end_time if step.end_time is not None else now.at_s) * 1e6)
        live = None if step.end_time is not None else now.live_workers
        figures = StepFigures(begin, max(end, begin + MIN_RANGE_US), live)
        for page in reader.attempt_figures_of(step.step_id):
            figures.add(page)
        figures.add_running(now.running.get(step.step_id, ()), int(now.at_s * 1e6))
        told["figures"] = figures.document(rows_max)
    return told


def _gpus(step: StepRow, workers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What workers have used of GPUs, and what they use now; nothing if nobody has measured it."""
    used = Counters.from_json(step.counters).gpus
    return {"gpus": {**used, "workers": list(workers)}} if used or workers else {}


def _failures(counters: Counters, job_file: str) -> list[dict[str, Any]]:
    """The kinds of failures, those that cost most first, each with the first of them."""
    found = []
    for kind in counters.failure_kinds():
        detail = kind.detail
        shown = detail if len(detail) <= DETAIL_CHARACTERS_MAX else "…" + detail[-DETAIL_CHARACTERS_MAX:]
        message = failure_in_options(kind.cause, kind.message, job_file)
        found.append({**kind._asdict(), "message": message, "detail": shown})
    return found
