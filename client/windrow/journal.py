"""The log of a master or an agent: what happened, and the values that belong to it.

Always: one JSON object a line in a file. Served (`windrow master`, `windrow agent`) also on stderr, where a container's
log or a service manager picks it up: readable on a terminal, JSON elsewhere, both by structlog. The embedded processes
of `windrow run` load no structlog: its import alone would be a fifth of the time to the first `run()`; warnings reach
their stderr in plain words.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

FILE_BYTES_MAX = 16 << 20

log = logging.getLogger("windrow")


class _JsonFile(logging.Handler):
    """Appends to a file that is renamed to `<name>.1` when it has grown too large.

    A full disk loses lines, never the process.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._open()

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._size = os.fstat(self._fd).st_size

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._size > FILE_BYTES_MAX:
                self._rotate()
            self._size += os.write(self._fd, (json.dumps(_fields(record), default=str) + "\n").encode())
        except OSError:
            pass

    def _rotate(self) -> None:
        """Raises OSError; what is open then is still this file's own, and the next line tries again."""
        with suppress(FileNotFoundError):  # renamed before, when no new one could be opened
            self._path.rename(self._path.with_name(self._path.name + ".1"))
        full = self._fd
        self._open()
        os.close(full)

    def close(self) -> None:
        os.close(self._fd)
        super().close()


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """A record as the object of its line."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    line: dict[str, Any] = {
        "timestamp": f"{moment}.{int(record.msecs):03d}Z",
        "level": record.levelname.lower(),
        "event": record.getMessage(),
    }
    line |= getattr(record, "fields", {})
    if record.exc_info:
        line["exception"] = logging.Formatter().formatException(record.exc_info)
    return line


def open_journal(path: Path, role: str, level: str = "INFO", *, served: bool) -> None:
    """Begin to write the log of a process to `path` (its folder is there). `role`: what it calls itself.

    Raises OSError, ValueError (unknown level).
    """
    log.setLevel(level)
    log.propagate = False
    log.addHandler(_JsonFile(path))
    console = logging.StreamHandler(sys.stderr)
    if served:
        console.setFormatter(_console_formatter(sys.stderr.isatty()))
    else:
        console.setLevel(logging.WARNING)
        console.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s windrow {role}: %(message)s"))
    log.addHandler(console)


def _console_formatter(terminal: bool) -> logging.Formatter:
    import structlog

    renderer = structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer()

    class Formatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return str(renderer(None, record.levelname.lower(), _fields(record)))

    return Formatter()


def say(level: int, event: str, /, **fields: object) -> None:
    """One line of the log: what happened, and the values that belong to it."""
    if log.isEnabledFor(level):
        log.log(level, event, extra={"fields": fields})
