"""The standard gRPC health service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1 import health_pb2_grpc

WATCH_INTERVAL_S = 1.0

Context = grpc.aio.ServicerContext[Any, Any]


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # it has no stubs
    """Serving or not, for the process as a whole (the name "") and for each service that it names."""

    def __init__(self, services: Sequence[str], is_serving: Callable[[], bool]) -> None:
        """`services`: their full names."""
        self._services = {"", *services}
        self._is_serving = is_serving

    async def Check(self, request: pb.HealthCheckRequest, context: Context) -> pb.HealthCheckResponse:
        """Return the current status. Raises NOT_FOUND for an unknown service, as the protocol requires."""
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"This server has no service {request.service[:200]!r}.")
        return self._response(request.service)

    async def Watch(self, request: pb.HealthCheckRequest, context: Context) -> AsyncIterator[pb.HealthCheckResponse]:
        """Yield the current status, and each change."""
        told = None
        while True:
            response = self._response(request.service)
            if response.status != told:
                told = response.status
                yield response
            await asyncio.sleep(WATCH_INTERVAL_S)

    def _response(self, service: str) -> pb.HealthCheckResponse:
        if service not in self._services:
            return pb.HealthCheckResponse(status=pb.HealthCheckResponse.SERVICE_UNKNOWN)
        serving = self._is_serving()
        status = pb.HealthCheckResponse.SERVING if serving else pb.HealthCheckResponse.NOT_SERVING
        return pb.HealthCheckResponse(status=status)
