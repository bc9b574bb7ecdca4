"""Tokens by which a master knows its clients, and admits nodes."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.errors import UsageError
from windrow.sdk.job import moment_of

if TYPE_CHECKING:
    from windrow.rpc.connection import Connection
    from windrow.rpc.v1 import token_service_pb2 as pb

ROLES = ("", "view", "submit", "operate", "admin")
"""By the numbers of windrow.rpc.v1.TokenRole. Each role may do what those before it may."""
KINDS = ("", "client", "join")
"""By the numbers of windrow.rpc.v1.TokenKind."""
SECRET_BYTES = 32


class Token(NamedTuple):
    """A token that a master knows, without its secret. `kind`: `client`, or `join` for one that admits nodes.

    Example:
        with windrow.Client("gpu1") as client:
            print([token.name for token in client.tokens.list() if token.last_use_time is None])
    """

    name: str
    kind: str
    role: str = ""
    project: str = ""
    """The only project whose jobs it sees and changes; empty: all projects."""
    create_time: datetime | None = None
    expire_time: datetime | None = None
    """Until when it is good; None: until it is revoked."""
    uses_left: int | None = None
    """How many more nodes a join token admits; None: any number."""
    last_use_time: datetime | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, with times in ISO 8601."""
        return {
            name: value.isoformat() if isinstance(value, datetime) else value for name, value in self._asdict().items()
        }


class Tokens:
    """The tokens of one master. All calls need a token with the role admin."""

    def __init__(self, connection: Connection) -> None:
        from windrow.rpc.v1 import token_service_pb2_grpc

        self._connection = connection
        self._stub: Any = token_service_pb2_grpc.TokenServiceStub(connection.channel)

    def create(self, name: str, role: str, *, project: str = "", expires: timedelta | None = None) -> tuple[Token, str]:
        """Make a token for clients, good at once. Return it with its secret, which nobody can show again.

        `role`: view, submit, operate or admin. Raises UsageError, RequestRefused.
        """
        if role not in ROLES[1:]:
            raise UsageError(f"{role!r} is not a role. Choose one of: {', '.join(ROLES[1:])}.")
        return self._create(name, "client", expires, role=ROLES.index(role), project=project)

    def create_join(self, name: str, *, expires: timedelta | None = None, uses: int | None = None) -> tuple[Token, str]:
        """Make a token that admits nodes: `uses` of them, or any number. Raises RequestRefused."""
        return self._create(name, "join", expires, uses=uses or 0)

    def _create(self, name: str, kind: str, expires: timedelta | None, **more: Any) -> tuple[Token, str]:
        from windrow.rpc.v1 import token_service_pb2 as pb

        secret = secrets.token_hex(SECRET_BYTES)
        digest = hashlib.sha256(secret.encode()).digest()
        request = pb.CreateTokenRequest(
            name=name,
            kind=KINDS.index(kind),  # type: ignore[arg-type]
            digest=digest,
            **more,
        )
        if expires is not None:
            request.lifetime.FromTimedelta(expires)
        return _token(self._connection.call(self._stub.CreateToken, request).token), secret

    def list(self) -> Iterator[Token]:
        """Those that were not revoked, oldest first."""
        from windrow.rpc.v1 import token_service_pb2 as pb

        yield from map(_token, self._connection.call(self._stub.ListTokens, pb.ListTokensRequest()).tokens)

    def revoke(self, name: str) -> None:
        """End a token, and the calls that are made with it. Raises NotFound, RequestRefused (TOKEN_NEEDED)."""
        from windrow.rpc.v1 import token_service_pb2 as pb

        self._connection.call(self._stub.RevokeToken, pb.RevokeTokenRequest(name=name))


def _token(message: pb.Token) -> Token:
    return Token(
        name=message.name,
        kind=KINDS[message.kind] if message.kind < len(KINDS) else "",
        role=ROLES[message.role] if message.role < len(ROLES) else "",
        project=message.project,
        create_time=moment_of(message, "create_time"),
        expire_time=moment_of(message, "expire_time"),
        uses_left=message.uses_left if message.HasField("uses_left") else None,
        last_use_time=moment_of(message, "last_use_time"),
    )
