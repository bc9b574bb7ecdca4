"""The secret of a client, in the metadata of each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import grpc


class _Details(NamedTuple):
    """What `grpc.ClientCallDetails` describes; gRPC itself has no class that can be filled in."""

    method: str
    timeout: float | None
    metadata: Sequence[tuple[str, str | bytes]]
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: grpc.Compression | None


class Bearer(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[type-arg]  # generic in its stubs only
    grpc.UnaryStreamClientInterceptor,  # type: ignore[type-arg]
    grpc.StreamUnaryClientInterceptor,  # type: ignore[type-arg]
    grpc.StreamStreamClientInterceptor,  # type: ignore[type-arg]
):
    """Adds `authorization: Bearer <token>` to each call. For channels with TLS, and for addresses on this machine.

    It replaces gRPC's own call credentials. gRPC (1.85) destroys those in a thread that needs the interpreter; when a
    channel is closed after a failed handshake, the closing thread holds the interpreter and waits for that thread, so
    both hang.
    """

    def __init__(self, find: Callable[[], str]) -> None:
        """`find`: returns the token; "" while there is none, so that it is asked again at the next call."""
        self._find = find
        self._token = ""

    def _intercept(self, continuation: Callable[[Any, Any], Any], details: Any, request: Any) -> Any:
        if not self._token:
            self._token = self._find()
        if not self._token:
            return continuation(details, request)
        metadata = [*(details.metadata or ()), ("authorization", f"Bearer {self._token}")]
        with_token = _Details(
            details.method,
            details.timeout,
            metadata,
            details.credentials,
            details.wait_for_ready,
            details.compression,
        )
        return continuation(with_token, request)

    intercept_unary_unary: Any = _intercept
    intercept_unary_stream: Any = _intercept
    intercept_stream_unary: Any = _intercept
    intercept_stream_stream: Any = _intercept
