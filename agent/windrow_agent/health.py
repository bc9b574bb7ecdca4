"""The agent's health: the standard gRPC health service on a unix socket in the agent's folder."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import grpc
import grpc.aio
from windrow.journal import say

_PATH_BYTES_MAX = 107
"""What the kernel takes for the path of a socket."""


class HealthSocket:
    """Serves while it is open. An agent that cannot have one works all the same."""

    def __init__(self, folder: Path, is_serving: Callable[[], bool]) -> None:
        """`is_serving`: a master knows this agent at the moment."""
        self._folder = folder
        self._is_serving = is_serving
        self._server: grpc.aio.Server | None = None

    async def open(self) -> None:
        """Begin to answer."""
        from grpc_health.v1 import health_pb2_grpc
        from windrow.rpc.health import SOCKET, Health

        path = self._folder / SOCKET
        if len(bytes(path)) > _PATH_BYTES_MAX:
            say(logging.WARNING, "the agent's folder has too long a path for a health socket", folder=self._folder)
            return
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        health_pb2_grpc.add_HealthServicer_to_server(Health((), self._is_serving), server)
        # An earlier agent that was killed has left its socket; the lock of the folder says that it is gone.
        path.unlink(missing_ok=True)
        try:
            server.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:
            say(logging.WARNING, "no health socket", path=path, reason=str(error))
            return
        await server.start()
        self._server = server

    async def close(self) -> None:
        """End it."""
        if self._server is not None:
            await self._server.stop(None)
