"""ArtifactService: archives by digest."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any
from weakref import WeakValueDictionary

import grpc
from windrow.rpc import errors
from windrow.rpc.v1 import artifact_service_pb2 as pb
from windrow.rpc.v1 import artifact_service_pb2_grpc

from windrow_master.artifacts import ArtifactError, ArtifactFolder
from windrow_master.rpc.threads import in_thread

CHUNK_BYTES = 1 << 20
CODES = {"DIGEST_MISMATCH": grpc.StatusCode.DATA_LOSS, "DIGEST_INVALID": grpc.StatusCode.INVALID_ARGUMENT}


class ArtifactService(artifact_service_pb2_grpc.ArtifactServiceServicer):
    """Thin: bytes to and from ArtifactFolder."""

    def __init__(self, artifacts: ArtifactFolder) -> None:
        self._artifacts = artifacts
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By digest: one upload at a time."""

    async def GetArtifact(
        self, request: pb.GetArtifactRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.GetArtifactResponse:
        """How much is here."""
        length, complete = self._artifacts.length(request.digest)
        return pb.GetArtifactResponse(length=length, complete=complete)

    async def UploadArtifact(
        self, request_iterator: AsyncIterator[pb.UploadArtifactRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.UploadArtifactResponse:
        """Receive an artifact, or the rest of one. Who brings the same one meanwhile waits, and finds it here."""
        requests = aiter(request_iterator)
        first = await anext(requests, None)
        try:
            if first is None:
                raise ArtifactError("DIGEST_INVALID", "The upload named no digest.")
            async with self._turns.setdefault(first.digest, asyncio.Lock()):
                length = await self._receive(first, requests)
        except ArtifactError as error:
            code = CODES.get(error.reason, grpc.StatusCode.FAILED_PRECONDITION)
            await errors.abort(context, code, error.reason, str(error))
        except OSError as error:
            await errors.abort(
                context,
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "STORAGE_FULL",
                f"The master cannot store the artifact: {error.strerror}. Make room on its disk and try again.",
            )
        return pb.UploadArtifactResponse(length=length)

    async def _receive(self, first: pb.UploadArtifactRequest, requests: AsyncIterator[pb.UploadArtifactRequest]) -> int:
        """Take one upload in; return the artifact's length. Raises ArtifactError, OSError."""
        digest, length, at = first.digest, first.length, first.offset
        if self._artifacts.path(digest) is not None:
            return self._artifacts.length(digest)[0]
        descriptor = self._artifacts.begin(digest, length, at)
        try:
            request: pb.UploadArtifactRequest | None = first
            while request is not None:
                at += len(request.chunk)
                if at > length:
                    raise ArtifactError("OFFSET_MISMATCH", f"More bytes came than the {length} that were announced.")
                await in_thread(_write_all, descriptor, request.chunk)
                request = await anext(requests, None)
            await in_thread(self._artifacts.finish, digest, length)
        finally:
            os.close(descriptor)
        return length

    async def DownloadArtifact(
        self, request: pb.DownloadArtifactRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.DownloadArtifactResponse]:
        """Send an artifact from an offset."""
        path = self._artifacts.path(request.digest)
        if path is None:
            await errors.abort(
                context,
                grpc.StatusCode.NOT_FOUND,
                "ARTIFACT_MISSING",
                f"This master has no artifact {request.digest[:80]!r}. Submit the job again: that uploads it.",
            )
            return
        with path.open("rb") as file:
            file.seek(request.offset)
            while chunk := file.read(CHUNK_BYTES):
                yield pb.DownloadArtifactResponse(chunk=chunk)


def _write_all(descriptor: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(descriptor, view) :]
