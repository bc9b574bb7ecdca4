"""Checks each call of a served master against what it needs (`windrow_master.identity.needs`)."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
from windrow.rpc import errors

from windrow_master.identity.needs import NEEDS, Need, Who
from windrow_master.identity.principals import EVERYBODY, Principal, digest_of, set_caller
from windrow_master.identity.tokens import Tokens, principal_of
from windrow_master.rpc.agent_service import CREDENTIAL_KEY, CREDENTIAL_REFUSED, SECRET_KEY
from windrow_master.rpc.callers import host_of
from windrow_master.rpc.handlers import like
from windrow_master.rpc.refusal_log import REFUSED
from windrow_master.rpc.refusals import Context, refusing
from windrow_master.store.records import Role, TokenKind

if TYPE_CHECKING:
    from windrow_master.rpc.refusals import Handler

EXPIRY_LOOK_S = 1.0
"""How often a call that lasts looks at the clock, which may be set, while its token has not expired."""
AUTHORIZATION_KEY = "authorization"
BEARER = "Bearer "
_NO_CLIENT_TOKEN = "The call does not carry a client token of this master."
_NO_JOIN_TOKEN = "The agent does not carry a join token of this master."
_CLIENT_TOKEN = (
    "Add the master's context with `windrow context add`, or set WINDROW_TOKEN_FILE to the path of its client token."
)
_JOIN_TOKEN = "Give it the token: windrow agent --join-token-file FILE."


SAID = "a call was refused"


class Refusal(NamedTuple):
    """Why a call is refused. `reason`: a constant of windrow.rpc.errors."""

    reason: str
    message: str
    who: str = ""
    """The name of the token, if it is known."""


_NOBODY = Refusal(errors.ROLE_MISSING, "This master allows nobody to make this call.")


class Authorization(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in its stubs only
    """Rejects calls that are not allowed before reading the request: UNAUTHENTICATED or PERMISSION_DENIED. Notes for
    the others who calls (`caller`), and ends those that last longer than their token.
    """

    def __init__(self, tokens: Tokens, node_of: Callable[[str], str]) -> None:
        """`node_of`: the node that a credential belongs to; empty if it belongs to none."""
        self._tokens = tokens
        self._node_of = node_of
        self._lasting: dict[asyncio.Task[Any], str] = {}
        """Calls that may last, with the digest of their token."""
        tokens.on_end = self._end_calls

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]], details: grpc.HandlerCallDetails
    ) -> Handler:
        """Return the method's own handler, or one that refuses."""
        method = _text(details.method)
        if method not in NEEDS:
            handler = await continuation(details)
            return handler if handler is None else _refusing(method, _NOBODY)
        # Who is refused costs as little as can be: nothing else looks at the call.
        found = self._look_at(method, {_text(key): _text(value) for key, value in details.invocation_metadata or ()})
        if isinstance(found, Refusal):
            return _refusing(method, found)
        handler = await continuation(details)
        return handler if handler is None or found is None else self._known(handler, found, NEEDS[method])

    def _end_calls(self, of_token: str) -> None:
        for task, digest in list(self._lasting.items()):
            if digest == of_token:
                task.cancel()

    def _look_at(self, method: str, metadata: dict[str, str]) -> Principal | Refusal | None:
        """Who calls, or why the call is refused. None: somebody who needs no name."""
        need = NEEDS[method]
        if need.who == Who.ANYBODY:
            return None
        token = metadata.get(AUTHORIZATION_KEY, "")
        token = token[len(BEARER) :] if token.startswith(BEARER) else ""
        if need.who == Who.JOINING:
            return self._joining(token, has_secret=bool(metadata.get(SECRET_KEY)))
        if need.who != Who.CLIENT and (node := self._node_of(metadata.get(CREDENTIAL_KEY, ""))):
            return Principal(node=node)
        if need.who == Who.NODE:
            return Refusal(errors.CREDENTIAL_INVALID, CREDENTIAL_REFUSED)
        return self._client(token, need)

    def _joining(self, token: str, *, has_secret: bool) -> Principal | Refusal | None:
        """An agent brings a join token that is good; or that was, and a secret by which its node may be known."""
        if TokenKind.JOIN not in self._tokens.required:
            return None
        brought = self._tokens.find(TokenKind.JOIN, token)
        if brought.row is not None or (brought.name and has_secret):
            return Principal(brought.name, Role.NONE, digest=digest_of(token))
        why = f"The join token {brought.why}." if brought.why else _NO_JOIN_TOKEN
        return Refusal(errors.JOIN_TOKEN_INVALID, f"{why} {_JOIN_TOKEN}", brought.name)

    def _client(self, token: str, need: Need) -> Principal | Refusal:
        if TokenKind.CLIENT not in self._tokens.required:
            return EVERYBODY
        brought = self._tokens.find(TokenKind.CLIENT, token)
        if brought.row is None:
            why = f"The token {brought.why}." if brought.why else _NO_CLIENT_TOKEN
            return Refusal(errors.CLIENT_TOKEN_INVALID, f"{why} {_CLIENT_TOKEN}", brought.name)
        principal = principal_of(brought.row)
        role = need.role.name.lower()
        has = f"the token {principal.name!r} has the role {principal.role.name.lower()}"
        if principal.role < need.role:
            return Refusal(
                errors.ROLE_MISSING,
                f"This needs the role {role}; {has}. Ask an admin of this master for a token that may: "
                f"windrow token create NAME --role {role}",
                principal.name,
            )
        if need.all_projects and principal.project:
            return Refusal(
                errors.PROJECT_MISSING,
                f"This needs the role {role} for all projects; {has} for the project {principal.project} only. Ask an "
                f"admin of this master for a token that may: windrow token create NAME --role {role}",
                principal.name,
            )
        return principal

    def _known(self, handler: Handler, principal: Principal, need: Need) -> Handler:
        """The handler, for this caller."""
        behaviour: Any = handler.stream_stream or handler.stream_unary or handler.unary_stream or handler.unary_unary

        async def answer(request: Any, context: Context) -> Any:
            set_caller(principal)
            if not need.lasts:
                return await behaviour(request, context)
            with self._noted(principal):
                try:
                    return await behaviour(request, context)
                except asyncio.CancelledError:
                    await self._abort_if_ended(principal, context)
                    raise

        async def answers(request: Any, context: Context) -> AsyncIterator[Any]:
            set_caller(principal)
            with self._noted(principal):
                try:
                    async with aclosing(behaviour(request, context)) as responses:
                        async for response in responses:
                            yield response
                except asyncio.CancelledError:
                    await self._abort_if_ended(principal, context)
                    raise

        return like(handler, answers if inspect.isasyncgenfunction(behaviour) else answer)

    def _noted(self, principal: Principal) -> _Noted:
        return _Noted(self._lasting, principal, self._tokens.good_for_s)

    async def _abort_if_ended(self, principal: Principal, context: Context) -> None:
        """Tell the caller that its token has ended meanwhile."""
        if principal.digest and not self._tokens.is_good(principal.digest):
            message = f"The token {principal.name!r} was revoked, or has expired. {_CLIENT_TOKEN}"
            await errors.abort(context, grpc.StatusCode.UNAUTHENTICATED, errors.CLIENT_TOKEN_INVALID, message)


