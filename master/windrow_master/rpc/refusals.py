"""Refusals of the core as errors of the protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import grpc
from windrow.rpc import errors

from windrow_master.core.refused import Refused

CODES: Final = {
    "JOB_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "JOB_UNKNOWN": grpc.StatusCode.NOT_FOUND,
    "JOB_INVALID": grpc.StatusCode.INVALID_ARGUMENT,
    "NODE_ALREADY_LIVE": grpc.StatusCode.ALREADY_EXISTS,
    "ALLOCATION_TAKEN": grpc.StatusCode.ALREADY_EXISTS,
    "NODE_UNKNOWN": grpc.StatusCode.NOT_FOUND,
    "ASSET_UNKNOWN": grpc.StatusCode.NOT_FOUND,
    "ASSET_INVALID": grpc.StatusCode.INVALID_ARGUMENT,
    "ASSET_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "TOKEN_UNKNOWN": grpc.StatusCode.NOT_FOUND,
    "TOKEN_INVALID": grpc.StatusCode.INVALID_ARGUMENT,
    "TOKEN_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "QUEUE_INVALID": grpc.StatusCode.INVALID_ARGUMENT,
    "FLEET_INVALID": grpc.StatusCode.INVALID_ARGUMENT,
    "FLEET_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "GROUP_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "TOO_MANY_ALLOCATIONS": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "LIMIT_REACHED": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "STORAGE_FULL": grpc.StatusCode.RESOURCE_EXHAUSTED,
}
"""The status code of a reason; FAILED_PRECONDITION where none is named."""

Reply = TypeVar("Reply")
Context = grpc.aio.ServicerContext[Any, Any]
if TYPE_CHECKING:
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]


def refusing(refuse: Callable[[object, Context], Awaitable[None]]) -> Handler:
    """A handler that only refuses. It does not read requests, so it can take those of any method, as a stream; nor does
    it answer, so it can be of a method that does so once.
    """
    made: Handler = grpc.stream_stream_rpc_method_handler(refuse)
    return made


async def refuse(context: Context, reply: Any) -> None:
    """End the call with an error when the core refused its command."""
    await accepted(context, reply)


async def accepted(context: Context, reply: Reply | Refused) -> Reply:
    """The reply; when the core refused its command, end the call with an error."""
    if isinstance(reply, Refused):
        code = CODES.get(reply.reason, grpc.StatusCode.FAILED_PRECONDITION)
        await errors.abort(context, code, reply.reason, reply.message, reply.metadata)
    return reply
