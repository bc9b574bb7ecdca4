"""Writes a line of the audit log for each call that has changed something."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import grpc

from windrow_master.identity.audit import AuditLog, what_of
from windrow_master.identity.needs import NEEDS
from windrow_master.identity.principals import caller
from windrow_master.rpc.handlers import like
from windrow_master.rpc.refusals import Context

if TYPE_CHECKING:
    from windrow_master.rpc.refusals import Handler

PRUNE = "/windrow.rpc.v1.JobService/PruneJobs"
"""A line for each job that it deletes."""
DONE, UNKNOWN = "done", "unknown: the call broke off"


class Audited(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in its stubs only
    """Stands next to the services, behind those who refuse: what is refused changes nothing, and is not written."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]], details: grpc.HandlerCallDetails
    ) -> Handler:
        """Return the method's own handler, wrapped so that what it changes is written down."""
        handler = await continuation(details)
        method = str(details.method)
        need = NEEDS.get(method)
        return handler if handler is None or need is None or not need.changes else self._watched(handler, method)

    def _watched(self, handler: Handler, method: str) -> Handler:
        behaviour: Any = handler.stream_stream or handler.stream_unary or handler.unary_stream or handler.unary_unary

        def note(peer: str, request: Any, response: Any, result: str) -> None:
            if getattr(request, "dry_run", False):
                return
            by = caller()
            self._log.note(
                who=by.name,
                role=by.role.name.lower(),
                project=by.project,
                peer=peer,
                call=method.rpartition(".")[2],
                on=what_of(request, response),
                result=result,
            )

        # The peer is asked for first: gRPC crashes where it is asked after the end of the call.
        async def answer(request: Any, context: Context) -> Any:
            peer = context.peer()
            seen = _First(request) if handler.request_streaming else None
            try:
                response = await behaviour(seen or request, context)
            except grpc.aio.AbortError:
                raise
            except BaseException:
                note(peer, seen.first if seen else request, None, UNKNOWN)
                raise
            note(peer, seen.first if seen else request, response, DONE)
            return response

        async def answers(request: Any, context: Context) -> AsyncIterator[Any]:
            peer, each = context.peer(), method == PRUNE
            try:
                async with aclosing(behaviour(request, context)) as responses:
                    async for response in responses:
                        if each and response.deletion.deleted:
                            note(peer, request, response, DONE)
                        yield response
            except grpc.aio.AbortError:
                raise
            except BaseException:
                if not each:
                    note(peer, request, None, UNKNOWN)
                raise
            if not each:
                note(peer, request, None, DONE)

        return like(handler, answers if inspect.isasyncgenfunction(behaviour) else answer)


class _First:
    """A stream of requests whose first one is remembered: it names what the others belong to."""

    def __init__(self, requests: AsyncIterator[Any]) -> None:
        self._requests = aiter(requests)
        self.first: Any = None

    def __aiter__(self) -> _First:
        return self

    async def __anext__(self) -> Any:
        request = await anext(self._requests)
        if self.first is None:
            self.first = request
        return request
