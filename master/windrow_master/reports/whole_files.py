"""Report files that exist as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

PARTIAL_SUFFIX = ".windrow-partial"


@contextmanager
def whole_file(target: Path) -> Iterator[TextIO]:
    """A text file that takes its name when the block ends without an error. Raises OSError.

    Not synced: after a loss of power, the next master writes a lost report again (`shell.reporting`).
    """
    temporary = target.with_name(f".{target.name}{PARTIAL_SUFFIX}")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with temporary.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
            yield file
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(target: Path, text: str) -> None:
    """Write a small text. Raises OSError."""
    with whole_file(target) as file:
        file.write(text)
