"""TokenService: the tokens of clients, and of nodes that join."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import grpc
from windrow.rpc import errors
from windrow.rpc.v1 import token_service_pb2 as pb
from windrow.rpc.v1 import token_service_pb2_grpc

from windrow_master.identity.principals import TokenRefused
from windrow_master.identity.tokens import Tokens
from windrow_master.rpc.names import NAME, not_a_project
from windrow_master.rpc.refusals import CODES, Context
from windrow_master.rpc.views import timestamp
from windrow_master.store.errors import StorePostponed
from windrow_master.store.records import Role, TokenKind, TokenRow

DIGEST_BYTES = 32
LIFETIME_MAX_S = 100 * 366 * 86400.0
T = TypeVar("T")


class TokenService(token_service_pb2_grpc.TokenServiceServicer):
    """Turns messages into tokens, and tokens into messages."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def CreateToken(self, request: pb.CreateTokenRequest, context: Context) -> pb.CreateTokenResponse:
        """Add a token; answered when it is durable."""
        why = _why_invalid(request)
        if why:
            await errors.abort(context, grpc.StatusCode.INVALID_ARGUMENT, errors.TOKEN_INVALID, why)
        kind = TokenKind(request.kind)
        if kind not in self._tokens.required:
            option = "--client-token-file" if kind == TokenKind.CLIENT else "--join-token-file"
            await errors.abort(
                context,
                grpc.StatusCode.FAILED_PRECONDITION,
                errors.TOKENS_OFF,
                f"This master asks {'clients' if kind == TokenKind.CLIENT else 'nodes'} for no token, so another would "
                f"be of no use. It asks for one if it is started with {option} FILE: `windrow setup` makes the file.",
            )
        now = self._tokens.now()
        lifetime_s = request.lifetime.seconds + request.lifetime.nanos / 1e9
        row = TokenRow(
            request.digest.hex(),
            request.name,
            kind,
            Role(request.role),
            request.project,
            now,
            now + lifetime_s if request.HasField("lifetime") else None,
            request.uses or None,
        )
        return pb.CreateTokenResponse(token=_message(await _carried_out(context, self._tokens.create(row))))

    async def ListTokens(self, request: pb.ListTokensRequest, context: Context) -> pb.ListTokensResponse:
        """All tokens that were not revoked."""
        return pb.ListTokensResponse(tokens=map(_message, self._tokens.all()))

    async def RevokeToken(self, request: pb.RevokeTokenRequest, context: Context) -> pb.RevokeTokenResponse:
        """End a token; answered when that is durable."""
        await _carried_out(context, self._tokens.revoke(request.name))
        return pb.RevokeTokenResponse()


def _why_invalid(request: pb.CreateTokenRequest) -> str:
    """Why a token cannot be made; empty if it can."""
    if not NAME.fullmatch(request.name):
        return f"{request.name[:80]!r} is not a valid token name: use at most 64 letters, digits, '_', '.' and '-'."
    if len(request.digest) != DIGEST_BYTES:
        return f"The digest of a token has {DIGEST_BYTES} bytes (sha256); this one has {len(request.digest)}."
    if request.project and not NAME.fullmatch(request.project):
        return not_a_project(request.project)
    if request.HasField("lifetime") and not 0 < request.lifetime.seconds <= LIFETIME_MAX_S:
        return "A token is good for at least a second, and at most a hundred years."
    if request.kind == pb.TOKEN_KIND_JOIN:
        if request.role or request.project:
            return "A join token admits nodes, and nothing else: it has neither a role nor a project."
    elif request.kind != pb.TOKEN_KIND_CLIENT:
        return "A token is of a client, or a join token. Say which."
    elif request.role not in {role.value for role in Role if role}:
        return f"A client token has a role, one of: {', '.join(role.name.lower() for role in Role if role)}."
    elif request.uses:
        return "Only join tokens have a number of uses."
    elif request.role == pb.TOKEN_ROLE_ADMIN and request.project:
        return "The role admin is for all projects: leave out the project, or choose another role."
    return ""


def _message(row: TokenRow) -> pb.Token:
    return pb.Token(
        name=row.name,
        kind=row.kind,  # type: ignore[arg-type]
        role=row.role,  # type: ignore[arg-type]
        project=row.project,
        create_time=timestamp(row.create_time),
        expire_time=timestamp(row.expire_time),
        uses_left=row.uses_left,
        last_use_time=timestamp(row.last_use),
    )


async def _carried_out(context: Context, work: Coroutine[Any, Any, T]) -> T:
    """Do what was asked for, even if the caller hangs up: what is stored must be known, too."""
    try:
        return await asyncio.shield(asyncio.ensure_future(work))
    except TokenRefused as error:
        code = CODES.get(error.reason, grpc.StatusCode.FAILED_PRECONDITION)
        await errors.abort(context, code, error.reason, str(error))
    except StorePostponed as error:
        await errors.abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, errors.STORAGE_FULL, str(error))
