"""The agent's own log: one JSON object a line in ``agent.log``, and the plain words of warnings on stderr.

The standard library is enough here: structlog's import alone would be a fifth of the time to the first ``run()``.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path

_FILE_BYTES_MAX = 16 << 20

log = logging.getLogger("windrow.agent")


class _JsonFile(logging.Handler):
    """Appends to a file that is renamed to ``agent.log.1`` when it has grown too large.

    A full disk loses lines, never the agent.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._open()

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._size = os.fstat(self._fd).st_size

    def emit(self, record: logging.LogRecord) -> None:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "timestamp": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = logging.Formatter().formatException(record.exc_info)
        try:
            if self._size > _FILE_BYTES_MAX:
                os.close(self._fd)
                self._path.rename(self._path.with_name(self._path.name + ".1"))
                self._open()
            self._size += os.write(self._fd, (json.dumps(line, default=str) + "\n").encode())
        except OSError:
            pass

    def close(self) -> None:
        os.close(self._fd)
        super().close()


def open_journal(folder: Path, level: str) -> None:
    """Sends the log to ``<folder>/agent.log``, and warnings to stderr as well.

    Raises OSError, ValueError (unknown level).
    """
    log.setLevel(level)
    log.propagate = False
    log.addHandler(_JsonFile(folder / "agent.log"))
    console = logging.StreamHandler(sys.stderr)
    console.setLevel(logging.WARNING)
    console.setFormatter(logging.Formatter("%(asctime)s %(levelname)s windrow agent: %(message)s"))
    log.addHandler(console)


def say(level: int, event: str, /, **fields: object) -> None:
    """One line of the log: what happened, and the values that belong to it."""
    if log.isEnabledFor(level):
        log.log(level, event, extra={"fields": fields})
