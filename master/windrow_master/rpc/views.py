"""Turns rows of the core and the store into messages of the protocol."""

from __future__ import annotations

import json
import logging
import math
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from google.protobuf import json_format
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from windrow.common.failure_kinds import SHORT_RETURN
from windrow.common.journal import Repeated
from windrow.rpc.v1 import agent_service_pb2, job_pb2, node_pb2, work_pb2

from windrow_master.core.counters import Counters
from windrow_master.core.ids import LeaseId, StepId
from windrow_master.core.records import JobRow, StepRow, planned_in_checkpoint
from windrow_master.core.states import DONE_STEPS, ENDED_STEPS, AttemptState, Cause, Phase, StepState
from windrow_master.core.statuses import category_of, status_of
from windrow_master.step_paths import StepPaths

if TYPE_CHECKING:
    from windrow_master.core.leases import Lease
    from windrow_master.core.state import Node

UINT64_MAX = (1 << 64) - 1
_UNSHOWN = Repeated(in_all=30)
"""Jobs that cannot be shown: every display of the jobs asks for them again."""
_CAUSES = {SHORT_RETURN: 0} | {cause.name.lower(): int(cause) for cause in Cause if cause}


def timestamp(seconds: float | None) -> Timestamp | None:
    """Seconds since 1970 as a message; None stays unset."""
    if seconds is None:
        return None
    stamp = Timestamp()
    stamp.FromNanoseconds(int(seconds * 1e9))
    return stamp


def seconds_of(message: Message, field: str) -> float | None:
    """A moment of a message in seconds since 1970, or a duration in seconds; None if it is not set. Raises ValueError
    for what is none.
    """
    return getattr(message, field).ToNanoseconds() / 1e9 if message.HasField(field) else None


def job_message(job: JobRow, steps: Iterable[StepRow]) -> job_pb2.Job:
    """A job with its steps; without them, and told so, where they cannot be shown: no list of jobs fails for one."""
    try:
        return _whole_job(job, list(steps))
    except Exception as error:
        _UNSHOWN.say(
            job.job_key, logging.ERROR, "a job cannot be shown whole. This is a fault of Windrow's: report it",
            job=job.job_id, error="".join(traceback.format_exception(error)),
        )  # fmt: skip
        told = f"Its steps cannot be shown ({type(error).__name__}). The master's log says more (master.log)."
        message = _job_alone(job)
        message.message = f"{job.message} {told}".lstrip()
        return message


def _job_alone(job: JobRow) -> job_pb2.Job:
    """A job without what its steps and its document tell."""
    return job_pb2.Job(
        job_id=job.job_id,
        display_name=job.job_id,
        state=job.state,  # type: ignore[arg-type]
        message=job.message,
        create_time=timestamp(job.create_time),
        end_time=timestamp(job.end_time),
        seq=job.seq,
        generation=job.generation,
        run_digest=job.run_digest,
        project=job.queue,
        submitter=job.submitter,
        priority=job.priority,
        weight=job.weight,
        deadline=timestamp(job.deadline),
    )


def _whole_job(job: JobRow, steps: list[StepRow]) -> job_pb2.Job:
    document = json.loads(job.document)
    settings = document.get("steps", ())
    message = _job_alone(job)
    message.display_name = document.get("display_name") or job.job_id
    message.experiment_name = document.get("experiment_name", "")
    message.steps.extend(
        step_message(
            step,
            settings[step.ordinal].get("append_row_to"),
            is_command=settings[step.ordinal].get("command") is not None,
        )
        for step in steps
    )
    message.warnings.extend(json.loads(job.warnings) + [one for step in steps for one in _misfit_warnings(step)])
    message.notes.extend(note for step in steps for note in _notes(step))
    return message


def _misfit_warnings(step: StepRow) -> list[str]:
    """Values that did not fit the columns of a step's table; only once the step has ended, since the numbers change
    before that.
    """
    if step.state not in ENDED_STEPS:
        return []
    return [f"{step.name}: {warning}" for warning in Counters.from_json(step.counters).misfit_warnings()]


def _notes(step: StepRow) -> list[str]:
    return [f"{step.name}: {note}" for note in Counters.from_json(step.counters).notes]


