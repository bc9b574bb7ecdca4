"""Logs the requests that a served master refuses for bad input or missing rights: who asked for what, and why not.

What is no message of its method is refused here.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from google.protobuf.message import DecodeError
from windrow.common.journal import Repeated
from windrow.rpc import errors

from windrow_master.identity.needs import NEEDS, Need, Who
from windrow_master.limits import how_to_raise
from windrow_master.rpc.callers import host_of
from windrow_master.rpc.message_parts import count_parts
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


class RequestTooLarge(DecodeError):
    """A request that is larger than those of its method may be; the text says how large both are."""


class TooManyParts(DecodeError):
    """A request whose lists have more entries than a limit allows."""


class RefusalLog(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in its stubs only
    """Writes to the log, and refuses what cannot be read."""

    def __init__(self, parts_max: int) -> None:
        """`parts_max`: the most entries of lists in one request (`message_parts.count_parts`)."""
        self._parts_max = parts_max

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]], details: grpc.HandlerCallDetails
    ) -> Handler:
        """Return the method's own handler, wrapped so that refusals are logged."""
        handler = await continuation(details)
        return handler if handler is None else _watched(handler, str(details.method), self._parts_max)


def _watched(handler: Handler, method: str, parts_max: int) -> Handler:
    behaviour: Any = handler.stream_stream or handler.stream_unary or handler.unary_stream or handler.unary_unary

    descriptor = getattr(getattr(handler.request_deserializer, "__self__", None), "DESCRIPTOR", None)
    need = NEEDS.get(method)
    bytes_max = Need(Who.CLIENT).request_bytes_max if need is None else need.request_bytes_max

    def read(raw: bytes) -> Any:
        """A request. Raises DecodeError."""
        if len(raw) > bytes_max:
            raise RequestTooLarge(f"it has {len(raw):,} bytes, and may have {bytes_max:,}")
        # Fewer bytes cannot be so many parts.
        if descriptor is not None and len(raw) > parts_max and count_parts(raw, descriptor, parts_max) > parts_max:
            raise TooManyParts
        return raw if handler.request_deserializer is None else handler.request_deserializer(raw)

    async def refuse(error: DecodeError, context: Context) -> NoReturn:
        """End the call at a request that is no message of this method.

        Only here, where nothing else waits for the call: a task that ends it while another one cancels that task leaves
        it without a status.
        """
        code, reason = grpc.StatusCode.INVALID_ARGUMENT, errors.REQUEST_INVALID
        message = (
            f"The request is not a message of {method}: {error}. What sends it is no client or agent of Windrow, or "
            "one of another version."
        )
        if isinstance(error, RequestTooLarge):
            code, message = grpc.StatusCode.RESOURCE_EXHAUSTED, f"The request is too large: {error}."
        elif isinstance(error, TooManyParts):
            code, reason = grpc.StatusCode.RESOURCE_EXHAUSTED, errors.LIMIT_REACHED
            message = (
                f"The lists of one request of {method} have more than {parts_max:,} entries, which is this master's "
                f"limit message_parts. To take more, {how_to_raise('message_parts')}."
            )
        await errors.abort(context, code, reason, message)

    async def request_of(requests: AsyncIterator[Any], context: Context) -> Any:
        """Return what the handler takes. A single request is read here: gRPC silently drops one that is too large."""
        if handler.request_streaming:
            return requests
        peer, request = context.peer(), None
        try:
            request = await anext(requests, None)
        except DecodeError:
            request = ()
            raise
        finally:
            # gRPC may have ended the call, and cancelled this, already.
            if request is None:
                REFUSED.say((method, host_of(peer)), logging.WARNING, DROPPED, method=method, peer=peer)
        if request is None:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "The request did not arrive completely.")
        return request

    def tell(context: Context) -> None:
        if context.code() in LOGGED:
            # Not at the top: most masters refuse nothing before the first run().
            from windrow.common.secret_values import shown_text

            reason = shown_text(str(context.details()))[:REASON_CHARACTERS_MAX]
            level = logging.INFO if EVERYDAY.get(method) == context.code() else logging.WARNING
            kind = (method, host_of(context.peer()), context.code())
            REFUSED.say(kind, level, "a request was refused", method=method, peer=context.peer(), reason=reason)

    async def answer(requests: AsyncIterator[Any], context: Context) -> Any:
        try:
            try:
                return await behaviour(await request_of(requests, context), context)
            except DecodeError as error:
                await refuse(error, context)
        except grpc.aio.AbortError:
            tell(context)
            raise

    async def answers(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        try:
            try:
                async with aclosing(behaviour(await request_of(requests, context), context)) as responses:
                    async for response in responses:
                        yield response
            except DecodeError as error:
                await refuse(error, context)
        except grpc.aio.AbortError:
            tell(context)
            raise

    codecs = {
        "request_deserializer": read,
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
