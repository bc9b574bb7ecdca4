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
from windrow_master.planning.table_paths import definition_of
from windrow_master.planning.walk import Warn
from windrow_master.roots import Roots


class Source(NamedTuple):
    """An input as entries to list. `read` None: a list of files. `plain`: no MLTable file, formats follow from
    names."""

    path: bytes
    entries: Sequence[Entry]
    read: Read | None
    plain: bool
    mltable: MLTable | None = None


def open_source(path: bytes, warn: Warn, roots: Roots | None) -> Source:
    """Find out what the input is. Raises PlanningError: not there, outside, or an MLTable file with errors."""
    definition = definition_of(path)
    if definition is not None:
        return _mltable_source(definition, warn, roots)
    text = os.fsdecode(path)
    entry = file_entry(path, text, roots)
    return Source(path, [entry], None, plain=True)


def _mltable_source(definition: bytes, warn: Warn, roots: Roots | None) -> Source:
    folder = os.path.dirname(definition)
    # Before it is read: messages about a file quote from it.
    file_entry(definition, os.fsdecode(definition), roots)
    problems = Problems()
    table = read_mltable(os.fsdecode(definition), problems)
    if table is None:
        raise PlanningError("\n".join(str(problem) for problem in problems.errors))
    for warning in problems.warnings:
        warn(str(warning))
    entries = [_entry(folder, entry, roots) for entry in table.paths]
    return Source(folder, entries, table.read, plain=False, mltable=table)


def _entry(folder: bytes, entry: PathEntry, roots: Roots | None) -> Entry:
    text = os.fsencode(entry.text)
    if entry.kind == "pattern":
        found = pattern_entry(folder, text, roots)
    else:
        path = os.path.normpath(os.path.join(folder, text))
        found = (file_entry if entry.kind == "file" else folder_entry)(path, entry.text, roots)
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
