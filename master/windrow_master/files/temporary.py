"""Temporary folders of short-lived processes. A folder goes when its process ends, unless SIGKILL ends it."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from windrow.common.removal import discard_tree

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextlib.contextmanager
def temporary_folder(
    prefix: str, parent: Path | None = None, *, before_removal: Callable[[], object] = lambda: None
) -> Iterator[Path]:
    """A new folder that only this user can read, below `parent` (if None, in the usual place). Raises
    OSError.

    Signals that ask the process to end do so at once; before that, `before_removal` is called and the folder removed.
    They raise no exception, because one between the making of the folder and its block, or during its removal, would
    leave the folder behind. Use it in the main thread, and do not nest it.
    """
    folder = Path(parent or tempfile.gettempdir(), f"{prefix}{secrets.token_hex(8)}")

    def leave(number: int, frame: object) -> None:
        before_removal()
        discard_tree(folder)
        os._exit(128 + number)

    handlers = {number: signal.signal(number, leave) for number in _SIGNALS}
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        discard_tree(folder)
        for number, handler in handlers.items():
            signal.signal(number, handler)
