"""Logs the requests that a served master refuses for bad input or missing rights: who asked for what, and why not."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import grpc
from windrow.common.journal import Repeated

from windrow_master.rpc.callers import host_of
from windrow_master.rpc.refusals import Context

if TYPE_CHECKING:
    from windrow_master.rpc.refusals import Handler

LOGGED = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.DATA_LOSS,
)
"""Other refusals belong to the normal course of things, or log themselves (tokens)."""
EVERYDAY = {"/windrow.rpc.v1.ArtifactService/StatData": grpc.StatusCode.PERMISSION_DENIED}
"""Answers that belong to how data is brought: a client asks whether the master sees its folder, and it does not."""
REASON_CHARACTERS_MAX = 500
DROPPED = "a request was dropped: it is larger than the limit, or its sender left before it arrived"
LINES_A_MINUTE = 30
"""However many callers and kinds of calls there are: the rest is counted, and pushes no other line out of the log."""
REFUSED = Repeated(in_all=LINES_A_MINUTE)
"""All calls that are refused."""


class RefusalLog(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in its stubs only
    """Writes to the log; changes no answer."""

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]], details: grpc.HandlerCallDetails
    ) -> Handler:
        """Return the method's own handler, wrapped so that refusals are logged."""
        handler = await continuation(details)
        return handler if handler is None else _watched(handler, str(details.method))


def _watched(handler: Handler, method: str) -> Handler:
    behaviour: Any = handler.stream_stream or handler.stream_unary or handler.unary_stream or handler.unary_unary

    async def request_of(requests: AsyncIterator[Any], context: Context) -> Any:
        """Return what the handler takes. A single request is read here: gRPC silently drops one that is too large."""
        if handler.request_streaming:
            return requests
        peer, request = context.peer(), None
        try:
            request = await anext(aiter(requests), None)
        finally:
            # gRPC may have ended the call, and cancelled this, already.
            if request is None:
                REFUSED.say((method, host_of(peer)), logging.WARNING, DROPPED, method=method, peer=peer)
        if request is None:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "The request did not arrive completely.")
        return request

    def tell(context: Context) -> None:
        if context.code() in LOGGED:
            reason = str(context.details())[:REASON_CHARACTERS_MAX]
            level = logging.INFO if EVERYDAY.get(method) == context.code() else logging.WARNING
            kind = (method, host_of(context.peer()), context.code())
            REFUSED.say(kind, level, "a request was refused", method=method, peer=context.peer(), reason=reason)

    async def answer(requests: AsyncIterator[Any], context: Context) -> Any:
        try:
            return await behaviour(await request_of(requests, context), context)
        except grpc.aio.AbortError:
            tell(context)
            raise

    async def answers(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        try:
            async with aclosing(behaviour(await request_of(requests, context), context)) as responses:
                async for response in responses:
                    yield response
        except grpc.aio.AbortError:
            tell(context)
            raise

    codecs = {
        "request_deserializer": handler.request_deserializer,
        "response_serializer": handler.response_serializer,
    }
    made: Handler
    if not handler.response_streaming:
        made = grpc.stream_unary_rpc_method_handler(answer, **codecs)
    else:
        # Work writes to its context on its own.
        made = grpc.stream_stream_rpc_method_handler(
            answers if inspect.isasyncgenfunction(behaviour) else answer, **codecs
        )
    return made
