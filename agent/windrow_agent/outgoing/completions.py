"""Makes completions: from a worker's result, or for a lease whose worker died or never got it."""

from __future__ import annotations

import json
import time
from typing import Any

from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import node_pb2 as node
from windrow.rpc.v1 import work_pb2 as work

from windrow_agent.leases.lease import Lease
from windrow_agent.workers.frames import FrameType, Result
from windrow_agent.workers.page import Look

_MESSAGE_MAX = 4 << 10
_DETAIL_MAX = 64 << 10
_SECRET_MAX = 16 << 10
"""No secret is longer: a private key is the longest."""

_CAUSES: dict[str, work.Cause.ValueType] = {
    "exception": work.CAUSE_EXCEPTION,
    "bad_return": work.CAUSE_BAD_RETURN,
    "load_failed": work.CAUSE_LOAD_FAILED,
    "input_changed": work.CAUSE_INPUT_CHANGED,
    "input_misread": work.CAUSE_INPUT_MISREAD,
}
"""Causes of attempts that a worker's process may name. Each is charged to its own mini-batch: the process runs code of
the job, and may name what it likes.
"""

_CLAIM = "node_fault"
"""What a worker names where it takes the node to be at fault. The agent looks for itself (`ClaimedFaults`)."""

_ITEM_CAUSES: dict[str, work.Cause.ValueType] = {
    **_CAUSES,
    "timeout": work.CAUSE_TIMEOUT,
    "crash": work.CAUSE_CRASH,
    "oom": work.CAUSE_OOM,
    "marked": work.CAUSE_MARKED,
}
"""Causes of single items. Those that end a worker come from the master, and go back to it."""

_CAUSE_WORDS = {cause: word for word, cause in _ITEM_CAUSES.items()}

_ITEM_MESSAGE_MAX = 1 << 10

_FAILED_ITEMS_MAX = 50_000
_MISFITS_MAX = 10_000
"""The host writes no more (`windrow_worker.failures`). Those that are left out count as items without a result."""
_ROWS_MAX = (1 << 32) - 1
"""A mini-batch has no more, so a column has no more misfits."""

_RETRY_AFTER_S_MAX = 86_400
"""A longer wait is not of the host's making."""

_PHASES: dict[work.Cause.ValueType, node.WorkerPhase.ValueType] = {
    work.CAUSE_EXCEPTION: node.WORKER_PHASE_RUNNING,
    work.CAUSE_BAD_RETURN: node.WORKER_PHASE_RETURNING,
    work.CAUSE_LOAD_FAILED: node.WORKER_PHASE_LOADING,
    work.CAUSE_INPUT_CHANGED: node.WORKER_PHASE_LOADING,
    work.CAUSE_INPUT_MISREAD: node.WORKER_PHASE_LOADING,
    work.CAUSE_OUTPUT_FAILED: node.WORKER_PHASE_RETURNING,
}
"""For each cause that a worker reports itself, the phase in which it occurs."""


def shortened(text: str, limit: int) -> str:
    """The text in at most `limit` bytes of UTF-8: its beginning and its end if it is longer."""
    data = text.encode(errors="replace")
    if len(data) <= limit:
        return data.decode()
    half = (limit - 8) // 2
    return data[:half].decode(errors="ignore") + "\n…\n" + data[-half:].decode(errors="ignore")


def side_of(result: Result) -> dict[str, Any]:
    """The JSON document of a result; empty if there is none, or it cannot be read."""
    if not result.side:
        return {}
    try:
        side = json.loads(result.side)
    except (ValueError, RecursionError):
        return {}
    return side if isinstance(side, dict) else {}


def failure_of(side: dict[str, Any]) -> tuple[work.Cause.ValueType, str, str]:
    """Cause, message and detail of a failed attempt. The texts are a script's, and go to logs and reports: an exception
    may quote an address with its signature.

    An attempt that is said to have failed because of the node is `output_failed`, unless the agent finds that it did.
    """
    named = str(side.get("cause"))
    return (
        work.CAUSE_OUTPUT_FAILED if named == _CLAIM else _CAUSES.get(named, work.CAUSE_EXCEPTION),
        _shown(str(side.get("message", "")), _MESSAGE_MAX),
        _shown(str(side.get("detail", "")), _DETAIL_MAX),
    )


def claims_node_fault(result: Result) -> bool:
    """Whether a result says that its attempt failed because of the node."""
    return result.type == FrameType.FAILED and b'"node_fault"' in result.side and side_of(result).get("cause") == _CLAIM


