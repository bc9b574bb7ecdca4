"""Bounds how many calls that stream are open at a time, of one client and of all."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any

import grpc
from windrow.rpc import errors

from windrow_master.limits import Limits, how_to_raise
from windrow_master.rpc.callers import caller_of
from windrow_master.rpc.handlers import like
from windrow_master.rpc.refusals import Context

if TYPE_CHECKING:
    from windrow_master.rpc.refusals import Handler

WORK = "/windrow.rpc.v1.AgentService/Work"
"""Each node has one, and nodes are admitted: they do not count as of one client."""
HEALTH = "/grpc.health.v1.Health/"
HEALTH_CHECKS = "health checks"
"""They need no token, so all of them count as of one client: whoever opens many takes no stream from others."""


class StreamLimits(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in its stubs only
    """Refuses a stream too many: RESOURCE_EXHAUSTED, LIMIT_REACHED."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open = 0
        self._by_client: Counter[str] = Counter()

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]], details: grpc.HandlerCallDetails
    ) -> Handler:
        """Return the method's own handler, wrapped so that it is counted while it runs."""
        handler = await continuation(details)
        if handler is None or not (handler.request_streaming or handler.response_streaming):
            return handler
        return self._counted(handler, str(details.method))

    def _counted(self, handler: Handler, method: str) -> Handler:
        behaviour: Any = handler.stream_stream or handler.stream_unary or handler.unary_stream

        def client_of(context: Context) -> str:
            if method == WORK:
                return ""
            return HEALTH_CHECKS if method.startswith(HEALTH) else caller_of(context)

        async def answer(requests: Any, context: Context) -> Any:
            client = client_of(context)
            await self._refuse_too_many(client, context)
            with self._one_of(client):
                return await behaviour(requests, context)

        async def answers(requests: Any, context: Context) -> AsyncIterator[Any]:
            client = client_of(context)
            await self._refuse_too_many(client, context)
            with self._one_of(client):
                async with aclosing(behaviour(requests, context)) as responses:
                    async for response in responses:
                        yield response

        # Work writes to its context on its own.
        return like(handler, answers if inspect.isasyncgenfunction(behaviour) else answer)

    async def _refuse_too_many(self, client: str, context: Context) -> None:
        for name, found, most, whose in (
            ("streams_per_client", self._by_client[client] if client else 0, self._limits.streams_per_client, client),
            ("streams", self._open, self._limits.streams, "all clients and nodes"),
        ):
            if found >= most:
                await errors.abort(
                    context,
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    errors.LIMIT_REACHED,
                    f"{found:,} calls that stream are open of {whose}, which is the limit {name} of this master. End "
                    f"some (windrow job stream, logs --follow, top), and try again; or {how_to_raise(name)}.",
                )

    @contextmanager
    def _one_of(self, client: str) -> Iterator[None]:
        self._open += 1
        self._by_client[client] += 1
        try:
            yield
        finally:
            self._open -= 1
            self._by_client[client] -= 1
            if not self._by_client[client]:
                del self._by_client[client]
