"""The tokens of a master: by which it knows clients, and admits nodes.

A token is 32 random bytes as hexadecimal text, or whatever stands in a file of an earlier cluster. Its sha256 is kept,
and nothing else of it. A change counts once it is durable, and from the next call on.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple

from windrow_master.identity.principals import Principal, TokenRefused, digest_of
from windrow_master.store.errors import StorePostponed
from windrow_master.store.records import Role, TokenKind, TokenRow
from windrow_master.threads import in_thread

FILE_NAMES: Final = {TokenKind.CLIENT: "setup", TokenKind.JOIN: "setup-join"}
"""The names of the tokens that files hold: those of `windrow setup`."""


class Brought(NamedTuple):
    """What a call brought. `row`: the token, if it is good; else `why` not, in words that follow "The token", and its
    name, if it has one."""

    row: TokenRow | None
    why: str = ""
    name: str = ""


UNKNOWN: Final = Brought(None)


def principal_of(row: TokenRow) -> Principal:
    """Who brings a client token."""
    return Principal(row.name, Role(row.role), row.project, row.digest)


class Tokens:
    """All tokens of a master, for one event loop. Not those of the lines of a grammar."""

    def __init__(
        self,
        rows: Iterable[TokenRow] = (),
        record: Callable[[TokenRow], object] = lambda row: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`rows`: those that the store has. `record`: stores one, durably (`Store.record_token`)."""
        self._rows = {row.digest: row for row in rows}
        self._record = record
        self.now = now
        self._turn = asyncio.Lock()
        self._used: dict[str, float] = {}
        """When tokens were brought last, by digest, as far as that is not stored."""
        self.required: set[TokenKind] = set()
        """The kinds that this master asks for."""
        self.on_end: Callable[[str], None] = lambda digest: None
        """Called with the digest of a token that was revoked."""

    def find(self, kind: TokenKind, token: str) -> Brought:
        """The token that a call brought."""
        digest = digest_of(token)
        row = self._rows.get(digest)
        if row is None or row.kind != kind or not secrets.compare_digest(row.digest, digest):
            return UNKNOWN
        if why := self._why_bad(row):
            return Brought(None, f"{row.name!r} {why}", row.name)
        self._used[digest] = self.now()
        return Brought(row, name=row.name)

    def is_good(self, digest: str) -> bool:
        """Whether a token is good now."""
        row = self._rows.get(digest)
        return row is not None and not self._why_bad(row)

    def good_for_s(self, digest: str) -> float | None:
        """Seconds until a token expires; None: it does not."""
        row = self._rows.get(digest)
        return None if row is None or row.expire_time is None else max(0.0, row.expire_time - self.now())

    def all(self) -> list[TokenRow]:
        """Those that were not revoked, oldest first, with their last use."""
        rows = sorted(self._rows.values(), key=lambda row: (row.create_time, row.name))
        return [self._with_use(row) for row in rows if row.revoke_time is None]

    def _why_bad(self, row: TokenRow) -> str:
        if row.revoke_time is not None:
            return "was revoked"
        if row.expire_time is not None and row.expire_time <= self.now():
            return "has expired"
        return ""

    def _with_use(self, row: TokenRow) -> TokenRow:
        return row._replace(last_use=self._used.get(row.digest, row.last_use))

    def _named(self, name: str) -> TokenRow | None:
        return next((row for row in self._rows.values() if row.name == name and row.revoke_time is None), None)

    async def _keep(self, row: TokenRow) -> None:
        await in_thread(self._record, row)
        self._rows[row.digest] = row

    async def read_file(self, kind: TokenKind, token: str) -> str:
        """Take up the token of a file: that of an admin, or one that admits nodes. It replaces the one that was in the
        file before. Return what is wrong with it, in words that follow "the token"; empty if it is good.

        Raises StorePostponed.
        """
        self.required.add(kind)
        digest = digest_of(token)
        async with self._turn:
            known = self._rows.get(digest)
            if known is not None:
                return self._why_bad(known) if known.kind == kind else "is one of another kind"
            before = self._named(FILE_NAMES[kind])
            role = Role.ADMIN if kind == TokenKind.CLIENT else Role.NONE
            await self._keep(TokenRow(digest, FILE_NAMES[kind], kind, role, "", self.now()))
            if before is not None:
                await self._end(before)
        return ""

    async def create(self, row: TokenRow) -> TokenRow:
        """Add a token. Raises TokenRefused, StorePostponed."""
        async with self._turn:
            known = self._rows.get(row.digest)
            if known is not None and known.name == row.name and not self._why_bad(known):
                return known  # the same request again
            if known is not None:
                raise TokenRefused("TOKEN_INVALID", "This token was used before. Make another.")
            named = self._named(row.name)
            if named is not None and not self._why_bad(named):
                raise TokenRefused(
                    "TOKEN_EXISTS",
                    f"There is a token named {row.name!r} already. Choose another name, or revoke it first: "
                    f"windrow token revoke {row.name}",
                )
            if named is not None:
                await self._end(named)
            await self._keep(row)
            return row

    async def revoke(self, name: str) -> None:
        """End a token. Raises TokenRefused, StorePostponed."""
        async with self._turn:
            row = self._named(name)
            if row is None:
                raise TokenRefused(
                    "TOKEN_UNKNOWN", f"There is no token named {name!r}. `windrow token list` lists the tokens."
                )
            admins = [one for one in self._rows.values() if one.role == Role.ADMIN and not self._why_bad(one)]
            if admins == [row]:
                raise TokenRefused(
                    "TOKEN_NEEDED",
                    f"{name!r} is the only token of an admin: without it, nobody could make another. Make one first: "
                    "windrow token create NAME --role admin",
                )
            await self._end(row)

    async def admit(self, digest: str, admission: Callable[[], Awaitable[None]]) -> None:
        """Let a join token admit a node by `admission`, which counts as a use if it succeeds.

        Raises TokenRefused, StorePostponed, and what `admission` raises.
        """
        if self._rows[digest].uses_left is None:
            self._refuse_bad(self._rows[digest])
            await admission()
            return
        async with self._turn:
            row = self._rows[digest]
            self._refuse_bad(row)
            await self._keep(row._replace(uses_left=(row.uses_left or 0) - 1))
            try:
                await admission()
            except BaseException:
                await self._keep(row)
                raise

    def _refuse_bad(self, row: TokenRow) -> None:
        why = self._why_bad(row) or ("is used up" if row.uses_left == 0 else "")
        if why:
            raise TokenRefused(
                "JOIN_TOKEN_INVALID",
                f"The join token {row.name!r} {why}, and this node is not known by its secret. Give its agent a good "
                "one: windrow agent --join-token-file FILE. An admin makes one: windrow token create NAME --join",
            )

    async def _end(self, row: TokenRow) -> None:
        await self._keep(self._with_use(row)._replace(revoke_time=self.now()))
        self.on_end(row.digest)

    async def store_uses(self) -> None:
        """Store when tokens were brought last. A full disk only delays that."""
        async with self._turn:
            for digest, used in list(self._used.items()):
                row = self._rows[digest]
                if row.last_use is None or row.last_use < used:
                    try:
                        await self._keep(row._replace(last_use=used))
                    except StorePostponed:
                        return
