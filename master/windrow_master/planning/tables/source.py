"""What an `mltable` input is: a folder with an MLTable file, or plain files whose format their names tell (rule 9)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from windrow.spec import table_files
from windrow.spec.mltable import FILE_NAME, MLTable, PathEntry, Read, read_mltable
from windrow.spec.problems import Problems

from windrow_master.planning.entries import Entry, file_entry, folder_entry, pattern_entry
from windrow_master.planning.errors import PlanningError, shown
from windrow_master.planning.walk import Warn


class Source(NamedTuple):
    """An input as entries to list. `read` None: a list of files. `plain`: no MLTable file, formats follow from
    names."""

    path: bytes
    entries: Sequence[Entry]
    read: Read | None
    plain: bool
    mltable: MLTable | None = None


def open_source(path: bytes, warn: Warn) -> Source:
    """Find out what the input is. Raises PlanningError: not there, or an MLTable file with errors."""
    if os.path.basename(path) == FILE_NAME.encode() and os.path.isfile(path):
        path = os.path.dirname(path)
    definition = os.path.join(path, FILE_NAME.encode())
    if os.path.isfile(definition):
        return _mltable_source(path, definition, warn)
    text = os.fsdecode(path)
    entry = file_entry(path, text)
    return Source(path, [entry], None, plain=True)


def _mltable_source(folder: bytes, definition: bytes, warn: Warn) -> Source:
    problems = Problems()
    table = read_mltable(os.fsdecode(definition), problems)
    if table is None:
        raise PlanningError("\n".join(str(problem) for problem in problems.errors))
    for warning in problems.warnings:
        warn(str(warning))
    entries = [_entry(folder, entry) for entry in table.paths]
    return Source(folder, entries, table.read, plain=False, mltable=table)


def _entry(folder: bytes, entry: PathEntry) -> Entry:
    text = os.fsencode(entry.text)
    if entry.kind == "pattern":
        found = pattern_entry(folder, text)
    else:
        path = os.path.normpath(os.path.join(folder, text))
        found = (file_entry if entry.kind == "file" else folder_entry)(path, entry.text)
    # The MLTable file itself is never data.
    below = os.path.join(os.path.normpath(folder), FILE_NAME.encode()).removeprefix(os.path.join(found.folder, b""))
    return found if found.file else found._replace(leave_out=below)


def plain_read(name: bytes, path: bytes) -> Read:
    """How to read a plain file, by its name. Raises PlanningError if that does not tell."""
    read = table_files.plain_read(os.fsdecode(name))
    if read is not None:
        return read
    if table_files.is_compressed(os.fsdecode(name)):
        raise PlanningError(f"{shown(name)} is compressed, which cannot be cut. Decompress it first.")
    holder = (
        "is no folder with an MLTable file, and its name"
        if name == path
        else (f"holds no MLTable file, and the name of {shown(name)}")
    )
    raise PlanningError(
        f"The input {shown(path)} {holder} does not tell a format of tables. "
        f"Plain files must be {table_files.PLAIN_FORMATS}; for anything else add an MLTable file with a read_* step, "
        "or make the type of the input uri_folder to get lists of files."
    )


def is_marker(name: bytes) -> bool:
    """Whether a file is a by-product of writing Parquet, and no data."""
    return table_files.is_marker(os.fsdecode(name))
