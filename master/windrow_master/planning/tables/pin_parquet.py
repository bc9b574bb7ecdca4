"""Pins the schema of a Parquet table from the footers of all files.

Reference: docs/reference/azure-ml/mltable.md#partitions, #parquet.
"""

from __future__ import annotations

import io
import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, Any, NamedTuple

import pyarrow
import pyarrow.parquet
from windrow.spec.tables.mltable import ReadParquet
from windrow.storage.objects import ObjectFile
from windrow.storage.urls import parse_url
from windrow_worker.tables.columns import FLOAT_EXACT
from windrow_worker.tables.parquet import converted, pack_schema

from windrow_master.planning.errors import PlanningError, shown
from windrow_master.planning.listing.remote import storage_errors
from windrow_master.planning.memory import reading
from windrow_master.planning.tables.files import TableFile, open_local
from windrow_master.planning.tables.pin_paths import check_path_column

LOOKS_MAX = 16
"""The number of files in remote storage that are read at the same time."""
SLACK_BYTES = 512
"""Extra bytes after a column chunk: some writers record too short a length, and readers read on."""


def with_row_groups(file: TableFile) -> TableFile:
    """A file with the rows of each of its row groups, and where they are. Raises PlanningError."""
    footer = _footer(file)
    return file._replace(rows=footer.rows, spans=footer.spans)


class _Footer(NamedTuple):
    """A file's rows by row group, its schema, (in a store) the bytes of row groups and footer, and as `_integers`
    finds them, if nulls were looked for, the columns with nulls and those beyond floats."""

    rows: tuple[int, ...]
    schema: pyarrow.Schema
    spans: tuple[tuple[int, int], ...]
    with_nulls: set[str]
    beyond_floats: set[str]


def _footer(file: TableFile, *, looks_for_nulls: bool = False) -> _Footer:
    if not file.size:
        # As beside text: a file of no bytes has no rows.
        return _Footer((), pyarrow.schema([]), (), set(), set())
    try:
        with (
            storage_errors(),
            reading(file.name),
            _open(file) as opened,
            pyarrow.parquet.ParquetFile(opened) as parquet,
        ):
            metadata = parquet.metadata
            rows = tuple(metadata.row_group(at).num_rows for at in range(metadata.num_row_groups))
            if min(rows, default=0) < 0:
                raise PlanningError(
                    f"{shown(file.name)} cannot be read as Parquet: it says that a row group has {min(rows):,} rows. "
                    "Remove it from the input, or rewrite it."
                )
            spans = _spans(metadata, file.size) if file.is_remote else ()
            with_nulls, beyond_floats = _integers(metadata) if looks_for_nulls else (set(), set())
            return _Footer(rows, parquet.schema_arrow, spans, with_nulls, beyond_floats)
    except (OSError, pyarrow.ArrowException) as error:
        raise PlanningError(
            f"{shown(file.name)} cannot be read as Parquet: {' '.join(str(error).split()).rstrip('.')}. "
            "Remove it from the input, or rewrite it."
        ) from error


