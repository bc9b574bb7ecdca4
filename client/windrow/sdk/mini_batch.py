"""Mini-batches and their attempts, as plain frozen values made from the messages of the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.common.worker_phases import PHASE_NAMES
from windrow.errors import UsageError
from windrow.sdk.job import CAUSES, moment_of

if TYPE_CHECKING:
    from windrow.rpc.v1 import job_service_pb2, mini_batch_pb2

STATES = ("unknown", "queued", "leased", "succeeded", "failed", "cancelled")
NO_RESULT = "no_result"
"""In place of a cause: `run()` returned, but fewer results than items."""

_ATTEMPT_STATES = ("unknown", "running", "succeeded", "failed", "abandoned")


class Attempt(NamedTuple):
    """One attempt at a mini-batch. Durations in seconds; None if unknown (a lease that has not ended, a lost node)."""

    lease_id: int
    node_id: str
    process_number: int | None
    state: str
    """`running`, `succeeded`, `failed`, or `abandoned`: taken back, charged to nobody."""
    status: str
    """As in the reports: `RUN_DONE`, `RUN_EXCEPTION`, `LOAD_TIMEOUT`, `NODE_LOST`, `LEASED`, …"""
    cause: str
    """Why it failed or was taken back; empty for none."""
    error_category: str
    """`UserError`, `SystemError` or `DependencyError`; empty where it did not fail."""
    phase: str
    """The phase in which it ended, or is now."""
    start_time: datetime | None
    elapsed_s: float | None
    """On the worker: loading, `run()`, writing what it returned."""
    run_s: float | None
    cpu_s: float | None
    peak_rss_bytes: int | None
    """Largest resident set of the worker process so far."""
    item_count: int
    """As counted at load."""
    result_count: int
    message: str
    detail: str
    """Traceback, or the tail of stderr; only of `Client.mini_batch`."""
    counts: bool
    """Its outcome is the mini-batch's."""
    logs: tuple[str, ...] = ()
    """Log files of its worker, as `Client.read_log` takes them; only of `Client.mini_batch`."""
    node_incarnation: str = ""

    @property
    def load_s(self) -> float | None:
        """Seconds for everything but `run()`: loading, and writing what `run()` returned."""
        return None if self.elapsed_s is None or self.run_s is None else max(0.0, self.elapsed_s - self.run_s)

    @property
    def process_name(self) -> str:
        """The name in the logs, such as `process000`; empty if it is not known."""
        return "" if self.process_number is None else f"process{self.process_number:03d}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, with the time in ISO 8601."""
        start = self.start_time.isoformat() if self.start_time is not None else None
        return {**self._asdict(), "start_time": start, "load_s": self.load_s, "logs": list(self.logs)}


class MiniBatch(NamedTuple):
    """One mini-batch of a step. Not what `run()` gets, which is the worker's `MiniBatch`."""

    step: str
    mini_batch_index: int
    state: str
    """`queued`, `leased`, `succeeded`, `failed` or `cancelled`."""
    tries: int
    """Attempts that ended by themselves, well or not."""
    cause: str
    """Why its last attempt that failed did so; `no_result`: `run()` returned fewer results than items; empty: none."""
    item_first: int
    item_count: int
    """Counted when it was loaded, else as planned; 0 if it is known only after loading."""
    ok_count: int
    row_count: int
    last_attempt: Attempt | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        last = self.last_attempt.to_dict() if self.last_attempt is not None else None
        return {**self._asdict(), "last_attempt": last}


class FailedItem(NamedTuple):
    """An item that is not ok, or several of a mini-batch if it is not known which."""

    item: str
    """Its path, or its place in a table."""
    number: int | None
    """Counted from 0 in its mini-batch; None if this is not about a single, known item."""
    cause: str
    """One of CAUSES, or no_result."""
    message: str
    """What happened, in one line."""


class MiniBatchDetails(NamedTuple):
    """A mini-batch with everything that is known about it."""

    mini_batch: MiniBatch
    attempts: tuple[Attempt, ...]
    """Oldest first."""
    items: tuple[str, ...]
    """In words, one text per file or range of a table; the first 1,000."""
    items_left_out: int
    partition: str
    """Values of its partition keys, as a JSON object; empty where the input has none."""
    recipe: str
    """The read instructions for a worker, as JSON."""
    failed_items: tuple[FailedItem, ...]
    """Its items that are not ok, as in failed_items.csv; the first 1,000. They are known once it has ended."""
    failed_items_left_out: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        import json

        return {
            **self.mini_batch.to_dict(),
            "attempts": [attempt.to_dict() for attempt in self.attempts],
            "items": list(self.items),
            "items_left_out": self.items_left_out,
            "partition": json.loads(self.partition) if self.partition else None,
            "recipe": json.loads(self.recipe),
            "failed_items": [one._asdict() for one in self.failed_items],
            "failed_items_left_out": self.failed_items_left_out,
        }


