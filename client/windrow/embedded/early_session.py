"""A private master that begins to start before the command that asks it has loaded: both take some 200 ms.

One for each process. Whoever needs a session over the same state folder takes it; if nobody does, it ends with the
process.
"""

from __future__ import annotations

import atexit
import os

from windrow.embedded.session import Session, open_session

_begun: dict[str, Session] = {}
"""By the absolute path of the state folder."""


def begin(state: str) -> None:
    """Begin to start a master without an agent over an existing state folder. Raises what `open_session` raises."""
    session = open_session(state, with_agent=False, must_exist=True)
    _begun[os.path.abspath(state)] = session
    atexit.register(_end, state)


def take(state: str) -> Session | None:
    """The session that was begun over a folder, once; the caller closes it. None if there is none."""
    return _begun.pop(os.path.abspath(state), None)


def _end(state: str) -> None:
    session = take(state)
    if session is not None:
        session.close(now=True)
