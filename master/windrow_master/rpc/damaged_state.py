"""How a master that has found its state damaged answers: with the reason.

A served master whose database is damaged stays up, is unhealthy, and answers every call with the reason. If it ended,
its supervisor would start it again and again, and clients and agents would only see that nobody answers.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from windrow.rpc import errors

from windrow_master.files.errors import StateDamaged
from windrow_master.rpc.refusals import Context

if TYPE_CHECKING:
    from windrow_master.rpc.refusals import Handler

_HEALTH = "/grpc.health.v1.Health/"
_AGENTS = ".AgentService/"


class DamagedStateHandler(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in its stubs only
    """Refuses every call but Health: FAILED_PRECONDITION, reason STATE_DAMAGED."""

    def __init__(self, damage: StateDamaged) -> None:
        self._message = f"This master has stopped serving: {damage}"

    def service(self, details: grpc.HandlerCallDetails) -> Handler | None:
        """The same handler for methods of every kind: it does not read requests."""
        if str(details.method).startswith(_HEALTH):
            return None
        message = self._message

        async def refuse(requests: object, context: Context) -> AsyncIterator[Any]:
            await errors.abort(context, grpc.StatusCode.FAILED_PRECONDITION, errors.STATE_DAMAGED, message)
            yield

        handler: Handler = grpc.stream_stream_rpc_method_handler(refuse)
        return handler


class DamageInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in its stubs only
    """Ends a call that meets damage (a job, its logs, its rows) with the reason. AgentService reads no durable data."""

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]], details: grpc.HandlerCallDetails
    ) -> Handler:
        """Return the method's own handler, wrapped so that damage ends the call with the reason."""
        handler = await continuation(details)
        return handler if handler is None or _AGENTS in str(details.method) else _with_reason(handler)


def _with_reason(handler: Handler) -> Handler:
    kind = "stream_" if handler.request_streaming else "unary_"
    kind += "stream" if handler.response_streaming else "unary"
    behaviour: Any = getattr(handler, kind)

    async def answer(request: Any, context: Context) -> Any:
        try:
            return await behaviour(request, context)
        except StateDamaged as damage:
            await _abort(context, damage)

    async def answers(request: Any, context: Context) -> AsyncIterator[Any]:
        try:
            async for response in behaviour(request, context):
                yield response
        except StateDamaged as damage:
            await _abort(context, damage)

    make = getattr(grpc, f"{kind}_rpc_method_handler")
    made: Handler = make(
        answers if inspect.isasyncgenfunction(behaviour) else answer,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )
    return made


async def _abort(context: Context, damage: StateDamaged) -> NoReturn:
    await errors.abort(context, grpc.StatusCode.FAILED_PRECONDITION, errors.STATE_DAMAGED, str(damage))