def list_request(
    job_id: str, step: str | None, state: str | Sequence[str], cause: str | None, newest_first: bool, page_size: int
) -> job_service_pb2.ListMiniBatchesRequest:
    """Make the request of `Client.mini_batches`. Raises UsageError for an unknown state or cause."""
    from windrow.rpc.v1 import job_service_pb2 as pb

    states = [state] if isinstance(state, str) else list(state)
    for one in states:
        if one not in STATES[1:]:
            raise UsageError(f"{one!r} is not a state of mini-batches. States: {', '.join(STATES[1:])}.")
    if cause is not None and cause not in CAUSES[1:] and cause != NO_RESULT:
        raise UsageError(f"{cause!r} is not a cause. Causes: {', '.join((*CAUSES[1:], NO_RESULT))}.")
    return pb.ListMiniBatchesRequest(
        job_id=job_id,
        step_name=step or "",
        states=[STATES.index(one) for one in states],  # type: ignore[misc]
        cause=CAUSES.index(cause) if cause in CAUSES[1:] else 0,  # type: ignore[arg-type]
        short_of_results=cause == NO_RESULT,
        newest_first=newest_first,
        page_size=page_size,
    )


def mini_batch_from_message(message: mini_batch_pb2.MiniBatch) -> MiniBatch:
    """Make a mini-batch from its message."""
    state = STATES[message.state] if message.state < len(STATES) else "unknown"
    cause = _named(CAUSES, message.cause) if message.cause else ""
    if not cause and state == "succeeded" and message.ok_count < message.item_count:
        cause = NO_RESULT
    return MiniBatch(
        step=message.step_name,
        mini_batch_index=message.mini_batch_index,
        state=state,
        tries=message.tries,
        cause=cause,
        item_first=message.item_first,
        item_count=message.item_count,
        ok_count=message.ok_count,
        row_count=message.row_count,
        last_attempt=_attempt(message.last_attempt) if message.HasField("last_attempt") else None,
    )


def details_from_message(message: job_service_pb2.GetMiniBatchResponse) -> MiniBatchDetails:
    """Make a mini-batch with its attempts from its message."""
    return MiniBatchDetails(
        mini_batch=mini_batch_from_message(message.mini_batch),
        attempts=tuple(map(_attempt, message.attempts)),
        items=tuple(message.items),
        items_left_out=message.items_left_out,
        partition=message.partition,
        recipe=message.recipe,
        failed_items=tuple(
            FailedItem(
                item=one.item,
                number=one.number if one.HasField("number") else None,
                cause=_named(CAUSES, one.cause) if one.cause else NO_RESULT,
                message=one.message,
            )
            for one in message.failed_items
        ),
        failed_items_left_out=message.failed_items_left_out,
    )


def _attempt(message: mini_batch_pb2.MiniBatchAttempt) -> Attempt:
    state = _named(_ATTEMPT_STATES, message.state)
    told = message.HasField("process_number") and state != "running"
    return Attempt(
        lease_id=message.lease_id,
        node_id=message.node_id,
        process_number=message.process_number if message.HasField("process_number") else None,
        state=state,
        status=message.status,
        cause=_named(CAUSES, message.cause) if message.cause else "",
        error_category=message.error_category,
        phase=_named(PHASE_NAMES, message.phase),
        start_time=moment_of(message, "start_time"),
        elapsed_s=message.elapsed_us / 1e6 if told else None,
        run_s=message.run_us / 1e6 if told else None,
        cpu_s=message.cpu_us / 1e6 if told else None,
        peak_rss_bytes=message.peak_rss_kib << 10 if told and message.peak_rss_kib else None,
        item_count=message.item_count,
        result_count=message.result_count,
        message=message.message,
        detail=message.detail,
        counts=message.counts,
        logs=tuple(message.logs),
        node_incarnation=message.node_incarnation,
    )


def _named(names: tuple[str, ...], number: int) -> str:
    return names[number] if number < len(names) else f"unknown_{number}"