def judged(claimed: work.Completion, why: str) -> work.Completion:
    """The completion of an attempt that is said to have failed because of the node. `why`: what the agent has found to
    be wrong there, in words; "" if it has found nothing.
    """
    completion = work.Completion()
    completion.CopyFrom(claimed)
    if why:
        completion.cause, completion.phase = work.CAUSE_NODE_FAULT, node.WORKER_PHASE_UNSPECIFIED
        verdict = f"The agent cannot write beside that folder either: {why}"
    else:
        verdict = (
            "The agent could write, sync and read a file beside that folder. So this counts as the script's failure, "
            "not as this node's"
        )
    completion.message = shortened(f"{claimed.message}. {verdict}", _MESSAGE_MAX)
    return completion


def _shown(text: str, limit: int) -> str:
    """A script's text without secrets, in at most `limit` bytes. However long it is, little more of it is looked at."""
    # Not at the top: most jobs have no failure, and the first run() waits for imports.
    from windrow.common.secret_values import shown_text

    # What is looked at begins and ends within no secret that is kept: those are shorter than what is cut off again.
    return shortened(shown_text(shortened(text, limit + 2 * _SECRET_MAX)), limit)


def from_result(result: Result, process_number: int, *, rows: bytes | None = None) -> work.Completion:
    """The completion of a DONE or FAILED frame. `rows` replaces the rows in the frame; b"" if they are uploaded."""
    completion = work.Completion(
        lease_id=result.lease_id,
        item_count=result.item_count,
        result_count=result.result_count,
        row_count=result.row_count,
        rows=result.rows if rows is None else rows,
        rows_length=result.rows_length,
        rows_crc32=result.rows_crc32,
        header=result.header,
        start_unix_us=result.start_unix_us,
        elapsed_us=result.elapsed_us,
        run_us=result.run_us,
        cpu_us=result.cpu_us,
        peak_rss_kib=result.peak_rss_kib,
        process_number=process_number,
    )
    if result.side or result.type == FrameType.FAILED:
        side = side_of(result)
        if result.type == FrameType.FAILED:
            completion.cause, completion.message, completion.detail = failure_of(side)
            completion.phase = _PHASES.get(completion.cause, node.WORKER_PHASE_UNSPECIFIED)
            completion.retry_after_us = _retry_after_us(side)
        try:
            for column, count, example in side.get("misfits", ())[:_MISFITS_MAX]:
                if not 0 < count <= _ROWS_MAX:
                    raise ValueError(f"{count} rows")
                completion.misfits.add(
                    column=shortened(str(column), _ITEM_MESSAGE_MAX),
                    count=int(count),
                    example=shortened(str(example), 512),
                )
        except (KeyError, TypeError, ValueError, OverflowError):
            # Not written by the host. Misfits are only information: an error here would leave the lease without an end.
            del completion.misfits[:]
        if "failed" in side:
            _add_failed_items(completion, side["failed"])
    return completion


def _retry_after_us(side: dict[str, Any]) -> int:
    """How long the exception of an attempt asks to wait before the next one, in µs; 0 if it does not ask."""
    asked_s = side.get("retry_after_s", 0)
    known = isinstance(asked_s, int | float) and 0 < asked_s <= _RETRY_AFTER_S_MAX
    return int(asked_s * 1e6) if known else 0


def _add_failed_items(completion: work.Completion, failed: Any) -> None:
    """Adds the items that the worker has found to fail."""
    try:
        for first, count, cause, message, place in failed[:_FAILED_ITEMS_MAX]:
            completion.failed_items.add(
                first=int(first),
                count=int(count),
                cause=_ITEM_CAUSES.get(str(cause), work.CAUSE_EXCEPTION),
                message=_shown(str(message), _ITEM_MESSAGE_MAX),
                place=shortened(str(place), _ITEM_MESSAGE_MAX),
            )
    except (KeyError, TypeError, ValueError, OverflowError):
        # Not written by the host. Without them, the master counts items without a result.
        del completion.failed_items[:]


