"""Temporary folders of the processes that answer one question: gone when the process ends, but for SIGKILL."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextlib.contextmanager
def temporary_folder(
    prefix: str, parent: Path | None = None, *, before_removal: Callable[[], object] = lambda: None
) -> Iterator[Path]:
    """A new folder for this user alone, below `parent` (None: where temporary files go). Raises OSError.

    Signals that ask the process to end do so at once, and remove it, `before_removal` first. They raise no exception:
    one that came between the making of the folder and the block it is for, or while it is removed, would leave it
    behind. For the main thread; not nested.
    """
    folder = Path(parent or tempfile.gettempdir(), f"{prefix}{secrets.token_hex(8)}")

    def leave(number: int, frame: object) -> None:
        before_removal()
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(128 + number)

    handlers = {number: signal.signal(number, leave) for number in _SIGNALS}
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for number, handler in handlers.items():
            signal.signal(number, handler)
