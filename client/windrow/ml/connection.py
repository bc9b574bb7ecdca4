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
    from windrow.spec.naming.assets import AssetLookup


class MasterConnection:
    """A connection that is opened at the first call, so that making a client costs nothing, and closed with its
    owner.
    """

    def __init__(
        self,
        *,
        master: str | None,
        state: str | os.PathLike[str] | None,
        python: str | None,
        slots: int | None,
        datastores: Mapping[str, str | os.PathLike[str]],
        environments: str | None = None,
    ) -> None:
        """The arguments are those of `MLClient`."""
        self._master = master
        self.state = os.path.abspath(state_folder.default() if state is None else state)
        self._python = python
        self._slots = slots
        self._given: Sequence[str] = [f"{name}={os.fspath(place)}" for name, place in datastores.items()]
        self._more: dict[str, Any] = {} if environments is None else {"environments": environments}
        self._client: Client | None = None
        self._session: Session | None = None
        self._closer: weakref.finalize[..., MasterConnection] | None = None

    @property
    def is_embedded(self) -> bool:
        """Whether jobs run on this machine, in processes that live as long as this connection."""
        self.client()
        return self._session is not None

    @property
    def would_be_embedded(self) -> bool:
        """Whether jobs would run on this machine, because no master is named. Opens nothing."""
        from windrow.rpc.contexts import find_access

        return find_access(self._master, os.environ) is None

    @property
    def has_state(self) -> bool:
        """Whether the master may know anything: a private one does not without a state folder. Opens nothing."""
        return self._client is not None or not self.would_be_embedded or os.path.isdir(self.state)

    def known_datastores(self) -> Collection[str]:
        """The datastores that a job may name if it would run on this machine; a served master checks its own. Opens
        nothing.
        """
        if self._session is not None:
            return self._session.datastores
        if not self.would_be_embedded:
            return ()
        from windrow.embedded.datastores import known, read

        return known(self.state, read(self._given))

    def place_options(self) -> str:
        """The options with which the `windrow` command finds this master from the working folder, after a space. Opens
        nothing.
        """
        if not self.would_be_embedded:
            named = self._master and self._master != os.environ.get("WINDROW_MASTER")
            return f" --master {shlex.quote(str(self._master))}" if named else ""
        found = os.path.abspath(state_folder.default())
        return "" if found == self.state else f" --state {shlex.quote(self.state)}"

    @property
    def session(self) -> Session | None:
        """The open state folder of an embedded master, if there is one."""
        return self._session

    def client(self) -> Client:
        """Return the client; opens it first if necessary. Raises WindrowError."""
        if self._session is not None and self._session.failure() is not None:
            # The process that started the private master has ended, or the master died: start one of our own.
            self.close()
        if self._client is None:
            self._open()
        assert self._client is not None
        return self._client

    def asset_lookup(self) -> AssetLookup:
        """What `windrow.spec.load_job` takes as `assets`. Opens nothing if nothing can be registered."""
        from windrow.spec.naming.assets import NO_ASSETS

        return self.client().asset_lookup(self.packages_state) if self.has_state else NO_ASSETS

    def pools(self) -> set[str]:
        """What `windrow.spec.load_job` takes as `pools`. Opens no private master, which has none."""
        return set() if self.would_be_embedded else self.client().pools()

    @property
    def packages_state(self) -> str | None:
        """The state folder below which packages of the master are unpacked; None for a served master."""
        return self.state if self.would_be_embedded else None

    def close(self) -> None:
        """End the private master and agent, if there are any. Unfinished jobs continue when the state folder is
        opened again.
        """
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
        from windrow.sdk.session_client import connect

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
        # Also at the end of the interpreter: no processes are left behind, and running mini-batches finish first.
        self._closer = weakref.finalize(self, _end, self._client, session)


def _end(client: Client, session: Session) -> None:
    try:
        client.close()
    finally:
        session.close()
