"""The files of a table: an MLTable file, or plain files whose names show the format; checked before a submission.

Reference: docs/reference/azure-ml/mltable.md#plain-files.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import NamedTuple

from windrow.common.trees import walk
from windrow.spec.naming.locations import is_elsewhere, why_missing
from windrow.spec.reading.context import Context
from windrow.spec.reading.nodes import Place, Source, source_label
from windrow.spec.reading.problems import listed
from windrow.spec.tables.delta import ReadDelta
from windrow.spec.tables.mltable import (
    FILE_NAME,
    PathEntry,
    Read,
    ReadDelimited,
    ReadJsonLines,
    ReadParquet,
    read_mltable,
)
from windrow.spec.tables.partition_format import columns_of

PLAIN_READS: dict[str, Read] = {
    ".csv": ReadDelimited(),
    ".tsv": ReadDelimited(delimiter="\t"),
    ".tab": ReadDelimited(delimiter="\t"),
    ".parquet": ReadParquet(),
    ".pq": ReadParquet(),
    ".jsonl": ReadJsonLines(),
    ".ndjson": ReadJsonLines(),
    ".json": ReadJsonLines(),
}
"""How plain files are read, by the extension of their name in small letters."""

PLAIN_FORMATS = "CSV (.csv), TSV (.tsv), JSON lines (.jsonl, .ndjson, .json) or Parquet (.parquet)"
COMPRESSED = (".gz", ".zip", ".bz2", ".xz", ".zst", ".lz4", ".snappy", ".7z", ".tgz", ".tar")

_LOOKED_AT_MAX = 10_000
"""After this many files and folders without a table, checking a folder is left to the planner."""


def plain_read(name: str) -> Read | None:
    """How a plain file is read, by its name; None if the name does not show a format."""
    return PLAIN_READS.get(_extension(name))


def is_compressed(name: str) -> bool:
    """Whether a file's name says that it is compressed; such files cannot be cut."""
    return _extension(name) in COMPRESSED


def is_marker(name: str) -> bool:
    """Whether a file is a by-product of writing Parquet, not data: `_SUCCESS`, `_committed…`, checksums,
    summaries."""
    base = os.path.basename(name)
    return (
        base in ("_SUCCESS", "_metadata", "_common_metadata")
        or base.startswith(("_committed", "_started"))
        or base.endswith(".crc")
    )


class Partition(NamedTuple):
    """The keys that divide a table, and the place and key of that setting, for messages."""

    keys: tuple[str, ...]
    place: Place
    key: str


def definition_digest(path: str) -> str:
    """The sha256 of the MLTable file of a local table; "" if it has none that can be read."""
    import hashlib

    definition = path if os.path.basename(path) == FILE_NAME else os.path.join(path, FILE_NAME)
    try:
        return hashlib.sha256(Path(definition).read_bytes()).hexdigest() if os.path.isfile(definition) else ""
    except OSError:
        return ""  # `check_table` reports it


def check_table(
    path: str, place: Place, key: str, context: Context, partition: Partition | None = None
) -> tuple[str, ...]:
    """Notes errors of a local table and of the keys that divide it, as far as this machine can tell.

    `path` is absolute. Returns the libraries that reading the table needs: none for a list of files, and none for a
    path on another machine.
    """
    if is_elsewhere(path):
        read = plain_read(path)
        return () if read is None else _libraries(read, partition is not None)
    if os.path.basename(path) == FILE_NAME and os.path.isfile(path):
        path = os.path.dirname(path)
    definition = os.path.join(path, FILE_NAME)
    if os.path.isfile(definition):
        return _check_definition(definition, context, partition)
    columns = partition is not None and _check_columns(partition, context)
    if os.path.isdir(path):
        return _check_folder(path, place, key, context, columns)
    if os.path.isfile(path):
        read = plain_read(path)
        if read is not None:
            return _libraries(read, columns)
        context.problems.error(place, key, f'"{path}" {_why_no_table(path)}; {_advice("uri_file")}')
    return ()


