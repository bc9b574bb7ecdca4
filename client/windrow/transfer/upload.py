"""Archives on their way to a master. An upload that broke off goes on where it stopped."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final, Protocol

import grpc

from windrow.errors import TransferFailed
from windrow.rpc import errors
from windrow.rpc.connection import STREAM_TIMEOUT_S, Connection, Patience
from windrow.rpc.v1 import artifact_service_pb2 as artifact_pb
from windrow.rpc.v1 import artifact_service_pb2_grpc

CHUNK_BYTES: Final = 1 << 20
UPLOAD_TRIES: Final = 3
"""How often an upload may be found damaged or out of step before that is an error."""


class ArchiveSource(Protocol):
    """An archive to upload. It is read by a thread of gRPC's, and from any offset again where an upload broke."""

    @property
    def length(self) -> int:
        """Its bytes."""

    def read_at(self, offset: int, size: int) -> bytes:
        """So many bytes from an offset, or fewer where it ends."""


class FileSource:
    """An archive that is a file, open for reading."""

    def __init__(self, file: BinaryIO) -> None:
        self._descriptor = file.fileno()
        self.length = os.fstat(self._descriptor).st_size

    def read_at(self, offset: int, size: int) -> bytes:
        """Without the file's position: the thread of a broken try may still be reading while the next one begins."""
        return os.pread(self._descriptor, size, offset)


def upload_artifact(
    connection: Connection, digest: str, source: ArchiveSource, *, on_bytes: Callable[[int], None] = lambda done: None
) -> int:
    """Bring an archive to the master, unless it has it; return how many bytes were sent.

    `on_bytes`: told how many of its bytes are there or on their way; fewer than before when an upload broke. Raises
    WindrowError, and what reading the source raises.
    """
    stub = artifact_service_pb2_grpc.ArtifactServiceStub(connection.channel)
    patience = Patience(connection)
    sent = furthest = 0
    for tries_left in reversed(range(UPLOAD_TRIES)):
        while True:
            has = connection.call(stub.GetArtifact, artifact_pb.GetArtifactRequest(digest=digest))
            if has.complete:
                return sent
            if has.length > furthest:
                furthest = has.length
                patience.answered()
            pieces = _Pieces(source, digest, has.length, on_bytes)
            call = stub.UploadArtifact.future(iter(pieces), timeout=STREAM_TIMEOUT_S)
            try:
                pieces.begin(call)
                call.result()
                return sent + pieces.sent
            except (grpc.RpcError, grpc.FutureCancelledError) as error:
                sent += pieces.sent
                if pieces.fault is not None:
                    raise pieces.fault from None
                if not isinstance(error, grpc.RpcError):
                    raise TransferFailed("The upload was ended because its client was closed.") from error
                failure = errors.read_failure(error)
                if failure.reason in (errors.OFFSET_MISMATCH, errors.DIGEST_MISMATCH) and tries_left:
                    break
                if failure.reason == errors.STORAGE_FULL:
                    raise TransferFailed(failure.message, reason=failure.reason) from error
                patience.wait_or_raise(error)
            finally:
                call.cancel()  # type: ignore[no-untyped-call]  # so are gRPC's stubs
    raise AssertionError("the last try returns or raises")


class _Pieces:
    """The messages of one try of an upload. What reading them raises ends the call, and is kept in `fault`."""

    def __init__(self, source: ArchiveSource, digest: str, offset: int, on_bytes: Callable[[int], None]) -> None:
        self._source = source
        self._digest = digest
        self._offset = offset
        self._on_bytes = on_bytes
        self._begun = threading.Event()
        self.fault: Exception | None = None
        self.sent = 0

    def begin(self, call: Any) -> None:
        """Say which call it is."""
        self._call = call
        self._begun.set()

    def __iter__(self) -> Iterator[artifact_pb.UploadArtifactRequest]:
        # gRPC iterates in a thread of its own, and would print a traceback of what is raised there.
        try:
            chunk = self._source.read_at(self._offset, CHUNK_BYTES)
            yield artifact_pb.UploadArtifactRequest(
                digest=self._digest, length=self._source.length, offset=self._offset, chunk=chunk
            )
            while chunk:
                self._offset += len(chunk)
                self.sent += len(chunk)
                self._on_bytes(self._offset)
                chunk = self._source.read_at(self._offset, CHUNK_BYTES)
                if chunk:
                    yield artifact_pb.UploadArtifactRequest(chunk=chunk)
        except Exception as error:
            self.fault = error
            self._begun.wait()
            self._call.cancel()
