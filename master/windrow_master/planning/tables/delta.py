"""The files of one version of a Delta table, with their partition values.

They are read like any other Parquet files. The files lack the partition columns, so each file comes with its values.
Needs the package `deltalake` (the extra `delta`). Reference: docs/reference/azure-ml/mltable.md#delta.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, unquote_to_bytes

import pyarrow
import pyarrow.parquet
from windrow.spec.tables.delta import ReadDelta
from windrow.storage.errors import Trouble, explained
from windrow.storage.objects import stat_object
from windrow.storage.options import store_options
from windrow.storage.urls import StorageUrl, parse_url
from windrow_worker.tables.parquet import pack_schema

from windrow_master.planning.errors import DEPENDENCY_ERROR, USER_ERROR, PlanningError, shown
from windrow_master.planning.listing.entries import AnyEntry
from windrow_master.planning.listing.outside import outside
from windrow_master.planning.listing.remote import remote_url, storage_errors
from windrow_master.planning.tables.files import TableFile, stat_file
from windrow_master.planning.tables.pin_parquet import LOOKS_MAX, with_row_groups
from windrow_master.planning.tables.pin_paths import check_path_column
from windrow_master.roots import Roots

if TYPE_CHECKING:
    from deltalake import DeltaTable

_FEATURES = ("deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck")
"""Supported reader features. Without deletion vectors, the first does not affect files."""


class DeltaSource:
    """One version of a Delta table."""

    def __init__(self, entries: Sequence[AnyEntry], read: ReadDelta, roots: Roots | None) -> None:
        """Open the table. Raises PlanningError if table or version do not exist or cannot be read correctly."""
        if len(entries) != 1 or entries[0].file or entries[0].pattern is not None:
            raise PlanningError("read_delta_lake reads one table: give `paths` one entry, `- folder:` with its folder.")
        self._folder = entries[0].folder
        self._url = None if self._folder.startswith(b"/") else remote_url(self._folder, roots)
        self._read = read
        self._roots = roots
        _refuse_ways_out(self._folder, roots)
        self._table = _open(self._folder, self._url, read)
        self._refuse_unreadable()
        self._schema = pyarrow.schema([_plain(field) for field in pyarrow.schema(self._table.schema().to_arrow())])
        check_path_column(read.include_path_column, self._schema.names)

    def files(self) -> list[TableFile]:
        """The files, sorted by path component, each with its rows by row group. Raises PlanningError."""
        actions = pyarrow.table(self._table.get_add_actions(flatten=False))
        keys = self.partition_columns
        found: list[tuple[bytes, str]] = []
        for at, path in enumerate(actions.column("path").to_pylist()):
            constants = ""
            if keys:
                values = actions.column("partition")[at]
                constants = _packed([self._schema.field(key) for key in keys], [values[key] for key in keys])
            found.append((self._absolute(path), constants))
        found.sort(key=lambda one: one[0].split(b"/"))
        # Each file of a store takes some requests.
        with ThreadPoolExecutor(LOOKS_MAX) as pool:
            return list(pool.map(_looked_at, *zip(*found, strict=True))) if found else []

    @property
    def partition_columns(self) -> list[str]:
        """The columns whose values the log holds for each file."""
        return list(self._table.metadata().partition_columns)

    def pin(self) -> dict[str, Any]:
        """The reader document; the table itself names its columns."""
        return {
            "kind": "table",
            "format": "parquet",
            "schema": pack_schema(self._schema),
            "mixed": [],
            "path_column": self._read.include_path_column,
        }

    def _absolute(self, path: str) -> bytes:
        """The absolute name for a path of the log, which is percent-encoded and may be a URI."""
        scheme, colon, rest = path.partition("://")
        if colon and scheme != "file":
            return str(remote_url(os.fsencode(unquote(path)), self._roots)).encode()
        if self._url is not None:
            if colon:
                raise PlanningError(
                    f"The Delta table {shown(self._folder)} has a file elsewhere, {path}, which only the machine "
                    "that wrote the table can read. Copy the table as a whole."
                )
            return str(remote_url(str(self._url.below(unquote(path))).encode(), self._roots)).encode()
        name = os.path.normpath(os.path.join(self._folder, os.fsencode(unquote(rest if colon else path))))
        if self._roots is not None and not self._roots.hold(name):
            raise outside(name, self._roots)
        return name

    def _refuse_unreadable(self) -> None:
        protocol = self._table.protocol()
        named = f"The Delta table {shown(self._folder)}"
        mapping = self._table.metadata().configuration.get("delta.columnMapping.mode", "none")
        unknown = sorted(set(protocol.reader_features or ()) - set(_FEATURES))
        if mapping != "none":
            unknown = sorted({*unknown, "columnMapping"})
        if protocol.min_reader_version > 3 or unknown:
            what = ", ".join(unknown) or f"version {protocol.min_reader_version} of the reader protocol"
            raise PlanningError(
                f"{named} uses {what}, which cannot be read correctly. Rewrite the table without it, or export it as "
                "Parquet files and use read_parquet."
            )
        if "deletionVectors" in (protocol.reader_features or ()) and _has_deletion_vectors(self._table):
            raise PlanningError(
                f"{named} has deletion vectors: rows that are deleted, but still in its files. That is not "
                "supported. Rewrite the table without them (REORG TABLE … APPLY (PURGE)), then submit the job again."
            )


def _refuse_ways_out(folder: bytes, roots: Roots | None) -> None:
    """Raise PlanningError if the package would read a different folder than the one that was checked."""
    if unquote_to_bytes(folder) != folder:
        raise PlanningError(
            f"The Delta table {shown(folder)} has a path that contains what looks like a percent escape, which the "
            "package deltalake would decode. Rename the folder."
        )
    log = os.path.join(folder, b"_delta_log")
    if roots is None or not os.path.isdir(log):
        return
    for path in (log, *(os.path.join(log, name) for name in os.listdir(log))):
        if not roots.hold(path):
            raise outside(path, roots)


def _looked_at(name: bytes, constants: str) -> TableFile:
    """A file of the log as it is now. Raises PlanningError."""
    if name.startswith(b"/"):
        file = stat_file(name)
    else:
        with storage_errors():
            found = stat_object(parse_url(name.decode()))
        if found is None:
            raise PlanningError(
                f"{shown(name)} is a file of the Delta table, but does not exist. The table may have been vacuumed; "
                "a newer version may be complete."
            )
        file = TableFile(name, found.size, 0, etag=found.version)
    return with_row_groups(file._replace(constants=constants))


def _has_deletion_vectors(table: DeltaTable) -> bool:
    from deltalake.exceptions import DeltaError

    try:
        return any(batch.num_rows for batch in table.deletion_vectors())
    except DeltaError:
        return True  # it has at least one, which cannot be examined


def _open(folder: bytes, url: StorageUrl | None, read: ReadDelta) -> DeltaTable:
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError
    except ModuleNotFoundError as error:
        raise PlanningError(
            f"read_delta_lake needs the package deltalake on the machine of the master: {error}. Install it there: "
            "pip install 'windrow[delta]'"
        ) from error
    try:
        # Given as a URI: in a path, spaces and percent signs would be taken as parts of a URI.
        if url is None:
            table = DeltaTable("file://" + quote(folder))
        else:
            with storage_errors():
                table = DeltaTable(f"{url.root}/{quote(url.key)}", storage_options=store_options(url))
    except TableNotFoundError as error:
        raise PlanningError(
            f"{shown(folder)} is not a Delta table: it has no _delta_log. Give the folder of a Delta table."
        ) from error
    except (DeltaError, OSError, ValueError) as error:
        if url is None:
            raise PlanningError(f"The Delta table {shown(folder)} cannot be opened: {_line(error)}.") from error
        told = explained(error, "cannot be opened as a Delta table", str(url))
        raise PlanningError(str(told), USER_ERROR if told.trouble is Trouble.MISSING else DEPENDENCY_ERROR) from error
    latest = table.version()
    if read.version_as_of is not None and read.version_as_of > latest:
        raise PlanningError(
            f"The Delta table {shown(folder)} has no version {read.version_as_of}; the latest is {latest}."
        )
    try:
        if read.version_as_of is not None:
            table.load_as_version(read.version_as_of)
        elif read.timestamp_as_of is not None:
            table.load_as_version(datetime.fromisoformat(read.timestamp_as_of))
    except (DeltaError, OSError, ValueError) as error:
        asked = read.timestamp_as_of if read.version_as_of is None else f"version {read.version_as_of}"
        raise PlanningError(
            f"The Delta table {shown(folder)} cannot be read as of {asked}: {_line(error)}. Its log may have been "
            f"cleaned up; the latest version is {latest}."
        ) from error
    return table


def _line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _plain(field: Any) -> Any:
    """A column of the table with a type that every version of Arrow reads."""
    kind = {"string_view": pyarrow.string(), "binary_view": pyarrow.binary()}.get(str(field.type), field.type)
    return pyarrow.field(field.name, kind)


def _packed(fields: list[Any], values: list[Any]) -> str:
    """One row of values, as text for the listing and the recipes."""
    schema = pyarrow.schema(fields)
    arrays = [
        pyarrow.array([value.as_py()], value.type).cast(field.type) for value, field in zip(values, fields, strict=True)
    ]
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(pyarrow.RecordBatch.from_arrays(arrays, schema=schema))
    return base64.b64encode(sink.getvalue().to_pybytes()).decode("ascii")
