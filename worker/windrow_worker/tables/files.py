"""Reading a part of a file that must still be what it was when it was listed."""

from __future__ import annotations

import os
from typing import Any, BinaryIO, Dict

from windrow_worker.loaded import InputChanged

PATH = "Path"
"""The column that ``include_path_column`` adds: the file of each row, as :func:`printable` makes it."""


def open_listed(name: str, buffering: int = -1) -> BinaryIO:
    """Open a file of the listing; ``buffering`` as in ``open``. Raises OSError, whose text says what may be wrong."""
    try:
        return open(os.fsencode(name), "rb", buffering)
    except OSError as error:
        raise OSError(
            "%s was there when the input was listed, but cannot be read on this node: %s. Was it removed, is its place "
            "not mounted here, or may the agent's user not read it?" % (printable(name), error.strerror)
        ) from error


def check_unchanged(file: BinaryIO, name: str, size: int, mtime_ns: int) -> None:
    """Raise InputChanged if the open file has another size or time than its listing says."""
    now = os.fstat(file.fileno())
    if now.st_size != size:
        raise InputChanged(
            "%s has changed since it was listed: it had %d bytes and now has %d. "
            "Submit the job again when it is at rest." % (printable(name), size, now.st_size)
        )
    if now.st_mtime_ns != mtime_ns:
        raise InputChanged(
            "%s has been written to since it was listed: its modification time differs. "
            "Submit the job again when it is at rest." % printable(name)
        )


def read_range(recipe: Dict[str, Any]) -> bytes:
    """The bytes ``begin`` to ``end`` of a recipe's file. Raises InputChanged, and OSError if it cannot be read.

    Of a file in remote storage the agent has fetched just these bytes, to ``local``.
    """
    if "local" in recipe:
        with open(os.fsencode(recipe["local"]), "rb", buffering=0) as file:
            data = file.readall()
        if len(data) != recipe["end"] - recipe["begin"]:
            raise OSError("%s: what was fetched of it is incomplete" % printable(recipe["file"]))
        return data
    name, begin, end = recipe["file"], recipe["begin"], recipe["end"]
    with open_listed(name, buffering=0) as file:
        check_unchanged(file, name, recipe["size"], recipe["mtime_ns"])
        parts = []
        file.seek(begin)
        while begin < end:
            part = file.read(min(end - begin, 1 << 30))
            if not part:
                break
            parts.append(part)
            begin += len(part)
        # Once more, so that what was written while it was read is noticed too.
        check_unchanged(file, name, recipe["size"], recipe["mtime_ns"])
    return parts[0] if len(parts) == 1 else b"".join(parts)


def printable(file: str) -> str:
    """A path as text that any writer can take: bytes that are no UTF-8 escaped."""
    return os.fsencode(file).decode("utf-8", "backslashreplace")
