"""The gRPC connection to one master: its options, its credentials, its calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import grpc
import grpc.aio
from windrow.rpc import session_key
from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import agent_service_pb2_grpc, artifact_service_pb2_grpc

if TYPE_CHECKING:
    from windrow.rpc.errors import Failure
    from windrow.rpc.v1.agent_service_pb2_grpc import AgentServiceAsyncStub
    from windrow.rpc.v1.artifact_service_pb2_grpc import ArtifactServiceAsyncStub

_WORK = "/windrow.rpc.v1.AgentService/Work"
_MESSAGE_BYTES_MAX = 64 << 20
_OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.max_receive_message_length", _MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", _MESSAGE_BYTES_MAX),
    # A peer that vanishes silently is noticed within 15 s, even if nothing is sent.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    # Each attempt to register uses a new connection, so that our own waits decide, not gRPC's back-off from an
    # earlier attempt.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    # Longest time of one attempt to connect, TLS handshake included: a lost packet is retried soon.
    ("grpc.min_reconnect_backoff_ms", 3_000),
    # Masters are named by address: never go through a proxy from the environment.
    ("grpc.enable_http_proxy", 0),
]

_PASSING = frozenset(
    (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAUTHENTICATED,
    )
)
ANSWERED_EARLY = "Internal error from Core"
"""What gRPC may say, in place of the answer, of a call that was answered while it still sent."""
WorkCall = grpc.aio.StreamStreamCall[bytes, rpc.WorkResponse]


def is_passing(failure: Failure) -> bool:
    """Whether a failure says nothing about what was asked, so that it is asked again."""
    return failure.code in _PASSING or failure.message == ANSWERED_EARLY


def socket_missing(address: str) -> bool:
    """Whether an address names a unix socket that is not there (yet)."""
    return address.startswith("unix:") and not Path(address.removeprefix("unix:").replace("//", "/", 1)).exists()


class LinkLost(Exception):
    """The connection was closed during a call; the session starts again."""


class Link:
    """One connection to a master. `credential` is set once the node is admitted.

    Not the benchmarks' `Link`, which is a relay that can be cut.
    """

    def __init__(self, address: str, tls_ca_file: Path | None, credential: str = "") -> None:
        """Raises OSError when the file of certificates cannot be read."""
        self.address = address
        self.credential = credential
        self.key = session_key.read(address)
        """The key of a private master; "" for others."""
        self.takes_rows_files = False
        """The master can read large rows from a file on this machine."""
        if tls_ca_file is not None and not address.startswith("unix:"):
            credentials = grpc.ssl_channel_credentials(tls_ca_file.read_bytes())
            self._channel = grpc.aio.secure_channel(address, credentials, options=_OPTIONS)
        else:
            self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        self.agent = cast("AgentServiceAsyncStub", agent_service_pb2_grpc.AgentServiceStub(self._channel))
        self.artifacts = cast("ArtifactServiceAsyncStub", artifact_service_pb2_grpc.ArtifactServiceStub(self._channel))

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of every call but Register."""
        credential = ("windrow-credential", self.credential)
        return (credential, ("authorization", f"Bearer {self.key}")) if self.key else (credential,)

    def open_work(self) -> WorkCall:
        """Opens the Work stream. Messages to the master are already encoded."""
        method = self._channel.stream_stream(
            _WORK, request_serializer=bytes, response_deserializer=rpc.WorkResponse.FromString
        )
        call: Any = cast("Any", method)(metadata=self.metadata)
        return cast("WorkCall", call)

    @staticmethod
    def ended(response: object) -> bool:
        """Whether this was the end of a stream."""
        return response is cast("Any", grpc.aio).EOF

    @asynccontextmanager
    async def guard(self) -> AsyncIterator[None]:
        """Wraps calls made outside the session's own tasks. When a channel is closed, gRPC cancels the waiting task;
        this raises LinkLost instead, unless the task itself is being cancelled.
        """
        try:
            yield
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise LinkLost(f"the connection to {self.address} was closed") from None
        except grpc.aio.UsageError as error:
            raise LinkLost(f"the connection to {self.address} was closed") from error

    async def close(self) -> None:
        """Ends all calls."""
        await self._channel.close(None)
