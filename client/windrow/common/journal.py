"""The log of a master or an agent: what happened, and the values that belong to it.

The log is always a file with one JSON object per line. Services (`windrow master`, `windrow agent`) also write it to
stderr, for the log of a container or a service manager: readable on a terminal (with structlog), JSON elsewhere.
Embedded processes of `windrow run` write only warnings to stderr, in plain words. They do not import structlog, which
would take a fifth of the time to the first `run()`.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

REPEATED_EVERY_S = 60.0
REPEATED_TIMES = 10
FILE_BYTES_MAX = 16 << 20
KEPT_LINES_MAX = 200

log = logging.getLogger("windrow")


class _JsonFile(logging.Handler):
    """Appends to a file that is renamed to `<name>.1` when it has grown too large.

    A full disk never harms the process. The last KEPT_LINES_MAX lines that it did not take are written when there is
    space again; earlier ones are lost.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._kept: deque[bytes] = deque(maxlen=KEPT_LINES_MAX)
        self._open()

    def _open(self) -> None:
        # Whoever can lay a link there does not choose which file grows.
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        self._size = os.fstat(self._fd).st_size

    def emit(self, record: logging.LogRecord) -> None:
        line = (json.dumps(_fields(record), default=str) + "\n").encode()
        try:
            if self._size > FILE_BYTES_MAX:
                self._rotate()
            # Lines that a full disk did not take come first, such as the one that says so.
            while self._kept:
                self._write(self._kept[0])
                self._kept.popleft()
            self._write(line)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                self._kept.append(line)

    def _write(self, line: bytes) -> None:
        """Write a line, whole or not at all. Raises OSError."""
        written = os.write(self._fd, line)
        if written < len(line):
            with suppress(OSError):
                os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size += written

    def _rotate(self) -> None:
        """Rename the full file, and begin a new one. If that fails with OSError, the old file stays in use and the next
        line tries again.
        """
        with suppress(FileNotFoundError):  # renamed before, when no new one could be opened
            self._path.rename(self._path.with_name(self._path.name + ".1"))
        full = self._fd
        self._open()
        os.fchmod(self._fd, stat.S_IMODE(os.fstat(full).st_mode))
        os.close(full)

    def close(self) -> None:
        os.close(self._fd)
        super().close()


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return a log record as a JSON object."""
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
    """Begin to write the log of a process to `path`, in a folder that exists. `role`: the name of the process in the
    log. Raises OSError, and ValueError for an unknown level.
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


def log_to_console(level: str = "INFO") -> None:
    """Begin to write the log of a program to stderr alone, as services do. Raises ValueError for an unknown level."""
    log.setLevel(level)
    log.propagate = False
    console = logging.StreamHandler(sys.stderr)
    console.setFormatter(_console_formatter(sys.stderr.isatty()))
    log.addHandler(console)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(_fields(record), default=str)


def _console_formatter(terminal: bool) -> logging.Formatter:
    if not terminal:
        return _JsonFormatter()
    import structlog

    renderer = structlog.dev.ConsoleRenderer()

    class Formatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return str(renderer(None, record.levelname.lower(), _fields(record)))

    return Formatter()


def say(level: int, event: str, /, **fields: object) -> None:
    """Write one line: the event, and the values that belong to it."""
    if log.isEnabledFor(level):
        log.log(level, event, extra={"fields": fields})


class Condition:
    """A condition that lasts for a while. It is logged when it begins, and when it is over, with how often it occurred
    and for how long. So what happens a hundred times a second makes two lines. For one thread at a time.
    """

    def __init__(self, level: int, begins: str, over: str, *, from_times: int = 1) -> None:
        """`begins`, `over`: what to log. `from_times`: log nothing unless the condition occurs that many times in a
        row.
        """
        self._level = level
        self._begins = begins
        self._over = over
        self._from_times = from_times
        self._since_s = 0.0
        self.times = 0
        """How often it has occurred since it began; 0 if it is over."""

    def goes_on(self, **fields: object) -> None:
        """Note that the condition has occurred, or occurred again."""
        if not self.times:
            self._since_s = time.monotonic()
        self.times += 1
        if self.times == self._from_times:
            say(self._level, self._begins, **fields)

    def is_over(self, **fields: object) -> None:
        """Note that the condition is over, if it was there."""
        times, self.times = self.times, 0
        if times >= self._from_times:
            seconds = round(time.monotonic() - self._since_s, 1)
            say(logging.INFO, self._over, times=times, seconds=seconds, **fields)


class Repeated:
    """Events that others can cause as often as they like. A few of each kind are logged each minute. The others are
    counted, and the next one that is logged shows their number.
    """

    KINDS_MAX = 256

    def __init__(self, every_s: float = REPEATED_EVERY_S, in_all: int | None = None) -> None:
        """`in_all`: the most lines a minute, of all kinds together, where others make up kinds as they like. How many
        events have no line is logged once a minute.
        """
        self._every_s = every_s
        self._in_all = in_all
        self._logged = self._unlogged = 0
        self._minute_s = time.monotonic()
        self._said: dict[object, tuple[float, int]] = {}
        """By kind: when its minute began, and how many events there were in it."""

    def say(self, kind: object, level: int, event: str, /, **fields: object) -> None:
        """Log an event, or count it. `kind`: what distinguishes such events."""
        now = time.monotonic()
        if self._in_all is not None and now - self._minute_s >= self._every_s:
            if self._unlogged:
                say(level, f"{event}: some have no line of their own", count=self._unlogged)
            self._logged, self._unlogged, self._minute_s = 0, 0, now
        since_s, times = self._said.get(kind, (now, 0))
        left_out = 0
        if now - since_s >= self._every_s:
            left_out = max(0, times - REPEATED_TIMES)
            since_s, times = now, 0
        if kind not in self._said and len(self._said) >= self.KINDS_MAX:
            self._said.pop(next(iter(self._said)))
        self._said[kind] = (since_s, times + 1)
        if times >= REPEATED_TIMES or (self._in_all is not None and self._logged >= self._in_all):
            self._unlogged += 1
        else:
            self._logged += 1
            more: dict[str, object] = {"left_out_before": left_out} if left_out else {}
            if times + 1 == REPEATED_TIMES:
                more["next"] = f"others like this are counted, for up to {self._every_s:g} s"
            say(level, event, **fields, **more)
