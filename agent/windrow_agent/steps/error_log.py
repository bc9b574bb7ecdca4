"""Writes failures into a step's logs (docs/reference/azure-ml/parallel-job.md#logs): `user/error/` is for people,
`sys/error/` for programs.
"""

from __future__ import annotations

import json
from typing import Any

from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import node_pb2 as node
from windrow.rpc.v1 import work_pb2 as work

from windrow_agent.leases.lease import Lease
from windrow_agent.outgoing import completions
from windrow_agent.steps.step import Step
from windrow_agent.workers.frames import FrameType, Result
from windrow_agent.workers.process_log import utc, utc_now


def cause_name(cause: work.Cause.ValueType) -> str:
    """The name of a cause, as in all logs and reports: `exception`, `timeout`, ..."""
    return work.Cause.Name(cause).removeprefix("CAUSE_").lower()


def failed_by(result: Result) -> str:
    """The name of the cause in a result frame; "" if the mini-batch is done."""
    if result.type != FrameType.FAILED:
        return ""
    return cause_name(completions.failure_of(completions.side_of(result))[0])


def note_attempt(step: Step, number: int, lease: Lease, completion: work.Completion) -> None:
    """Logs an attempt that failed."""
    head = f"mini-batch {lease.mini_batch_index}, try {lease.attempt}: {completion.message}"
    _write(step, number, head, completion.detail)
    _write_json(
        step,
        number,
        {
            "time": utc(completion.start_unix_us + completion.elapsed_us),
            "status": "failed",
            "cause": cause_name(completion.cause),
            "phase": node.WorkerPhase.Name(completion.phase).removeprefix("WORKER_PHASE_").lower(),
            "mini_batch": lease.mini_batch_index,
            "try": lease.attempt,
            "items": completion.item_count,
            "duration": completion.elapsed_us / 1e6,
            "process_time": completion.cpu_us / 1e6,
            "run_method_duration": completion.run_us / 1e6,
            "message": completion.message,
        },
    )


def note_worker(step: Step, number: int, cause: str, message: str, detail: str) -> None:
    """Logs a worker that failed outside any mini-batch: before it was ready, or in `shutdown()`."""
    _write(step, number, message, detail)
    document = {"time": utc_now(), "status": "failed", "cause": cause, "mini_batch": None, "message": message}
    _write_json(step, number, document)


def note_preparation(step: Step, failure: rpc.WorkerFailure) -> None:
    """Logs that this node cannot prepare the step. No worker has the failure's number, so no worker writes there."""
    note_worker(step, failure.process_number, cause_name(failure.cause), failure.message, failure.detail)
    for kind in (rpc.LOG_KIND_ERROR, rpc.LOG_KIND_RUNTIME_ERROR):
        step.log_file(kind, failure.process_number).end()


def _write(step: Step, number: int, head: str, detail: str) -> None:
    step.log_file(rpc.LOG_KIND_ERROR, number).write(f"{utc_now()} {head}\n{detail}\n".encode())


def _write_json(step: Step, number: int, document: dict[str, Any]) -> None:
    line = json.dumps(document, ensure_ascii=False) + "\n"
    step.log_file(rpc.LOG_KIND_RUNTIME_ERROR, number).write(line.encode("utf-8", "backslashreplace"))
