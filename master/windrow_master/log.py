"""The master's own log: one JSON object a line, to a file and not to the user's terminal."""

from __future__ import annotations

import datetime
import json
import traceback
from pathlib import Path
from typing import Any, TextIO


class Log:
    """Structured lines. By hand: importing structlog costs 0.1 s, which the first mini-batch would wait for."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def info(self, event: str, **fields: Any) -> None:
        """Something happened."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Something a user may want to look at."""
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Something failed."""
        self._write("error", event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """Something failed; call it from an except block."""
        self._write("error", event, {**fields, "traceback": traceback.format_exc()})

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        time = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": time, "level": level, "event": event, **fields}, default=str)
        self._file.write(line + "\n")
        self._file.flush()


def open_log(path: Path) -> Log:
    """A log that appends to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return Log(path.open("a", encoding="utf-8", errors="backslashreplace"))
