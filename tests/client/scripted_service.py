"""A master that misbehaves as told: a real gRPC server whose answers the tests script."""

from __future__ import annotations

import hashlib
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
from windrow.rpc import errors
from windrow.rpc.v1 import (
    artifact_service_pb2,
    artifact_service_pb2_grpc,
    job_pb2,
    job_service_pb2,
    job_service_pb2_grpc,
)

Piece = job_service_pb2.DownloadOutputResponse


@dataclass
class Script(job_service_pb2_grpc.JobServiceServicer, artifact_service_pb2_grpc.ArtifactServiceServicer):
    """Answers as told; remembers what it was asked."""

    failures: list[grpc.StatusCode] = field(default_factory=list)
    """Codes for the next calls, before any answer."""
    refusal: tuple[grpc.StatusCode, str] | None = None
    files: dict[bytes, bytes] = field(default_factory=dict)
    damage: int = 0
    """Not 0: checksums are wrong by it."""
    break_after: list[int] = field(default_factory=list)
    """After so many bytes, the next downloads break."""
    moments: list[list[job_pb2.Job]] = field(default_factory=list)
    """What the next streams of WatchJob tell before they break; the last one ends well."""
    artifact: bytearray = field(default_factory=bytearray)
    break_upload_after: list[int] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)
    job_id: str = "j"
    archive: bytes = b""
    """What DownloadArtifact sends."""
    read_only: list[str] = field(default_factory=list)
    """Reasons that the next GetMaster calls tell; when all were told, the job ends."""
    all_told: threading.Event = field(default_factory=threading.Event)

    def _take(self, request: Any, context: Any) -> None:
        self.asked.append(request)
        if self.refusal is not None:
            errors.abort_sync(context, self.refusal[0], self.refusal[1], f"Refused for {self.refusal[1]}.")
        if self.failures:
            context.abort(self.failures.pop(0), "not now")

    def GetMaster(self, request: Any, context: Any) -> job_service_pb2.GetMasterResponse:
        self._take(request, context)
        reason = self.read_only.pop(0) if self.read_only else ""
        if not self.read_only:
            self.all_told.set()
        return job_service_pb2.GetMasterResponse(windrow_version="7", read_only_reason=reason)

    def ExplainJob(self, request: Any, context: Any) -> job_service_pb2.ExplainJobResponse:
        return job_service_pb2.ExplainJobResponse()

    def ListNodes(self, request: Any, context: Any) -> job_service_pb2.ListNodesResponse:
        return job_service_pb2.ListNodesResponse()

    def SubmitJob(self, request: Any, context: Any) -> job_service_pb2.SubmitJobResponse:
        self._take(request, context)
        return job_service_pb2.SubmitJobResponse(job=job_pb2.Job(job_id="j", state=job_pb2.JOB_STATE_QUEUED))

    def GetJob(self, request: Any, context: Any) -> job_service_pb2.GetJobResponse:
        output = job_pb2.StepOutput(name="out", path="/out", ready=True)
        job = job_pb2.Job(job_id=self.job_id, state=job_pb2.JOB_STATE_COMPLETED, seq=9)
        job.steps.add(name="work", outputs=[output])
        return job_service_pb2.GetJobResponse(job=job, document=b"{}")

    def WatchJob(self, request: Any, context: Any) -> Iterator[job_service_pb2.WatchJobResponse]:
        self._take(request, context)
        for job in self.moments.pop(0):
            if job.state == job_pb2.JOB_STATE_COMPLETED and self.read_only:
                self.all_told.wait(30)
            if job.seq > request.after_seq:
                yield job_service_pb2.WatchJobResponse(job=job)
        if self.moments:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the master was killed")

    def DownloadOutput(self, request: Any, context: Any) -> Iterator[Piece]:
        self._take(request, context)
        budget = self.break_after.pop(0) if self.break_after else None
        offset = request.offset
        for path, content in sorted(self.files.items()):
            if path < request.from_path or (request.path and path != request.path):
                continue
            offset = min(offset, len(content)) if path in (request.from_path, request.path) else 0
            yield Piece(path=path, begins=True, length=len(content), offset=offset)
            for start in range(offset, len(content), 4):
                chunk = content[start : start + 4]
                if budget is not None:
                    budget -= len(chunk)
                    if budget < 0:
                        context.abort(grpc.StatusCode.UNAVAILABLE, "the cable was cut")
                yield Piece(content=chunk)
            yield Piece(crc32=zlib.crc32(content) ^ self.damage)
            offset = 0

    def DownloadArtifact(self, request: Any, context: Any) -> Iterator[artifact_service_pb2.DownloadArtifactResponse]:
        """Without end, if there is no archive."""
        if self.archive:
            yield artifact_service_pb2.DownloadArtifactResponse(chunk=self.archive)
            return
        while True:
            yield artifact_service_pb2.DownloadArtifactResponse(chunk=bytes(1 << 16))

    def GetArtifact(self, request: Any, context: Any) -> artifact_service_pb2.GetArtifactResponse:
        complete = hashlib.sha256(self.artifact).hexdigest() == request.digest
        return artifact_service_pb2.GetArtifactResponse(length=len(self.artifact), complete=complete)

    def UploadArtifact(self, requests: Any, context: Any) -> artifact_service_pb2.UploadArtifactResponse:
        budget = self.break_upload_after.pop(0) if self.break_upload_after else None
        digest = ""
        for request in requests:
            if request.digest:
                digest = request.digest
                assert request.offset == len(self.artifact)
            self.artifact += request.chunk
            if budget is not None and len(self.artifact) >= budget:
                context.abort(grpc.StatusCode.UNAVAILABLE, "the cable was cut")
        if hashlib.sha256(self.artifact).hexdigest() != digest:
            self.artifact.clear()
            errors.abort_sync(context, grpc.StatusCode.DATA_LOSS, errors.DIGEST_MISMATCH, "wrong digest")
        return artifact_service_pb2.UploadArtifactResponse(length=len(self.artifact))
