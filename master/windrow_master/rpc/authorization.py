"""Who may call what on a served master.

| who | sends | may call |
| --- | --- | --- |
| client | `authorization: Bearer <client token>` | everything but AgentService |
| agent | `authorization: Bearer <join token>` | AgentService.Register |
| node | the credential that Register gave it | the rest of AgentService; GetArtifact, DownloadArtifact |
| anybody | nothing | Health; and whatever a token guards that this master was started without |

gRPC itself refuses methods that do not exist.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc
from windrow.common.journal import Repeated
from windrow.rpc import errors

from windrow_master.rpc.agent_service import CREDENTIAL_KEY, CREDENTIAL_REFUSED
from windrow_master.rpc.refusal_log import host_of
from windrow_master.rpc.refusals import Context

if TYPE_CHECKING:
    from windrow_master.rpc.refusals import Handler

AUTHORIZATION_KEY = "authorization"
_repeated = Repeated()
_HEALTH = "/grpc.health.v1.Health/"
_AGENTS = "/windrow.rpc.v1.AgentService/"
_REGISTER = _AGENTS + "Register"
_OF_NODES_TOO = (
    "/windrow.rpc.v1.ArtifactService/GetArtifact",
    "/windrow.rpc.v1.ArtifactService/DownloadArtifact",
)
_MESSAGES = {
    errors.CLIENT_TOKEN_INVALID: "The call does not carry a client token of this master. Add the master's "
    "context with `windrow context add`, or set WINDROW_TOKEN_FILE to the path of "
    "its client token.",
    errors.JOIN_TOKEN_INVALID: "The agent does not carry the join token of this master. Give it the token: "
    "windrow agent --join-token-file FILE.",
    errors.CREDENTIAL_INVALID: CREDENTIAL_REFUSED,
}


class Authorization(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in its stubs only
    """Rejects calls without a valid token before reading the request: UNAUTHENTICATED, a reason from _MESSAGES."""

    def __init__(self, join_token: str, client_token: str, is_credential: Callable[[str], bool]) -> None:
        """An empty token is not required. `is_credential`: whether a text is the credential of a node of this
        master.
        """
        self._join_token = join_token
        self._client_token = client_token
        self._is_credential = is_credential

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]], details: grpc.HandlerCallDetails
    ) -> Handler:
        """Return the method's own handler, or one that refuses."""
        handler = await continuation(details)
        method = _text(details.method)
        if handler is None:
            return handler
        reason = self._why_not(method, {_text(key): _text(value) for key, value in details.invocation_metadata or ()})
        return _refusing(handler, method, reason) if reason else handler

    def _why_not(self, method: str, metadata: dict[str, str]) -> str:
        """The reason why a call is refused; empty if it is not."""
        if method.startswith(_HEALTH):
            return ""
        brought = metadata.get(AUTHORIZATION_KEY, "")
        if method == _REGISTER:
            return "" if _is_token(brought, self._join_token) else errors.JOIN_TOKEN_INVALID
        of_node = method.startswith(_AGENTS)
        if (of_node or method in _OF_NODES_TOO) and self._is_credential(metadata.get(CREDENTIAL_KEY, "")):
            return ""
        if of_node:
            return errors.CREDENTIAL_INVALID
        return "" if _is_token(brought, self._client_token) else errors.CLIENT_TOKEN_INVALID


def _is_token(brought: str, token: str) -> bool:
    """Whether a call carries this token. Always true if the token is empty: then none is required."""
    return not token or secrets.compare_digest(brought.encode(), f"Bearer {token}".encode())


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _refusing(handler: Handler, method: str, reason: str) -> Handler:
    """A handler that only refuses. It does not read requests, so it can take those of any method as a stream."""

    async def refuse(requests: object, context: Context) -> Any:
        # An agent without its credential is an everyday thing: its master was restarted.
        level = logging.INFO if reason == errors.CREDENTIAL_INVALID else logging.WARNING
        kind = (method, reason, host_of(context.peer()))
        _repeated.say(kind, level, "a call was refused", method=method, reason=reason, peer=context.peer())
        await errors.abort(context, grpc.StatusCode.UNAUTHENTICATED, reason, _MESSAGES[reason])

    async def refuse_stream(requests: object, context: Context) -> AsyncIterator[Any]:
        await refuse(requests, context)
        yield

    made: Handler
    if handler.response_streaming:
        made = grpc.stream_stream_rpc_method_handler(refuse_stream)
    else:
        made = grpc.stream_unary_rpc_method_handler(refuse)
    return made
