"""Named crash points: in tests, the process ends by SIGKILL exactly there; in production each costs one comparison.

`WINDROW_CRASH_POINT=name[:count]` arms one point: the process kills itself the `count`-th time (default: the first)
that it is reached. A name that is not in POINTS is refused at import, so that a test with a misspelt name cannot pass.
A test that wants power loss instead of a kill sets `before_crash` to a function that drops unsynced bytes.

A point's name says what has *just been done* when it is reached.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import NoReturn

VARIABLE = "WINDROW_CRASH_POINT"

POINTS = frozenset(
    (
        # Committer, in this order for every group.
        "segments.created",
        "segments.appended",
        "segments.synced",
        "store.begun",
        "store.written",
        "store.committed",
        "writer.replied",
        # A large result that travels on its own.
        "staging.written",
        "staging.synced",
        # Planning.
        "planning.checkpoint_received",
        # Concatenation, in this order.
        "concatenate.created",
        "concatenate.written",
        "concatenate.synced",
        "concatenate.recorded",
        "concatenate.renamed",
        "concatenate.folder_synced",
        # The outputs of a step, in the registry of assets.
        "assets.registered",
        # The upload of an output to a store, in this order.
        "upload.recorded",
        "upload.uploaded",
        # A migration; the last two once for each schema.
        "schema.copied",
        "schema.written",
        "schema.committed",
        # The removal of a job, in this order.
        "removal.noted",
        "removal.moved",
        "removal.deleted",
        "removal.cleared",
        # A client's data, in this order.
        "place.unpacked",
        "place.synced",
        "place.renamed",
        # What a script hands in, in this order.
        "script_files.written",
        "script_files.content",
    )
)

before_crash: Callable[[], None] | None = None
"""Called just before the process kills itself (tests: power loss)."""


class _Armed:
    """The armed point, and how often it must still be reached before the process ends."""

    __slots__ = ("count", "name")

    def __init__(self, text: str) -> None:
        name, _, count = text.partition(":")
        if name not in POINTS:
            raise ValueError(f"{VARIABLE} names {name!r}, which is not a crash point. Choose from: {sorted(POINTS)}.")
        self.name = name
        self.count = int(count or 1)


_armed: _Armed | None = _Armed(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None


def arm(text: str | None) -> None:
    """Arm `name[:count]` in this process, or nothing. Raises ValueError for an unknown name."""
    global _armed
    _armed = _Armed(text) if text else None


def reach(name: str) -> None:
    """Note that a point is reached; end the process if it is armed for this time."""
    if _armed is not None and _armed.name == name:
        _armed.count -= 1
        if _armed.count <= 0:
            _crash()


def _crash() -> NoReturn:
    if before_crash is not None:
        before_crash()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable: SIGKILL was sent to this process")