def split_order(split: work.Split) -> bytes:
    """How a mini-batch is split, as the worker reads it (docs/contracts.md, section 4)."""
    given_up = [
        [one.first, one.count, _CAUSE_WORDS.get(one.cause, "exception"), one.message, one.place]
        for one in split.given_up
    ]
    document = {
        "cuts": list(split.cuts),
        "given_up": given_up,
        "suspects": list(split.suspects),
        "runs_max": split.runs_max,
        "call_s": split.call_s,
        "item_s": split.item_s,
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def of_dead_worker(
    lease: Lease,
    cause: work.Cause.ValueType,
    message: str,
    detail: str,
    look: Look,
    process_number: int,
    *,
    in_run: bool,
) -> work.Completion:
    """The completion of a lease whose worker died over it. Items are as counted at load, if it got that far."""
    elapsed_us = _elapsed_us(look)
    return work.Completion(
        lease_id=lease.lease_id,
        cause=cause,
        item_count=look.items or lease.item_count,
        start_unix_us=time.time_ns() // 1000 - elapsed_us,
        elapsed_us=elapsed_us,
        run_us=elapsed_us if in_run else 0,
        process_number=process_number,
        message=shortened(message, _MESSAGE_MAX),
        detail=shortened(detail, _DETAIL_MAX),
        phase=node.WorkerPhase.ValueType(look.phase),
        piece_first=look.piece_first,
        piece_count=look.piece_count,
    )


def of_killed_worker(lease_id: int, look: Look, process_number: int) -> rpc.CutShort:
    """What a worker had spent on a lease that is given back, because the worker was killed for others."""
    return rpc.CutShort(lease_id=lease_id, elapsed_us=_elapsed_us(look), process_number=process_number)


def _elapsed_us(look: Look) -> int:
    """How long a worker that has died was at what it did last."""
    return max(0, time.monotonic_ns() - look.phase_start_ns) // 1000 if look.phase_start_ns else 0


def failed_here(lease_id: int, message: str) -> work.Completion:
    """The completion of a lease that failed through a fault of this node, not of the mini-batch."""
    return work.Completion(
        lease_id=lease_id,
        cause=work.CAUSE_NODE_FAULT,
        start_unix_us=time.time_ns() // 1000,
        message=shortened(message, _MESSAGE_MAX),
    )


def not_passed(lease: Lease, message: str) -> work.Completion:
    """The completion of a lease that could not be handed to a worker, unless that is this node's fault."""
    return work.Completion(
        lease_id=lease.lease_id,
        cause=work.CAUSE_LOAD_FAILED,
        item_count=lease.item_count,
        start_unix_us=time.time_ns() // 1000,
        message=shortened(message, _MESSAGE_MAX),
        phase=node.WORKER_PHASE_LOADING,
    )


def not_fetched(lease: Lease, cause: work.Cause.ValueType, message: str, begun_ns: int) -> work.Completion:
    """The completion of a lease whose data could not be fetched. `begun_ns`: CLOCK_MONOTONIC."""
    elapsed_us = max(0, time.monotonic_ns() - begun_ns) // 1000
    return work.Completion(
        lease_id=lease.lease_id,
        cause=cause,
        item_count=lease.item_count,
        start_unix_us=time.time_ns() // 1000 - elapsed_us,
        elapsed_us=elapsed_us,
        message=shortened(message, _MESSAGE_MAX),
        phase=node.WORKER_PHASE_FETCHING,
        data_cache=None if lease.cache_use is None else work.DataCacheUse(**lease.cache_use._asdict()),
    )


def tell_cache_use(lease: Lease, completion: work.Completion) -> None:
    """Puts into the completion of a lease what its data had of the data cache."""
    if lease.cache_use is not None:
        completion.data_cache.CopyFrom(work.DataCacheUse(**lease.cache_use._asdict()))


def not_saved(done: work.Completion, cause: work.Cause.ValueType, message: str) -> work.Completion:
    """The completion of an attempt whose `run()` returned, but whose outputs could not be saved to their store."""
    completion = work.Completion()
    completion.CopyFrom(done)
    for name in ("result_count", "row_count", "rows", "rows_length", "rows_crc32", "header", "misfits", "failed_items"):
        completion.ClearField(name)
    completion.cause = cause
    completion.message = shortened(message, _MESSAGE_MAX)
    completion.phase = node.WORKER_PHASE_RETURNING
    return completion


def short_of_memory(failed: work.Completion, message: str) -> work.Completion:
    """The completion of an attempt that failed because the kernel had killed a child of its worker."""
    completion = work.Completion()
    completion.CopyFrom(failed)
    completion.cause, completion.message = work.CAUSE_OOM, shortened(message, _MESSAGE_MAX)
    return completion


def worker_failure(
    step_id: int, cause: work.Cause.ValueType, message: str, detail: str, process_number: int
) -> rpc.WorkerFailure:
    """The failure of a worker that was never ready, or of a step that could not be prepared."""
    return rpc.WorkerFailure(
        step_id=step_id,
        cause=cause,
        message=shortened(message, _MESSAGE_MAX),
        detail=shortened(detail, _DETAIL_MAX),
        process_number=process_number,
    )
