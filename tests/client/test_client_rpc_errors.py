"""Errors cross gRPC with their reason, from servicers of both kinds to clients of both kinds."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import grpc.aio
import pytest
from windrow.rpc import errors
from windrow.rpc.v1 import job_service_pb2 as pb
from windrow.rpc.v1 import job_service_pb2_grpc


class _SyncServicer(job_service_pb2_grpc.JobServiceServicer):
    def GetJob(self, request: pb.GetJobRequest, context: grpc.ServicerContext) -> pb.GetJobResponse:
        errors.abort_sync(
            context, grpc.StatusCode.NOT_FOUND, errors.JOB_UNKNOWN, "No job «ü\udcff».", {"job_id": request.job_id}
        )


class _AioServicer(job_service_pb2_grpc.JobServiceServicer):
    async def GetJob(self, request: pb.GetJobRequest, context: grpc.aio.ServicerContext) -> pb.GetJobResponse:  # type: ignore[override]
        await errors.abort(
            context, grpc.StatusCode.NOT_FOUND, errors.JOB_UNKNOWN, "No job «ü\udcff».", {"job_id": request.job_id}
        )


EXPECTED = errors.Failure(grpc.StatusCode.NOT_FOUND, errors.JOB_UNKNOWN, r"No job «ü\xff».", {"job_id": "j"})


def _ask(address: str) -> errors.Failure:
    with grpc.insecure_channel(address) as channel:
        stub = job_service_pb2_grpc.JobServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.GetJob(pb.GetJobRequest(job_id="j"), timeout=10)
    return errors.read_failure(caught.value)


def test_a_threaded_servicer_tells_its_reason(tmp_path: Path) -> None:
    server = grpc.server(ThreadPoolExecutor(2))
    job_service_pb2_grpc.add_JobServiceServicer_to_server(_SyncServicer(), server)
    server.add_insecure_port(f"unix:{tmp_path}/s")
    server.start()
    try:
        assert _ask(f"unix:{tmp_path}/s") == EXPECTED
    finally:
        server.stop(0).wait()


def test_an_aio_servicer_tells_its_reason(tmp_path: Path) -> None:
    async def both() -> errors.Failure:
        server = grpc.aio.server()
        job_service_pb2_grpc.add_JobServiceServicer_to_server(_AioServicer(), server)
        server.add_insecure_port(f"unix:{tmp_path}/s")
        await server.start()
        try:
            return await asyncio.to_thread(_ask, f"unix:{tmp_path}/s")
        finally:
            await server.stop(0)

    assert asyncio.run(both()) == EXPECTED


def test_an_error_of_the_connection_has_no_reason(tmp_path: Path) -> None:
    failure = _ask(f"unix:{tmp_path}/nobody")
    assert failure.reason == ""
    assert failure.code == grpc.StatusCode.UNAVAILABLE
    assert failure.message
