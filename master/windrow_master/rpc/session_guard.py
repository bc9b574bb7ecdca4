"""Lets only processes that bring its key (`windrow.rpc.session_key`) use a private master: no confined script can read
that key.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import grpc
from windrow.rpc import errors

from windrow_master.rpc.refusals import Context, refusing

if TYPE_CHECKING:
    from windrow_master.rpc.refusals import Handler

_MESSAGE = (
    "The call does not carry the key of this master, which is in a file beside its socket. Scripts in a sandbox cannot "
    "read it: the master of a run is not for its scripts. Outside a sandbox, use a client of this version of Windrow, "
    "as the user who started the run."
)


class SessionGuard(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in its stubs only
    """Refuses calls without the key before their request is read: UNAUTHENTICATED; and logs them."""

    def __init__(self, key: str) -> None:
        self._header = f"Bearer {key}".encode()

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]], details: grpc.HandlerCallDetails
    ) -> Handler:
        """Return the method's own handler, or one that refuses."""
        handler = await continuation(details)
        if handler is None or any(self._is_key(*one) for one in details.invocation_metadata or ()):
            return handler
        return _refusing(str(details.method))

    def _is_key(self, name: str | bytes, value: str | bytes) -> bool:
        if name not in ("authorization", b"authorization"):
            return False
        return hmac.compare_digest(value.encode() if isinstance(value, str) else value, self._header)


def _refusing(method: str) -> Handler:
    async def refuse(requests: object, context: Context) -> None:
        # Not at the top: no run that goes well needs them.
        import logging

        from windrow_master.rpc.refusal_log import REFUSED

        reason = errors.CLIENT_TOKEN_INVALID
        REFUSED.say((method, reason), logging.WARNING, "a call was refused", method=method, reason=reason)
        await errors.abort(context, grpc.StatusCode.UNAUTHENTICATED, reason, _MESSAGE)

    return refusing(refuse)
