"""ArtifactService: archives by digest, and the data that clients upload."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import grpc
from windrow.rpc import errors
from windrow.rpc.v1 import artifact_service_pb2 as pb
from windrow.rpc.v1 import artifact_service_pb2_grpc

from windrow_master.files.artifacts import ArtifactError, ArtifactFolder
from windrow_master.identity.principals import caller
from windrow_master.limits import Limits
from windrow_master.roots import Roots
from windrow_master.rpc.callers import caller_of
from windrow_master.rpc.files import read_file_chunks
from windrow_master.rpc.promises import Promise, Promises
from windrow_master.rpc.refusals import Context
from windrow_master.threads import Kind, in_thread
from windrow_master.uploaded_data import Stopped, UploadedData

CHUNK_BYTES = 1 << 20
TELL_S = 0.5
"""So far apart a client hears how far its data is."""
PLACING_THREADS = 2
"""Of their own: what else needs a thread does not wait for data."""
CODES = {
    errors.DIGEST_MISMATCH: grpc.StatusCode.DATA_LOSS,
    errors.DIGEST_INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    errors.REQUEST_INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    errors.ARCHIVE_INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    errors.ARTIFACT_MISSING: grpc.StatusCode.NOT_FOUND,
    errors.PATH_OUTSIDE: grpc.StatusCode.PERMISSION_DENIED,
    errors.STORAGE_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.LIMIT_REACHED: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class _Placing:
    """Data that is being unpacked into the datastore. All callers that ask for it wait for the same task."""

    def __init__(self) -> None:
        self.bytes_done = 0
        self.bytes_total = 0
        self.task: asyncio.Future[Any]

    def tell(self, done: int, total: int) -> None:
        """Note the progress. The thread that unpacks calls this."""
        self.bytes_done, self.bytes_total = done, total


class ArtifactService(artifact_service_pb2_grpc.ArtifactServiceServicer):
    """Moves bytes to and from ArtifactFolder and UploadedData."""

    def __init__(
        self,
        artifacts: ArtifactFolder,
        data: UploadedData,
        roots: Roots,
        is_code_for: Callable[[str, str], bool],
        limits: Limits | None = None,
    ) -> None:
        """Make the service of these artifacts and data.

        - `roots`: the only places that StatData answers about.
        - `is_code_for`: whether a node, by its name, may fetch an artifact, by its digest.
        """
        self._is_code_for = is_code_for
        self._artifacts = artifacts
        self._data = data
        self._roots = roots
        self._limits = limits or Limits()
        self._promises = Promises(self._limits)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By digest: one upload at a time."""
        self._placing: dict[str, _Placing] = {}
        self._threads = ThreadPoolExecutor(PLACING_THREADS, thread_name_prefix="placing")

    def start(self) -> None:
        """Remove, in a thread, what earlier masters have left behind."""
        self._threads.submit(self._data.remove_leftovers)

    async def close(self) -> None:
        """Stop unpacking; clients ask the next master for it."""
        self._data.stop()
        await in_thread(self._threads.shutdown)

    async def GetArtifact(self, request: pb.GetArtifactRequest, context: Context) -> pb.GetArtifactResponse:
        """How many bytes of an artifact are stored. A damaged one counts as missing."""
        await self._refuse_foreign(request.digest, context)
        try:
            await in_thread(self._artifacts.stored, request.digest)
        except ArtifactError as error:
            await _abort(context, error)
        length, complete = self._artifacts.length(request.digest)
        return pb.GetArtifactResponse(length=length, complete=complete)

    async def _refuse_foreign(self, digest: str, context: Context) -> None:
        """Refuse a node what no step needs that it was offered."""
        node = caller().node
        if node and not self._is_code_for(node, digest):
            await errors.abort(
                context,
                grpc.StatusCode.PERMISSION_DENIED,
                errors.STEP_NOT_OFFERED,
                f"Node {node} was offered no step with the code {digest[:80]!r}.",
            )

    async def UploadArtifact(
        self, request_iterator: AsyncIterator[pb.UploadArtifactRequest], context: Context
    ) -> pb.UploadArtifactResponse:
        """Receive an artifact, or the rest of one. A client that uploads the same one waits, then finds it stored."""
        requests = aiter(request_iterator)
        first = await anext(requests, None)
        try:
            if first is None:
                raise ArtifactError(errors.DIGEST_INVALID, "The upload does not name a digest.")
            with self._promises.made(caller_of(context), first.digest, first.length - first.offset) as promise:
                async with self._turns.setdefault(first.digest, asyncio.Lock()):
                    length = await self._receive(first, requests, promise)
        except ArtifactError as error:
            await _abort(context, error)
        except OSError as error:
            if first is not None:
                self._artifacts.give_up(first.digest)
            await errors.abort(
                context,
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                errors.STORAGE_FULL,
                f"The master cannot store the artifact: {error.strerror}. Free some space on its disk and try again.",
            )
        return pb.UploadArtifactResponse(length=length)

    async def _receive(
        self, first: pb.UploadArtifactRequest, requests: AsyncIterator[pb.UploadArtifactRequest], promise: Promise
    ) -> int:
        """Take one upload in; return the artifact's length. Raises ArtifactError, OSError."""
        digest, length, at = first.digest, first.length, first.offset
        # A damaged one counts as missing: the client sends it again.
        if await in_thread(self._artifacts.stored, digest) is not None:
            return self._artifacts.length(digest)[0]
        if await in_thread(self._data.path, digest) is not None:
            return length
        descriptor = await in_thread(
            partial(
                self._artifacts.begin,
                digest,
                length,
                at,
                promised=self._promises.bytes_of_others(promise),
                under_way=self._promises.digests(),
                left=self._limits.left_uploads,
            ),
            drop=partial(self._artifacts.leave, digest),
        )
        try:
            request: pb.UploadArtifactRequest | None = first
            while request is not None:
                if len(request.chunk) > CHUNK_BYTES:
                    raise ArtifactError(
                        errors.REQUEST_INVALID,
                        f"A chunk of {len(request.chunk)} bytes arrived; the limit is {CHUNK_BYTES}.",
                    )
                at += len(request.chunk)
                if at > length:
                    raise ArtifactError(errors.OFFSET_MISMATCH, f"More than the {length} announced bytes arrived.")
                await in_thread(_write_all, descriptor, request.chunk)
                promise.keep(len(request.chunk))
                request = await anext(requests, None)
            if at < length:
                # Not judged by its digest, and kept: the next try continues it.
                raise ArtifactError(
                    errors.OFFSET_MISMATCH, f"The upload ended after {at} of {length} bytes. Continue from there."
                )
            await in_thread(self._artifacts.finish, digest, length)
        finally:
            # If all has arrived, it has another name now.
            await in_thread(self._artifacts.leave, digest, descriptor)
        return length

    async def DownloadArtifact(
        self, request: pb.DownloadArtifactRequest, context: Context
    ) -> AsyncIterator[pb.DownloadArtifactResponse]:
        """Send an artifact from an offset."""
        await self._refuse_foreign(request.digest, context)
        try:
            path = await in_thread(self._artifacts.verified, request.digest)
        except ArtifactError as error:
            await _abort(context, error)
            return
        if path is None:
            await errors.abort(
                context,
                grpc.StatusCode.NOT_FOUND,
                errors.ARTIFACT_MISSING,
                f"This master has no artifact {request.digest[:80]!r}. Submit the job again to upload it.",
            )
            return
        chunks = read_file_chunks(path, request.offset)
        while (chunk := await in_thread(next, chunks, None)) is not None:
            yield pb.DownloadArtifactResponse(chunk=chunk)

    async def StatData(self, request: pb.StatDataRequest, context: Context) -> pb.StatDataResponse:
        """Tell what is at a path in a datastore."""
        try:
            return await in_thread(self._look, request.path, kind=Kind.DATASTORES)
        except ArtifactError as error:
            await _abort(context, error)
            raise AssertionError("abort raises") from error

    def _look(self, path: bytes) -> pb.StatDataResponse:
        """Look at a path in a datastore. Raises ArtifactError."""
        shown = os.fsdecode(path[:500])
        if not path.startswith(b"/") or b"\0" in path:
            raise ArtifactError(errors.REQUEST_INVALID, f"{shown!r} is not an absolute path.")
        if not self._roots.hold(path):
            raise ArtifactError(
                errors.PATH_OUTSIDE,
                f"{shown} is outside the datastores of this master ({self._roots}), so it does not look there.",
            )
        try:
            status = os.stat(path)  # noqa: PTH116  a path is bytes
        except OSError:
            return pb.StatDataResponse()
        is_folder = stat.S_ISDIR(status.st_mode)
        return pb.StatDataResponse(
            exists=True,
            is_folder=is_folder,
            inode=status.st_ino,
            mtime_ns=status.st_mtime_ns,
            length=0 if is_folder else status.st_size,
        )

    async def PlaceData(self, request: pb.PlaceDataRequest, context: Context) -> AsyncIterator[pb.PlaceDataResponse]:
        """Unpack an archive of data. This continues when the caller leaves; a caller that asks again joins it."""
        placing = self._placing.get(request.digest) or self._begin_placing(request.digest)
        while not (await asyncio.wait([placing.task], timeout=TELL_S))[0]:
            yield pb.PlaceDataResponse(bytes_done=placing.bytes_done, bytes_total=placing.bytes_total)
        try:
            path = placing.task.result()
        except ArtifactError as error:
            await _abort(context, error)
        except Stopped:
            await errors.abort(
                context,
                grpc.StatusCode.UNAVAILABLE,
                errors.INTERNAL,
                "The master is stopping. Ask its successor again.",
            )
        total = placing.bytes_total
        yield pb.PlaceDataResponse(bytes_done=total, bytes_total=total, path=str(path))

    def _begin_placing(self, digest: str) -> _Placing:
        placing = self._placing[digest] = _Placing()
        loop = asyncio.get_running_loop()
        placing.task = loop.run_in_executor(self._threads, self._data.place, digest, placing.tell)

        def ended(task: asyncio.Future[Any]) -> None:
            self._placing.pop(digest, None)
            if not task.cancelled():
                task.exception()  # perhaps no caller is left to get it

        placing.task.add_done_callback(ended)
        return placing


async def _abort(context: Context, error: ArtifactError) -> None:
    code = CODES.get(error.reason, grpc.StatusCode.FAILED_PRECONDITION)
    await errors.abort(context, code, error.reason, str(error))


def _write_all(descriptor: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(descriptor, view) :]
