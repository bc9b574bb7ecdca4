"""Uploads large rows to the master in chunks. The completion follows, with the segment that they are in."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import grpc
from windrow.common.journal import Condition, say
from windrow.rpc import errors
from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import work_pb2 as work

from windrow_agent.leases.lease import Lease
from windrow_agent.link import Link, LinkLost, is_passing
from windrow_agent.outgoing import completions

_CHUNK_BYTES = 1 << 20
_AT_A_TIME = 2
_REFUSALS_MAX = 5
_SCARCE = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Failures to read the rows that say nothing about them: the upload is tried again without end."""


class RowUploads:
    """`complete` takes the completion; `link` waits for a connection over which the node is admitted."""

    def __init__(self, link: Callable[[], asyncio.Future[Link]], complete: Callable[[int, bytes], None]) -> None:
        self._link = link
        self._complete = complete
        self._turns = asyncio.Semaphore(_AT_A_TIME)
        self._tasks: set[asyncio.Task[None]] = set()
        self._waits = Condition(
            logging.WARNING, "large rows do not reach the master", "large rows reach the master again", from_times=2
        )

    def stage(self, lease: Lease, completion: work.Completion, rows: Path) -> None:
        """Uploads the rows in a file, then hands the completion in; removes the file."""
        task = asyncio.create_task(self._run(lease, completion, rows))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def pending(self) -> int:
        """Number of uploads that are not done."""
        return len(self._tasks)

    def cancel(self) -> None:
        """Cancels all uploads, as the agent ends."""
        for task in self._tasks:
            task.cancel()

    async def _run(self, lease: Lease, completion: work.Completion, rows: Path) -> None:
        try:
            completion.staged_segment = await self._upload(lease, completion, rows)
        except OSError as error:
            completion = completions.failed_here(
                lease.lease_id, f"The rows of a mini-batch could not be read on this node: {error}"
            )
        except _NotAsMade as changed:
            completion = completions.not_saved(completion, work.CAUSE_OUTPUT_FAILED, str(changed))
        except _Refused as refused:
            completion = completions.failed_here(
                lease.lease_id, f"The master refused the rows of a mini-batch: {refused}"
            )
        self._complete(lease.lease_id, completion.SerializeToString())
        with suppress(OSError):
            rows.unlink(missing_ok=True)  # noqa: ASYNC240  # one system call

    async def _upload(self, lease: Lease, completion: work.Completion, rows: Path) -> str:
        """Tries until the master has the rows; returns the staged segment. Raises _Refused, OSError (unreadable)."""
        wait = 0.1
        refusals = 0
        while True:
            try:
                # Held only while sending: rows that are refused again and again must not block others.
                async with self._turns:
                    response = await self._send(lease.lease_id, rows)
            except LinkLost as lost:
                self._waits.goes_on(lease=lease.lease_id, why=str(lost))
            except OSError as error:
                if error.errno not in _SCARCE:
                    raise
                self._waits.goes_on(lease=lease.lease_id, why=str(error))
            except grpc.aio.AioRpcError as error:
                failure = errors.read_failure(error)
                why = f"{failure.code.name} {failure.reason} {failure.message}"
                self._waits.goes_on(lease=lease.lease_id, why=why)
                if failure.reason == errors.LEASE_NOT_LIVE:
                    raise _Refused(failure.message) from error
                # NOT_FOUND says nothing about the rows either: they are sent again without end.
                if not is_passing(failure) and failure.code != grpc.StatusCode.NOT_FOUND:
                    refusals += 1
                    if refusals >= _REFUSALS_MAX:
                        raise _Refused(failure.message) from error
            else:
                self._waits.is_over()
                if response.length == completion.rows_length and response.crc32 == completion.rows_crc32:
                    return response.staged_segment
                say(logging.WARNING, "rows arrived damaged", lease=lease.lease_id, length=response.length)
                refusals += 1
                if refusals >= _REFUSALS_MAX:
                    found = await asyncio.to_thread(_crc32, rows)
                    if found == response.crc32:
                        raise _NotAsMade(
                            f"The rows of a mini-batch are not those that its worker process has announced (crc32 "
                            f"{found:#x} for {completion.rows_crc32:#x}, {response.length} bytes for "
                            f"{completion.rows_length}): something has changed their file. A script must not write to "
                            "the folder of its worker. If it does not, check the memory and the disk of this node"
                        )
                    raise _Refused(
                        f"they arrived damaged {refusals} times "
                        f"(sent with crc32 {found:#x}, made with {completion.rows_crc32:#x})"
                    )
            await asyncio.sleep(wait)
            wait = min(5.0, wait * 2)

    async def _send(self, lease_id: int, rows: Path) -> rpc.UploadRowsResponse:
        """Makes one try. Raises OSError (the rows cannot be read), AioRpcError, LinkLost."""
        link = await self._link()
        with rows.open("rb") as file:  # it is read in a thread, or sent by name
            requests = _Requests(lease_id, file, by_name=link.takes_rows_files)
            try:
                async with link.guard():
                    return await link.agent.UploadRows(requests.each(), metadata=link.metadata)
            except LinkLost:
                if requests.failure is not None:
                    raise requests.failure from None
                raise


class _Refused(Exception):
    pass


class _NotAsMade(Exception):
    pass


class _Requests:
    """The messages for one file. `failure`: why it could not be read; gRPC loses that, and cancels the call."""

    def __init__(self, lease_id: int, file: BinaryIO, *, by_name: bool) -> None:
        self.failure: OSError | None = None
        self._lease_id = lease_id
        self._file = file
        self._by_name = by_name

    async def each(self) -> AsyncIterator[rpc.UploadRowsRequest]:
        """Yields the messages. Raises OSError."""
        if self._by_name:
            yield rpc.UploadRowsRequest(lease_id=self._lease_id, rows_file=os.fsencode(self._file.name))
            return
        first = True
        while True:
            try:
                chunk = await asyncio.to_thread(self._file.read, _CHUNK_BYTES)
            except OSError as error:
                self.failure = error
                raise
            if not chunk and not first:
                return
            yield rpc.UploadRowsRequest(lease_id=self._lease_id if first else 0, chunk=chunk)
            first = False


def _crc32(path: Path) -> int:
    crc = 0
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            crc = zlib.crc32(chunk, crc)
    return crc
