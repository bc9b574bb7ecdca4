"""The private master of a state folder, as a client reaches it."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

from windrow.embedded import early_session, interrupts, state_folder
from windrow.embedded.session import OwnerGone, open_session
from windrow.errors import StateFolderError
from windrow.rpc.contexts import Access

if TYPE_CHECKING:
    from windrow.embedded.remembered_options import RememberedOptions
    from windrow.embedded.session import Session
    from windrow.errors import WindrowError
    from windrow.rpc.connection import Connection


_open: weakref.WeakSet[PrivateMaster] = weakref.WeakSet()


def give_way(folder: str) -> None:
    """Let clients of this process leave a state folder where their master runs nothing. Their next call goes to the
    master that takes its place.
    """
    for private in list(_open):
        private.leave_idle(folder)


class PrivateMaster:
    """The master over a state folder, for one client: that of another owner while it lives, else the client's own.
    The client's own master has no agent at first: it answers questions and runs nothing. `run_jobs` gives it one. The
    caller closes it.
    """

    def __init__(self, state: str, *, new: bool) -> None:
        """Attach to a master, or begin to start one: `wait_ready` before the first call. `new`: the folder may not
        exist yet. Raises UsageError, StateFolderError, MasterFailed.
        """
        self.stands_in = True
        """Start a private master when the one of another process ends. False: calls raise MasterFailed."""
        self._state = state
        self._changing = threading.Lock()
        with interrupts.held():
            session = early_session.take(state) or open_session(state, with_agent=False, must_exist=not new)
        self._session: Session | None = session
        self.access = Access(session.address)

    def wait_ready(self) -> None:
        """Wait until the master serves. Raises MasterFailed."""
        with interrupts.held():
            if self._session is not None:
                try:
                    self._session.wait_ready()
                except BaseException:
                    self._session.close(now=True)
                    raise
            _open.add(self)

    @property
    def runs_nothing(self) -> bool:
        """Whether the master is this client's own, so that unfinished jobs do not continue."""
        return self._session is not None and not self._session.attached and not self._session.with_agent

    @property
    def runs_jobs(self) -> bool:
        """Whether the master is this client's own, and runs jobs until the client is closed."""
        return self._session is not None and not self._session.attached and self._session.with_agent

    def run_jobs(self, connection: Connection, options: RememberedOptions) -> None:
        """Make sure that jobs run: start the client's own master anew, with an agent. Raises StateFolderError if the
        master of another process has none, and what `open_session` raises.
        """
        with interrupts.held(), self._changing:
            session = self._session
            if session is None or (session.with_agent and not session.attached):
                return
            if session.attached and session.failure() is None:
                endpoint = state_folder.read_endpoint(session.folder)
                if endpoint is None or endpoint.get("agent_pid") is not None:
                    return
                if session.owner_pid != os.getpid():
                    raise StateFolderError(
                        f"Another process ({session.owner_pid}) has the state folder {session.folder} open to ask "
                        "questions, and runs nothing there, so the job would wait. Close its client, then try again."
                    )
            session.close()
            try:
                self._move(connection, with_agent=True, options=options)
            except BaseException:
                # Questions are still answered.
                self._move(connection, with_agent=False, options=options)
                raise

    def _move(self, connection: Connection, *, with_agent: bool, options: RememberedOptions) -> None:
        self._session = None
        session = open_session(
            self._state,
            with_agent=with_agent,
            python=options.python if with_agent else None,
            environments=options.environments,
            datastores=options.datastores if with_agent else (),
            make_room=give_way,
        )
        try:
            connection.move(session.wait_ready())
        except BaseException:
            session.close(now=True)
            raise
        self._session = session

    def why_gone(self, connection: Connection) -> WindrowError | None:
        """Why the master will not come back; None if it may, or if a new one has taken its place."""
        with interrupts.held(), self._changing:
            if self._session is None:
                return None
            gone = self._session.failure()
            if not isinstance(gone, OwnerGone) or not self.stands_in or connection.closed:
                return gone
            self._session.take_over()
            connection.move(self._session.address)
            return None

    def leave_idle(self, folder: str) -> None:
        """End the client's own master over a state folder if it runs nothing, as if it were that of another owner."""
        # Whoever holds the lock changes the session by itself.
        if self._changing.acquire(blocking=False):
            try:
                session = self._session
                if session is None or session.folder != folder or session.attached:
                    return
                if not session.with_agent or session.failure() is not None:
                    session.close(now=True)
            finally:
                self._changing.release()

    def let_go(self) -> None:
        """End the master if it runs nothing: nobody holds the client any more."""
        if self._session is not None:
            # In a thread: Python collects objects in any, also in the one that looks after this master.
            threading.Thread(target=self.leave_idle, args=(self._session.folder,), daemon=True).start()

    def close(self) -> None:
        """End the master, if it is this client's own; at once if this is interrupted. May be called again."""
        # A thread of the caller's may be about to start one.
        with interrupts.held() as held, self._changing:
            if self._session is not None:
                self._session.close(hurry=lambda: held.count > 0)
                self._session = None
