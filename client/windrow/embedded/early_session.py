"""The state folder that a command is going to ask, opened before the command imports anything else.

Its private master imports for a quarter of a second, and so does the command: beside each other, not one after the
other. Whoever begins one closes it (`close`), unless a client has taken it.
"""

# Only cheap modules, as in `session`.
from __future__ import annotations

import os

from windrow.common import garbage_collector
from windrow.embedded.session import Session, open_session
from windrow.errors import WindrowError

_session: Session | None = None


def begin(state: str) -> None:
    """Open a state folder, to ask questions. Whatever is wrong with it, the command finds again, and reports."""
    global _session
    garbage_collector.pause()
    try:
        _session = open_session(state, with_agent=False, must_exist=True)
    except WindrowError:
        garbage_collector.resume()


def take(state: str) -> Session | None:
    """The session of this folder, if it was opened early; the caller closes it."""
    global _session
    if _session is None or _session.folder != os.path.abspath(state):
        return None
    taken, _session = _session, None
    garbage_collector.resume()
    return taken


def close() -> None:
    """End what was begun and nobody has taken."""
    global _session
    if _session is not None:
        left, _session = _session, None
        left.close(now=True)
        garbage_collector.resume()