class ParquetPinning:
    """One table's pinning: all files are `looked_at` while listing, then `pin`."""

    def __init__(self, read: ReadParquet, *, plain: bool) -> None:
        self._read = read
        self._plain = plain
        self._file_count = 0
        self._files = Counter[str]()
        """The number of files that have each column."""
        self._with_nulls: set[str] = set()
        self._beyond_floats: set[str] = set()
        self._fields: dict[str, pyarrow.Field] = {}
        self._types: dict[str, set[pyarrow.DataType]] = {}
        """The types that files have for each column, which is read as the type of its field."""
        self._mixed: set[str] = set()

    def looked_at(self, files: Iterable[TableFile]) -> Iterator[TableFile]:
        """Yield each file with the rows of its row groups, and join the columns by name. Raises PlanningError.

        In remote storage a footer takes a request or two, so several are read at a time.
        """
        waiting: deque[tuple[TableFile, Future[_Footer]]] = deque()
        with ThreadPoolExecutor(LOOKS_MAX, "footer") as pool:
            for file in files:
                if not file.is_remote:
                    yield from self._taken(waiting, 0)
                    yield self._with(file, _footer(file, looks_for_nulls=self._plain))
                    continue
                waiting.append((file, pool.submit(_footer, file, looks_for_nulls=self._plain)))
                yield from self._taken(waiting, LOOKS_MAX)
            yield from self._taken(waiting, 0)

    def _taken(self, waiting: deque[tuple[TableFile, Future[_Footer]]], left: int) -> Iterator[TableFile]:
        while len(waiting) > left:
            file, footer = waiting.popleft()
            yield self._with(file, footer.result())

    def _with(self, file: TableFile, footer: _Footer) -> TableFile:
        repeated = [name for name, number in Counter(footer.schema.names).items() if number > 1]
        if repeated:
            raise PlanningError(f'{shown(file.name)} has several columns named "{repeated[0]}"; rename them.')
        if not any(footer.rows):
            # As seen: without a row, it has no columns either. Writers of nothing often do not know the types.
            return file._replace(rows=footer.rows, spans=footer.spans)
        self._file_count += 1
        self._files.update(footer.schema.names)
        self._with_nulls |= footer.with_nulls
        self._beyond_floats |= footer.beyond_floats
        for field in footer.schema:
            self._join(field)
        return file._replace(rows=footer.rows, spans=footer.spans)

    def _join(self, field: pyarrow.Field) -> None:
        known = self._fields.get(field.name)
        self._types.setdefault(field.name, set()).add(field.type)
        if known is None:
            self._fields[field.name] = pyarrow.field(field.name, field.type)
        elif known.type != field.type and field.name not in self._mixed:
            try:
                pair = [pyarrow.schema([known]), pyarrow.schema([pyarrow.field(field.name, field.type)])]
                self._fields[field.name] = pyarrow.unify_schemas(pair, promote_options="permissive").field(0)
            except pyarrow.ArrowException:
                # Such as numbers in one file and text in another: objects, each as stored.
                self._mixed.add(field.name)

    def pin(self) -> dict[str, Any]:
        """The reader document. Raises PlanningError."""
        for name, field in self._fields.items():
            if not all(_reads_as(kind, field.type) for kind in self._types[name]):
                self._mixed.add(name)
        check_path_column(self._read.include_path_column, self._fields)
        return {
            "kind": "table",
            "format": "parquet",
            "schema": pack_schema(pyarrow.schema(list(self._fields.values()))),
            "mixed": sorted(self._mixed),
            "path_column": self._read.include_path_column,
            **({"whole": self._whole()} if self._plain else {}),
        }

    def _whole(self) -> dict[str, bool]:
        """The columns of integers, and of each whether it holds floats, since somewhere it has nulls."""
        integers = (name for name, field in self._fields.items() if pyarrow.types.is_integer(field.type))
        return {
            name: (name in self._with_nulls or self._files[name] < self._file_count) and name not in self._beyond_floats
            for name in integers
            if name not in self._mixed
        }


def _reads_as(kind: pyarrow.DataType, pinned: pyarrow.DataType) -> bool:
    """Whether a column of a file can be read as the pinned type.

    Arrow also joins types between which it cannot convert, and the largest unsigned numbers with signed ones.
    """
    if kind == pinned:
        return True
    try:
        converted(pyarrow.nulls(1, kind), pinned)
    except pyarrow.ArrowException:
        return False
    return not (pyarrow.types.is_uint64(kind) and pyarrow.types.is_int64(pinned))


def _open(file: TableFile) -> IO[bytes]:
    if file.is_remote:
        # Buffered, so that a footer is one request or two.
        return io.BufferedReader(
            ObjectFile(parse_url(os.fsdecode(file.name)), file.size, file.etag), buffer_size=64 * 1024
        )
    return open(open_local(file), "rb")


def _integers(metadata: Any) -> tuple[set[str], set[str]]:
    """The columns of integers of which the file says that they have nulls, and those that have numbers which floats do
    not have."""
    with_nulls, beyond_floats = set[str](), set[str]()
    for at in range(metadata.num_row_groups):
        group = metadata.row_group(at)
        for index in range(group.num_columns):
            chunk = group.column(index)
            if chunk.physical_type not in ("INT32", "INT64") or not chunk.is_stats_set:
                continue
            statistics = chunk.statistics
            if statistics.null_count:
                with_nulls.add(chunk.path_in_schema)
            ends = (statistics.min, statistics.max) if statistics.has_min_max else ()
            # Of times and decimals they are no integers.
            if any(isinstance(end, int) and abs(end) > FLOAT_EXACT for end in ends):
                beyond_floats.add(chunk.path_in_schema)
    return with_nulls, beyond_floats


def _spans(metadata: Any, size: int) -> tuple[tuple[int, int], ...]:
    """The bytes of each row group, and those of the footer."""
    spans = []
    for at in range(metadata.num_row_groups):
        group = metadata.row_group(at)
        begins, ends = [size], [0]
        for index in range(group.num_columns):
            chunk = group.column(index)
            begin = chunk.data_page_offset
            if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
                begin = min(begin, chunk.dictionary_page_offset)
            begins.append(begin)
            ends.append(begin + chunk.total_compressed_size + SLACK_BYTES)
        spans.append((min(begins), min(size, max(ends))))
    # The footer's length and the magic word come after it.
    return (*spans, (max(0, size - metadata.serialized_size - 8), size))