def _check_definition(definition: str, context: Context, partition: Partition | None) -> tuple[str, ...]:
    table = read_mltable(definition, context.problems)
    if table is None:
        return ()
    for index, entry in enumerate(table.paths):
        # Another machine's absolute paths are its own; what is beside the file that was just read is there as well.
        if not is_elsewhere(entry.text) and (context.embedded or not os.path.isabs(entry.text)):
            _check_entry(entry, f"paths[{index}].{entry.kind}", os.path.dirname(definition), context)
    if isinstance(table.read, ReadDelta) and context.embedded:
        _check_delta_package(definition, context)
    columns = False
    if partition is not None:
        names = columns_of((*table.before, *table.after))
        unknown = [name for name in partition.keys if name not in names]
        if unknown and table.read is None:
            context.problems.error(
                partition.place,
                partition.key,
                f"names {listed(unknown)}, but the input is a list of files. Its keys are those that "
                f"extract_columns_from_partition_format names in {definition}: {listed(names)}.",
            )
        elif unknown and not isinstance(table.read, ReadDelta):  # the log of a Delta table has its partition columns
            columns = _check_columns(partition, context)
    return _libraries(table.read, columns) if table.read is not None else ()


def _check_columns(partition: Partition, context: Context) -> bool:
    """Notes an error if this machine cannot divide by columns of the data. Always returns True, because the keys
    are such columns.
    """
    if context.embedded and importlib.util.find_spec("duckdb") is None:
        context.problems.error(
            partition.place,
            partition.key,
            f"{listed(partition.keys)}: dividing by columns of the data needs DuckDB, which is not installed here. "
            "Install it with: pip install 'windrow[partition]'.",
        )
    return True


def _check_delta_package(definition: str, context: Context) -> None:
    from importlib.util import find_spec

    if find_spec("deltalake") is None:
        context.problems.error(
            Place(Source("mltable", source_label(definition), os.path.dirname(definition))),
            "transformations",
            "read_delta_lake needs the package deltalake, which is not installed here. Install it with: pip install "
            "'windrow[delta]'",
        )


def _check_entry(entry: PathEntry, key: str, folder: str, context: Context) -> None:
    path = os.path.normpath(os.path.join(folder, entry.text))
    if entry.kind == "pattern":
        return  # the planner lists what it names
    if not os.path.isfile(path) and not os.path.isdir(path):
        text = f'"{entry.text}" {why_missing(path)} ({path}); paths are relative to the folder of the MLTable file.'
        context.problems.error(entry.place, key, text)
    elif entry.kind == "folder" and not os.path.isdir(path):
        context.problems.error(entry.place, key, f'"{entry.text}" is a file; write `file:` instead of `folder:`.')


def _check_folder(path: str, place: Place, key: str, context: Context, columns: bool) -> tuple[str, ...]:
    other, looked_at = "", 0
    unreadable: list[OSError] = []
    for folder, folders, names in walk(path, unreadable.append, follow_links=True):
        folders.sort()
        looked_at += 1 + len(names)
        for name in sorted(names):
            read = plain_read(name)
            if read is not None:
                return _libraries(read, columns)
            if not other and not name.startswith((".", "_")) and not is_marker(name):
                other = os.path.join(folder, name)
        if looked_at > _LOOKED_AT_MAX:
            return ()
    if unreadable or not (other or context.embedded):
        return ()  # left to the planner; nodes may see more, as below a mount point that is empty here
    why = "contains neither an MLTable file nor table files"
    if other:
        why = f'contains no MLTable file, and "{os.path.relpath(other, path)}" in it {_why_no_table(other)}'
    context.problems.error(place, key, f'"{path}" {why}; {_advice("uri_folder")}')
    return ()


def _extension(name: str) -> str:
    return os.path.splitext(os.path.basename(name).lower())[1]


def _libraries(read: Read, columns: bool) -> tuple[str, ...]:
    """The libraries that workers need. `columns`: the table is divided by columns of its data, so that workers get
    rows as Arrow files.
    """
    return ("pandas", "pyarrow") if columns or isinstance(read, ReadParquet | ReadDelta) else ("pandas",)


def _why_no_table(name: str) -> str:
    return "is compressed, which cannot be cut" if is_compressed(name) else "has a name without a known table format"


def _advice(files_type: str) -> str:
    return (
        f"plain files must be {PLAIN_FORMATS}. For anything else add an MLTable file with a read_* step, or use type: "
        f"{files_type} to get lists of files."
    )
