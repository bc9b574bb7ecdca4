"""The master that an `MLClient` talks to: a served one, or a private one over a state folder."""

from __future__ import annotations

import os
import shlex
import weakref
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from windrow.embedded import state_folder

if TYPE_CHECKING:
    from windrow.embedded.session import Session
    from windrow.sdk.client import Client


class MasterConnection:
    """Opened at the first question, so that making a client costs nothing; closed with its owner."""

    def __init__(
        self,
        *,
        master: str | None,
        state: str | os.PathLike[str],
        python: str | None,
        slots: int | None,
        datastores: Mapping[str, str | os.PathLike[str]],
        environments: str | None = None,
    ) -> None:
        """As `MLClient`."""
        self._master = master
        self.state = os.path.abspath(state)
        self._python = python
        self._slots = slots
        self._given: Sequence[str] = [f"{name}={os.fspath(place)}" for name, place in datastores.items()]
        self._more: dict[str, Any] = {} if environments is None else {"environments": environments}
        self._client: Client | None = None
        self._session: Session | None = None
        self._closer: weakref.finalize[..., MasterConnection] | None = None

    @property
    def is_embedded(self) -> bool:
        """Jobs run on this machine, by processes that live as long as this connection."""
        self.client()
        return self._session is not None

    @property
    def would_be_embedded(self) -> bool:
        """No master is named: jobs run on this machine. Nothing is opened."""
        from windrow.rpc.contexts import find_access

        return find_access(self._master, os.environ) is None

    def known_datastores(self) -> Collection[str]:
        """Names of those that a job may name, where it would run on this machine; of a served master's nothing has to
        be known. Nothing is opened."""
        if self._session is not None:
            return self._session.datastores
        if not self.would_be_embedded:
            return ()
        from windrow.embedded.datastores import known, read

        return known(self.state, read(self._given))

    def place_options(self) -> str:
        """The options by which the command `windrow` finds this master from the working folder, beginning with a
        blank. Nothing is opened."""
        if not self.would_be_embedded:
            named = self._master and self._master != os.environ.get("WINDROW_MASTER")
            return f" --master {shlex.quote(str(self._master))}" if named else ""
        found = os.path.abspath(os.environ.get("WINDROW_STATE") or state_folder.DEFAULT)
        return "" if found == self.state else f" --state {shlex.quote(self.state)}"

    @property
    def session(self) -> Session | None:
        """The open state folder of an embedded one."""
        return self._session

    def client(self) -> Client:
        """The client, opened if it is not. Raises WindrowError."""
        if self._session is not None and self._session.failure() is not None:
            # Whoever had started the private master has ended, or it does not stay alive: once more, by ourselves.
            self.close()
        if self._client is None:
            self._open()
        assert self._client is not None
        return self._client

    def close(self) -> None:
        """End the private master and agent, if there are any; unfinished jobs go on when the state is opened again."""
        if self._closer is not None:
            self._closer()
        self._client = self._session = self._closer = None

    def _open(self) -> None:
        from windrow.rpc.contexts import find_access
        from windrow.sdk.client import Client

        access = find_access(self._master, os.environ)
        if access is not None:
            self._client = Client(access=access)
            self._closer = weakref.finalize(self, self._client.close)
            return
        from windrow.embedded.session import open_session
        from windrow.sdk.private_master import connect

        session = open_session(
            self.state,
            with_agent=True,
            python=self._python,
            slots=self._slots,
            datastores=self._given,
            **self._more,
        )
        try:
            self._client = connect(session)
        except BaseException:
            session.close(now=True)
            raise
        self._session = session
        # Also when the interpreter ends: processes are not left behind, and what runs is finished first.
        self._closer = weakref.finalize(self, _end, self._client, session)


def _end(client: Client, session: Session) -> None:
    try:
        client.close()
    finally:
        session.close()