def step_message(step: StepRow, append_row_to: str | None, *, is_command: bool) -> job_pb2.Step:
    """A step with its counters. `append_row_to`: the output that holds its rows."""
    counters = Counters.from_json(step.counters)
    paths = StepPaths.from_json(step.paths)
    return job_pb2.Step(
        gpu_use=_gpu_use(counters),
        data_cache=_data_cache(counters),
        step_id=step.step_id,
        name=step.name,
        state=step.state,  # type: ignore[arg-type]
        message=step.message,
        planned=planned_in_checkpoint(step.checkpoint) or bool(paths.reused_from) or step.state == StepState.SKIPPED,
        mini_batches=job_pb2.MiniBatchCounts(
            total=counters.planned,
            queued=counters.queued,
            leased=counters.leased,
            succeeded=counters.succeeded,
            failed=counters.failed,
            cancelled=counters.cancelled,
            taken_over=counters.taken_over,
            speculated=counters.speculated,
            speculated_won=counters.speculated_won,
        ),
        items=job_pb2.ItemCounts(
            total=counters.items_total,
            ok=counters.items_ok,
            failed=counters.items_failed,
            cancelled=counters.items_cancelled,
            taken_over=counters.items_taken_over,
        ),
        failed_attempts=[
            job_pb2.CauseCount(cause=int(cause), count=count)  # type: ignore[arg-type]
            for cause, count in sorted(counters.failed_attempts.items(), key=lambda entry: int(entry[0]))
        ],
        retries=counters.retries,
        rows=counters.rows,
        output_bytes=counters.output_bytes,
        outputs=[
            job_pb2.StepOutput(
                name=name,
                path=path,
                append_row=name == append_row_to,
                ready=step.state in DONE_STEPS,
            )
            for name, path in paths.outputs.items()
        ],
        start_time=timestamp(step.start_time),
        end_time=timestamp(step.end_time),
        error_category=step.error_category,
        is_command=is_command,
        misfits=min(counters.misfit_count, UINT64_MAX),  # Windrow 1 has stored any sum
        reused_from=paths.reused_from,
        failure_examples=[
            job_pb2.FailureExample(
                cause=int(cause),  # type: ignore[arg-type]
                mini_batch_index=max(0, example["mini_batch"]),
                message=example["message"],
                detail=example["detail"],
                node_id=example["node_id"],
                process_number=example["process_number"],
                status=status_of(AttemptState.FAILED, int(cause), example.get("phase", Phase.UNKNOWN)),
                error_category=category_of(int(cause), example.get("phase", Phase.UNKNOWN)),
            )
            for cause, example in counters.examples.items()
        ],
        failure_kinds=[
            job_pb2.FailureKind(
                cause=_CAUSES[kind.cause],  # type: ignore[arg-type]
                error=kind.error,
                place=kind.place,
                attempts=kind.attempts,
                final_attempts=kind.final_attempts,
                mini_batches=kind.mini_batches,
                items=kind.items,
                mini_batch_index=kind.mini_batch_index if kind.mini_batch_index >= 0 else None,
                message=kind.message,
                detail=kind.detail,
                node_id=kind.node_id,
                process_number=kind.process_number,
                status=kind.status,
                error_category=kind.error_category,
            )
            for kind in counters.failure_kinds()
        ],
    )


def _gpu_use(counters: Counters) -> job_pb2.GpuUse | None:
    """What workers have used of GPUs; None if nothing was measured."""
    gpus = counters.gpus
    if not gpus:
        return None
    measured = gpus["measured"]
    busy = gpus["busy_percent"] / measured if measured else None
    return job_pb2.GpuUse(peak_memory_bytes=gpus["peak_bytes"], busy_percent=busy, measurements=measured)


def _data_cache(counters: Counters) -> work_pb2.DataCacheUse | None:
    """What a step's data had of the data caches of nodes; None if no node that has one has fetched any."""
    use = counters.data_cache
    return work_pb2.DataCacheUse(**{name: min(count, UINT64_MAX) for name, count in use.items()}) if use else None


def node_message(
    node: Node,
    heartbeat: agent_service_pb2.HeartbeatRequest | None,
    heard_s: float,
    leases: Mapping[LeaseId, Lease],
    sees: Callable[[StepId], bool],
) -> node_pb2.Node:
    """Make the message of a node, with its last heartbeat. `heard_s`: when that arrived (monotonic). `leases`: those
    that are live. `sees`: whether the caller sees the job of a step.
    """
    labels = json.loads(node.labels or b"{}")
    version = labels.pop("windrow_version", "")
    message = node_pb2.Node(
        node_id=node.node_id,
        node_incarnation=node.node_incarnation,
        state=int(node.state),  # type: ignore[arg-type]
        message=node.status_text(sees),
        lease_count=len(node.lease_ids),
        register_time=timestamp(node.register_time),
        windrow_version=version,
        cordoned=node.cordoned,
        labels=labels,
        allocation=node.allocation,
    )
    json_format.Parse(node.resources or b"{}", message.resources)
    if node.ends_s < math.inf:
        message.lifetime.FromMilliseconds(max(0, int((node.ends_s - time.monotonic()) * 1000)))
    if heartbeat is not None and heartbeat.node_incarnation == node.node_incarnation:
        message.usage.CopyFrom(heartbeat.usage)
        message.workers.extend(heartbeat.workers)
        for worker in message.workers:
            if (lease := leases.get(LeaseId(worker.lease_id))) is not None:
                worker.mini_batch_index = lease.mini_batch
        message.silent_ms = max(0, int((time.monotonic() - heard_s) * 1000))
        message.protection = heartbeat.protection
        if heartbeat.HasField("ca_good_until"):
            message.ca_good_until.CopyFrom(heartbeat.ca_good_until)
    return message
