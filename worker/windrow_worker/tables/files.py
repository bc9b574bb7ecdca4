"""Reads a part of a file that must not have changed since it was listed, and must begin and end at records.

The planner cuts with its own scanner. The reader checks the cuts by its own rules: the bytes at the ends of a slice
(`read_slice`), quotes that are open at its end (`delimited`), and the number of its records, if the recipe has it
(`check_records`).
"""

from __future__ import annotations

import os
from io import open  # a script may replace the one in builtins
from typing import Any, BinaryIO, Dict

from windrow_worker.loaded import InputChanged, InputMisread
from windrow_worker.tables.encodings import ENCODINGS, Encoding

PATH = "Path"
"""The column that `include_path_column` adds: the file of each row, as `printable` returns it."""


def open_listed(name: str, buffering: int = -1) -> BinaryIO:
    """Opens a listed file; `buffering` as in `open`. Raises OSError, whose text says what may be wrong."""
    try:
        return open(os.fsencode(name), "rb", buffering)
    except OSError as error:
        raise OSError(
            "%s was there when the input was listed, but cannot be read on this node: %s. It may have been removed, "
            "its folder may not be mounted here, or the agent's user may lack read permission."
            % (printable(name), error.strerror)
        ) from error


def check_unchanged(file: BinaryIO, name: str, size: int, mtime_ns: int) -> None:
    """Raises InputChanged if the size or modification time of the open file differs from the listing."""
    now = os.fstat(file.fileno())
    if now.st_size != size:
        raise InputChanged(
            "%s has changed since it was listed: it had %d bytes and now has %d. "
            "Submit the job again when the file no longer changes." % (printable(name), size, now.st_size)
        )
    if now.st_mtime_ns != mtime_ns:
        raise InputChanged(
            "%s has been written to since it was listed: its modification time differs. "
            "Submit the job again when the file no longer changes." % printable(name)
        )


def read_slice(recipe: Dict[str, Any], encoding: str) -> bytes:
    """The bytes `begin` to `end` of a recipe's text file, which are whole lines. Raises InputChanged, InputMisread, and
    OSError if it cannot be read.

    From a file in remote storage, the agent has fetched exactly these bytes, into `local`.
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
        "not of the script. Run the job again, so that its input is divided again; if that fails too, report it, with "
        "the version of Python that the master runs with."
        % (printable(recipe["file"]), recipe["begin"], recipe["end"], what)
    )


def check_records(recipe: Dict[str, Any], found: int) -> None:
    """Raises InputMisread if a recipe says how many `records` it has, and another number was found."""
    planned = recipe.get("records", found)
    if planned == found:
        return
    what = "has %d records, not the %d that were counted when the input was divided" % (found, planned)
    if "row_group" not in recipe:
        raise misread(recipe, what)
    raise InputMisread(
        "Row group %d of %s %s, and none of it was run. The file may have been replaced. Run the job again when it "
        "no longer changes; if that fails too, report it." % (recipe["row_group"], printable(recipe["file"]), what)
    )


def _read_range(recipe: Dict[str, Any], how: Encoding) -> bytes:
    """The bytes of a slice; a line must end before it."""
    if "local" in recipe:
        with open(os.fsencode(recipe["local"]), "rb", buffering=0) as file:
            data = file.readall()
        if len(data) != recipe["end"] - recipe["begin"]:
            raise OSError("%s: the fetched copy is incomplete" % printable(recipe["file"]))
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
        # Checked again, so that a change during the reading is noticed too.
        check_unchanged(file, name, recipe["size"], recipe["mtime_ns"])
    return parts[0] if len(parts) == 1 else b"".join(parts)


def printable(file: str) -> str:
    """A path as text that any writer accepts: bytes that are not UTF-8 are escaped."""
    return os.fsencode(file).decode("utf-8", "backslashreplace")
