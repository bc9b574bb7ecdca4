"""Uploads of archives to a master. An upload that broke off continues where it stopped."""

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
"""How often an upload may arrive damaged or at a wrong offset before that is an error."""


class ArchiveSource(Protocol):
    """An archive to upload. A thread of gRPC reads it, from any offset again if an upload breaks."""

    @property
    def length(self) -> int:
        """Its length in bytes."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from an offset; fewer at the end."""


class FileSource:
    """An archive that is a file, open for reading."""

    def __init__(self, file: BinaryIO) -> None:
        self._descriptor = file.fileno()
        self.length = os.fstat(self._descriptor).st_size

    def read_at(self, offset: int, size: int) -> bytes:
        """Does not use the position of the file: the thread of a broken try may still be reading."""
        return os.pread(self._descriptor, size, offset)


def upload_artifact(
    connection: Connection, digest: str, source: ArchiveSource, *, on_bytes: Callable[[int], None] = lambda done: None
) -> int:
    """Upload an archive, unless the master has it; return the number of bytes sent.

    `on_bytes`: called with the number of bytes sent so far; it falls when an upload breaks. Raises WindrowError, and
    what reading the source raises.
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
    """The messages of one try of an upload. An error in reading the source ends the call, and is kept in `fault`."""

    def __init__(self, source: ArchiveSource, digest: str, offset: int, on_bytes: Callable[[int], None]) -> None:
        self._source = source
        self._digest = digest
        self._offset = offset
        self._on_bytes = on_bytes
        self._begun = threading.Event()
        self.fault: Exception | None = None
        self.sent = 0

    def begin(self, call: Any) -> None:
        """Set the call that these messages belong to."""
        self._call = call
        self._begun.set()

    def __iter__(self) -> Iterator[artifact_pb.UploadArtifactRequest]:
        # gRPC iterates in its own thread, and would print the traceback of an error.
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
