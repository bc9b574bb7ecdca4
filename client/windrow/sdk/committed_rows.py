"""The committed rows of a step, as they are now or as they come: each row once, whatever breaks in between."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc

from windrow.errors import NotFound, UsageError
from windrow.rpc.connection import Connection, Patience
from windrow.rpc.errors import STEP_UNKNOWN
from windrow.rpc.v1 import job_service_pb2 as pb
from windrow.sdk.results import lines_of, records_of

if TYPE_CHECKING:
    from windrow.rpc.v1.job_service_pb2_grpc import JobServiceStub

FOLLOW_S = 0.5
FOLLOW_MAX_S = 5.0
FOLLOW_REST = 10
"""A follower waits this many times as long as its last look took."""


class RowsOf(NamedTuple):
    """The rows of one mini-batch, in the format of the step: lines, or an Arrow stream."""

    mini_batch: int
    rows: int
    content: bytes


class Progress(NamedTuple):
    """How far rows are committed. `next`: the first mini-batch without an outcome; `behind`: how many behind it have
    theirs; `planned`: how many there are so far. `complete`: nothing more comes.
    """

    next: int
    behind: int
    planned: int
    complete: bool


class RowsStep(NamedTuple):
    """A step whose rows are gathered. `text`: how its DataFrames were written, if the format is text."""

    name: str
    format: str
    to_csv: Mapping[str, Any]
    has_header: bool


def rows_steps(document: Mapping[str, Any]) -> list[RowsStep]:
    """The steps of a job that gather rows, in their order."""
    found = []
    for step in document["steps"]:
        if step.get("append_row_to"):
            rows = step.get("rows", {})
            row_format = rows.get("format", "text")
            has_header = row_format == "csv" or rows.get("dataframe_header", False)
            found.append(RowsStep(step["name"], row_format, rows.get("dataframe_to_csv", {}), has_header))
    return found


def rows_step(job_id: str, document: Mapping[str, Any], step: str | None) -> RowsStep:
    """The step of this name that gathers rows, or the only one. Raises NotFound, UsageError."""
    found = rows_steps(document)
    names = ", ".join(one.name for one in found)
    if step is not None:
        found = [one for one in found if one.name == step]
        if not found:
            raise NotFound(
                f"Job {job_id} has no step {step!r} that gathers rows. Those that do: {names or '(none)'}.",
                reason=STEP_UNKNOWN,
            )
    if not found:
        raise NotFound(f"Job {job_id} gathers no rows: none of its steps has append_row_to.", reason=STEP_UNKNOWN)
    if len(found) > 1:
        raise UsageError(f"Job {job_id} has several steps that gather rows: {names}. Name one, as in {job_id}:STEP.")
    return found[0]


class CommittedRows:
    """Reads the rows of one step. `progress`: how far they were committed at the last look; None before the first."""

    def __init__(
        self, connection: Connection, stub: JobServiceStub, job_id: str, step: RowsStep, *, as_committed: bool = False
    ) -> None:
        """`as_committed`: also rows behind a mini-batch that has no outcome yet."""
        self._connection = connection
        self._stub = stub
        self._job_id = job_id
        self._as_committed = as_committed
        self._first = 0
        self._seen = bytearray()
        self.step = step
        self.header = b""
        """What stands before all rows; empty until rows are committed, or if nothing does."""
        self.progress: Progress | None = None

    def read(self) -> Iterator[RowsOf]:
        """The rows that have been committed since the last look. Continues where it was if the connection breaks.

        Raises WindrowError.
        """
        patience = Patience(self._connection)
        while True:
            request = pb.ReadRowsRequest(
                job_id=self._job_id,
                step_name=self.step.name,
                as_committed=self._as_committed,
                first=self._first,
                seen=bytes(self._seen),
            )
            try:
                with self._connection.stream(self._stub.ReadRows(request)) as stream:
                    yield from self._received(stream, patience.answered)
                return
            except grpc.RpcError as error:
                patience.wait_or_raise(error)

    def follow(self, stop: Callable[[], bool] = lambda: False) -> Iterator[RowsOf]:
        """The rows that are there, and those that come, until the step has ended, or `stop` says so."""
        while True:
            begun = time.monotonic()
            yield from self.read()
            if (self.progress is not None and self.progress.complete) or stop():
                return
            time.sleep(min(max(FOLLOW_S, FOLLOW_REST * (time.monotonic() - begun)), FOLLOW_MAX_S))

    def rows(self, found: RowsOf) -> Iterator[str]:
        """The single rows of a mini-batch, without line ends; those of Parquet as JSON objects."""
        if self.step.format == "parquet":
            for row in _arrow_rows(found.content):
                yield json.dumps(row, ensure_ascii=False, default=str, separators=(",", ":"))
        elif self.step.format == "csv":
            yield from records_of(lines_of([found.content]))
        else:
            yield from lines_of([found.content])

    def _received(self, stream: Any, answered: Callable[[], None]) -> Iterator[RowsOf]:
        waiting: list[pb.RowsRange] = []
        content = bytearray()
        for message in stream:
            answered()
            self.header = message.header or self.header
            waiting += message.ranges
            content += message.content
            while waiting and len(content) >= waiting[0].length:
                found = waiting.pop(0)
                rows = RowsOf(found.mini_batch, found.row_count, bytes(content[: found.length]))
                del content[: found.length]
                self._note(found.mini_batch)
                yield rows
            if message.HasField("end"):
                end = message.end
                self.progress = Progress(end.next, end.behind, end.planned, end.complete)
                if not self._as_committed:
                    self._first = max(self._first, end.next)

    def _note(self, mini_batch: int) -> None:
        """Note that the rows of a mini-batch are read: they are not asked for again."""
        if not self._as_committed:
            self._first = mini_batch + 1
            return
        at = mini_batch >> 3
        if at >= len(self._seen):
            self._seen.extend(bytes(at + 1 - len(self._seen)))
        self._seen[at] |= 1 << (mini_batch & 7)


def _arrow_rows(content: bytes) -> Iterator[dict[str, Any]]:
    from windrow.common.arrow_rows import ArrowRows

    for batch in ArrowRows(content):
        yield from batch.to_pylist()
