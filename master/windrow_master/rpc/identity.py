"""What a served master has to know its callers: its tokens, those who check each call, and the service that changes
tokens.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
from windrow.common.journal import Condition, say
from windrow.rpc.v1 import token_service_pb2_grpc

from windrow_master.config import MasterConfig
from windrow_master.files.state_files import StateFiles
from windrow_master.identity.audit import AuditLog
from windrow_master.identity.principals import caller
from windrow_master.identity.tokens import Tokens
from windrow_master.rpc.audited import DONE, Audited
from windrow_master.rpc.authorization import Authorization
from windrow_master.rpc.refusal_log import RefusalLog
from windrow_master.rpc.refusals import Context
from windrow_master.rpc.stream_limits import StreamLimits
from windrow_master.rpc.token_service import TokenService
from windrow_master.store.errors import StorePostponed
from windrow_master.store.protocol import Store
from windrow_master.store.records import TokenKind
from windrow_master.threads import in_thread

FILES_READ_S = 1.0
"""How often the token files are looked at."""
USES_STORED_S = 30.0
"""How often the last use of tokens is stored."""


class Identity:
    """The tokens of a served master. Not an agent's `Identity`, nor Azure ML's."""

    def __init__(self, config: MasterConfig, tokens: Tokens, node_of: Callable[[str], str]) -> None:
        self.tokens = tokens
        self._authorization = Authorization(tokens, node_of)
        self._refusal_log = RefusalLog(config.limits.message_parts)
        self._stream_limits = StreamLimits(config.limits)
        self._files = [
            _TokenFile(tokens, TokenKind.CLIENT, config.client_token_file, config.client_token),
            _TokenFile(tokens, TokenKind.JOIN, config.join_token_file, config.join_token),
        ]
        self._audit = AuditLog(StateFiles(config.state).audit)
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def open(cls, config: MasterConfig, store: Store | None, node_of: Callable[[str], str]) -> Identity:
        """`store`: None if there is none that could be used. `node_of`: the node that a credential belongs to.

        Raises OSError if a token file cannot be used, StateError.
        """
        tokens = Tokens() if store is None else Tokens(store.reader().tokens(), store.record_token)
        identity = cls(config, tokens, node_of)
        for file in identity._files:
            await file.read()
        return identity

    @property
    def guards(self) -> list[grpc.aio.ServerInterceptor[Any, Any]]:
        """Those who look at each call, in their order, before those that stand next to the services."""
        return [self._authorization, self._refusal_log, self._stream_limits]

    @property
    def recorder(self) -> grpc.aio.ServerInterceptor[Any, Any]:
        """Who writes down what was changed: the last one before the services."""
        return Audited(self._audit)

    def note_taken(self, context: Context, fleet: str, program: str, before: str) -> None:
        """Write down that a fleet is run by another program than before."""
        by = caller()
        self._audit.note(
            who=by.name,
            role=by.role.name.lower(),
            project=by.project,
            peer=context.peer(),
            call="FleetService/SyncFleet",
            on={"name": fleet, "program": program, "before": before},
            result=DONE,
        )

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve the calls about tokens."""
        token_service_pb2_grpc.add_TokenServiceServicer_to_server(TokenService(self.tokens), server)

    def start(self) -> None:
        """Look after tokens and their files from now on."""
        self._tasks = [asyncio.create_task(work()) for work in (self._follow_files, self._store_uses)]

    async def close(self) -> None:
        """Store what is not stored yet."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(Exception):
            await self.tokens.store_uses()
        await self._audit.close()

    async def _follow_files(self) -> None:
        while True:
            await asyncio.sleep(FILES_READ_S)
            for file in self._files:
                await file.follow()

    async def _store_uses(self) -> None:
        while True:
            await asyncio.sleep(USES_STORED_S)
            await self.tokens.store_uses()


class _TokenFile:
    """A file with a token, which counts from the moment at which the file holds it."""

    def __init__(self, tokens: Tokens, kind: TokenKind, file: Path | None, content: Callable[[], str]) -> None:
        """`content`: reads the token; raises OSError if that is none."""
        self._tokens, self._kind, self._file, self._content = tokens, kind, file, content
        self._version: tuple[int, int, int] | None = None
        self._unusable = Condition(
            logging.ERROR, "a token file cannot be used; its previous token stays good", "the token file is used again"
        )

    async def read(self) -> None:
        """Raises OSError, StateError."""
        if self._file is None:
            return
        self._version = self._stat()
        token = await in_thread(self._content)
        why = await self._tokens.read_file(self._kind, token)
        if why:
            say(
                logging.WARNING,
                "the token in a file is not good, and nobody can use it; `windrow setup --new-tokens` makes another",
                file=str(self._file),
                why=why,
            )

    async def follow(self) -> None:
        """Read the file if it has changed."""
        if self._file is None:
            return
        try:
            if self._version == self._stat():
                return
            await self.read()
            say(logging.INFO, "a token file was read again", file=str(self._file))
            self._unusable.is_over(file=str(self._file))
        except (OSError, StorePostponed) as error:
            self._version = None
            self._unusable.goes_on(file=str(self._file), reason=str(error))

    def _stat(self) -> tuple[int, int, int]:
        assert self._file is not None
        status = os.stat(self._file)  # noqa: PTH116  # once a second
        return status.st_ino, status.st_mtime_ns, status.st_size
