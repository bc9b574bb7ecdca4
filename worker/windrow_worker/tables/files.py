"""Reading a part of a file that must still be what it was when it was listed, and must begin and end at records.

The planner cuts by its own scanner. What it has cut is checked here by rules of the reader's: the bytes at the ends of
a slice (`read_slice`), quotes that are open at its end (`delimited`), and the number of its records, where the
recipe tells it (`check_records`).
"""

from __future__ import annotations

import os
from typing import Any, BinaryIO, Dict

from windrow_worker.loaded import InputChanged, InputMisread
from windrow_worker.tables.encodings import ENCODINGS, Encoding

PATH = "Path"
"""The column that `include_path_column` adds: the file of each row, as `printable` makes it."""


def open_listed(name: str, buffering: int = -1) -> BinaryIO:
    """Open a file of the listing; `buffering` as in `open`. Raises OSError, whose text says what may be wrong."""
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


def read_slice(recipe: Dict[str, Any], encoding: str) -> bytes:
    """The bytes `begin` to `end` of a recipe's text file: whole lines. Raises InputChanged, InputMisread, and
    OSError if it cannot be read.

    Of a file in remote storage the agent has fetched just these bytes, to `local`.
    """
    how = ENCODINGS[encoding]
    begin, end = recipe["begin"], recipe["end"]
    data = _read_range(recipe, how)
    ends_line = data.endswith(how.newline) and not len(data) % how.unit
    if end != recipe["size"] and not ends_line:
        raise misread(recipe, "does not end with the end of a line")
    if end < begin or begin % how.unit:
        raise misread(recipe, "is no part of a file of %s text" % encoding)
    return data


def misread(recipe: Dict[str, Any], what: str) -> InputMisread:
    """The error for a slice that was cut wrongly: its file, its bytes, and `what` is wrong with it."""
    return InputMisread(
        "The part of %s from byte %d to %d was cut wrongly, and none of it was run: it %s. This is a fault of Windrow, "
        "not of the script. Run the job anew, so that its input is divided again; if that fails, too, report it, with "
        "the version of Python that the master runs with."
        % (printable(recipe["file"]), recipe["begin"], recipe["end"], what)
    )


def check_records(recipe: Dict[str, Any], found: int) -> None:
    """Raise InputMisread where a recipe tells how many `records` it has, and so many were not found."""
    planned = recipe.get("records", found)
    if planned == found:
        return
    what = "has %d records, and not the %d that were counted when the input was divided" % (found, planned)
    if "row_group" not in recipe:
        raise misread(recipe, what)
    raise InputMisread(
        "Row group %d of %s %s, and none of it was run. Was the file replaced? Run the job anew when it is at rest; if "
        "that fails, too, report it." % (recipe["row_group"], printable(recipe["file"]), what)
    )


def _read_range(recipe: Dict[str, Any], how: Encoding) -> bytes:
    """The bytes of a slice, in front of which a line must end."""
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
        if begin not in (0, len(how.mark)):
            file.seek(max(0, begin - how.unit))
            if file.read(min(begin, how.unit)) != how.newline:
                raise misread(recipe, "does not begin at the beginning of a line")
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
