"""The source of an `mltable` input: an MLTable file, or plain files whose names show the format.

Reference: docs/reference/azure-ml/mltable.md#plain-files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from windrow.spec.reading.problems import Problems
from windrow.spec.reading.yaml_files import FILE_BYTES_MAX
from windrow.spec.tables import table_files
from windrow.spec.tables.mltable import FILE_NAME, MLTable, PathEntry, Read, read_mltable
from windrow.storage.objects import read_part, stat_object
from windrow.storage.urls import is_remote

from windrow_master.datastores import Datastores, UnknownDatastore
from windrow_master.planning.errors import PlanningError, shown
from windrow_master.planning.listing.entries import AnyEntry, file_entry, folder_entry, pattern_entry
from windrow_master.planning.listing.opening import read_within
from windrow_master.planning.listing.remote import (
    remote_file,
    remote_folder,
    remote_pattern,
    remote_url,
    storage_errors,
)
from windrow_master.planning.listing.walk import Warn
from windrow_master.planning.table_paths import definition_of
from windrow_master.roots import Roots


class Source(NamedTuple):
    """An input as entries to list. `read`: None for a list of files. `plain`: no MLTable file, formats follow
    from names.

    Not the `Source` of `windrow.spec.reading`, which is a file of settings.
    """

    path: bytes
    entries: Sequence[AnyEntry]
    read: Read | None
    plain: bool
    mltable: MLTable | None = None

    @property
    def reads_plain(self) -> bool:
        """Whether types and headers are those of plain files; an MLTable file may say so as well."""
        return self.plain or (self.mltable is not None and self.mltable.plain)

    @property
    def only_words(self) -> bool:
        """Whether only the words true and false make a column boolean, as in tables of version 1."""
        return self.mltable is not None and self.mltable.only_words


def open_source(path: bytes, warn: Warn, roots: Roots | None, datastores: Datastores) -> Source:
    """Find the source. Raises PlanningError if it is missing, outside the roots, or its MLTable file has errors."""
    if is_remote(os.fsdecode(path)):
        return _remote_source(path, warn, roots, datastores)
    definition = definition_of(path)
    if definition is not None:
        # Before it is read, and as it is opened: messages about a file quote from it.
        file_entry(definition, os.fsdecode(definition), roots)
        content = read_within(definition, roots, FILE_BYTES_MAX + 1)
        return _mltable_source(definition, content, warn, roots, datastores)
    text = os.fsdecode(path)
    entry = file_entry(path, text, roots)
    return Source(path, [entry], None, plain=True)


def _remote_source(path: bytes, warn: Warn, roots: Roots | None, datastores: Datastores) -> Source:
    """An input in a store."""
    url = remote_url(path, roots)
    definition = url if url.key.rpartition("/")[2] == FILE_NAME else url.below(FILE_NAME)
    with storage_errors():
        found = None if url.is_web and definition != url else stat_object(definition)
        if found is not None:
            content = read_part(definition, found.size, found.version, 0, min(found.size, FILE_BYTES_MAX + 1))
            return _mltable_source(str(definition).encode(), content, warn, roots, datastores)
    return Source(path, [remote_file(path, os.fsdecode(path), roots)], None, plain=True)


def _mltable_source(
    definition: bytes, content: bytes, warn: Warn, roots: Roots | None, datastores: Datastores
) -> Source:
    folder = os.path.dirname(definition)
    problems = Problems()
    table = read_mltable(os.fsdecode(definition), problems, content)
    if table is None:
        raise PlanningError("\n".join(str(problem) for problem in problems.errors))
    for warning in problems.warnings:
        warn(str(warning))
    entries = [_entry(folder, entry, roots, datastores) for entry in table.paths]
    return Source(folder, entries, table.read, plain=False, mltable=table)


def _entry(folder: bytes, entry: PathEntry, roots: Roots | None, datastores: Datastores) -> AnyEntry:
    try:
        text = os.fsencode(datastores.resolve(entry.text))
    except UnknownDatastore as error:
        raise PlanningError(f"{entry.place}: {error}") from error
    inside = is_remote(os.fsdecode(folder)) and not text.startswith(b"/")
    if is_remote(os.fsdecode(text)) or inside:
        return _remote_entry(folder, text, entry, roots)
    if entry.kind == "pattern":
        found = pattern_entry(folder, text, roots)
    else:
        path = os.path.normpath(os.path.join(folder, text))
        found = (file_entry if entry.kind == "file" else folder_entry)(path, entry.text, roots)
    # The MLTable file itself is never data.
    below = os.path.join(os.path.normpath(folder), FILE_NAME.encode()).removeprefix(os.path.join(found.folder, b""))
    return found if found.file else found._replace(leave_out=below)


def _remote_entry(folder: bytes, text: bytes, entry: PathEntry, roots: Roots | None) -> AnyEntry:
    """An entry in a store: an address, or a path relative to an MLTable file that is itself in a store."""
    address = text
    if not is_remote(os.fsdecode(text)):
        parts = os.path.normpath(text).split(b"/")
        if parts[0] == b"..":
            raise PlanningError(
                f'{entry.place}: "{entry.text}" points outside the folder of its MLTable file, which is in a '
                "store. Use a full address."
            )
        if entry.kind != "file" and folder.lower().startswith((b"http:", b"https:")):
            raise PlanningError(
                f'{entry.place}: "{entry.text}" is on a web server, as this MLTable file is, and cannot be listed. '
                "Name each `file:`."
            )
        address = folder if parts == [b"."] else b"/".join([folder, *parts])
    make = {"file": remote_file, "folder": remote_folder, "pattern": remote_pattern}[entry.kind]
    found = make(address, entry.text, roots)
    below = os.path.join(folder, FILE_NAME.encode()).removeprefix(os.path.join(found.folder, b""))
    return found if found.file else found._replace(leave_out=below)


def plain_read(name: bytes, path: bytes) -> Read:
    """How to read a plain file, by its name. Raises PlanningError if the name does not show a format."""
    read = table_files.plain_read(os.fsdecode(name))
    if read is not None:
        return read
    if table_files.is_compressed(os.fsdecode(name)):
        raise PlanningError(f"{shown(name)} is compressed, which cannot be cut. Decompress it first.")
    holder = (
        "is not a folder with an MLTable file, and its name"
        if name == path
        else (f"contains no MLTable file, and the name of {shown(name)}")
    )
    raise PlanningError(
        f"The input {shown(path)} {holder} does not show a table format. "
        f"Plain files must be {table_files.PLAIN_FORMATS}; for anything else add an MLTable file with a read_* step, "
        "or make the type of the input uri_folder to get lists of files."
    )


def is_marker(name: bytes) -> bool:
    """Whether a file is a by-product of writing Parquet, not data."""
    return table_files.is_marker(os.fsdecode(name))