class _Noted:
    """Notes the current task while it serves a call that may last, and ends it with its token.

    `good_for_s`: how long a token is good by the clock now, which may be set meanwhile.
    """

    def __init__(
        self,
        lasting: dict[asyncio.Task[Any], str],
        principal: Principal,
        good_for_s: Callable[[str], float | None],
    ) -> None:
        self._lasting, self._digest, self._good_for_s = lasting, principal.digest, good_for_s
        self._task = asyncio.current_task()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        if self._task is not None and self._digest:
            self._lasting[self._task] = self._digest
            self._look()

    def _look(self) -> None:
        left_s = self._good_for_s(self._digest)
        if left_s is None or self._task is None:
            return
        if left_s > 0.0:
            self._timer = asyncio.get_running_loop().call_later(min(left_s, EXPIRY_LOOK_S), self._look)
        else:
            self._task.cancel()

    def __exit__(self, *how: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._lasting.pop(self._task, None)


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


@lru_cache(maxsize=1024)
def _refusing(method: str, refusal: Refusal) -> Handler:
    reason = refusal.reason
    forbidden = reason in (errors.ROLE_MISSING, errors.PROJECT_MISSING)
    code = grpc.StatusCode.PERMISSION_DENIED if forbidden else grpc.StatusCode.UNAUTHENTICATED
    # An agent without its credential is an everyday thing: its master was restarted.
    level = logging.INFO if reason == errors.CREDENTIAL_INVALID else logging.WARNING
    who = {"token": refusal.who} if refusal.who else {}

    async def refuse(requests: object, context: Context) -> None:
        peer = context.peer()
        REFUSED.say((method, reason, host_of(peer)), level, SAID, method=method, reason=reason, peer=peer, **who)
        await errors.abort(context, code, reason, refusal.message)

    return refusing(refuse)
