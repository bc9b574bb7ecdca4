"""Pins columns, types and layouts of a delimited table from headers and a sample, before its first mini-batch.

Reference: docs/reference/azure-ml/mltable.md#misfits, #types, #plain-files, #delimited-text.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from windrow.spec.tables.mltable import ReadDelimited
from windrow_worker.tables.columns import Column, are_whole, infer
from windrow_worker.tables.delimited_text import Record, Text, distinct, widened
from windrow_worker.tables.encodings import ENCODINGS
from windrow_worker.tables.files import PATH
from windrow_worker.tables.partition_format import PathColumns

from windrow_master.planning.errors import PlanningError
from windrow_master.planning.listing.walk import Warn
from windrow_master.planning.tables.column_types import column_of
from windrow_master.planning.tables.common_header import CommonHeader
from windrow_master.planning.tables.delimited_files import Format, Head, read_head, sample_records
from windrow_master.planning.tables.files import TableFile, opened
from windrow_master.planning.tables.pin_paths import check_names, check_path_column, path_columns_json

SAMPLE_ROWS = 200
"""Rows from which types are inferred; `sample_size` overrides it. Reference: docs/reference/azure-ml/mltable.md#types.
"""
PLAIN_SAMPLE_ROWS = 2_000
"""Of plain files: their types need not be those of the vendor's reader, so fewer mini-batches meet a surprise."""
PLAIN_SAMPLE_VALUES = 100_000
"""About as many values: of a wide table, fewer rows."""


class PinnedDelimited(NamedTuple):
    """The reader document, and what cutting has to know: which files begin with a header (`header_at`: that of one
    file only), and what these are compared with."""

    reader: dict[str, Any]
    header: str
    header_at: int
    common_header: CommonHeader | None


class DelimitedPinning:
    """One table's pinning: all files are `looked_at` while listing, then `pin`."""

    def __init__(
        self, read: ReadDelimited, warn: Warn, paths: PathColumns, *, plain: bool, only_words: bool = False
    ) -> None:
        """`paths`: columns that a step before the reading takes from paths; their types are also inferred."""
        self._read = read
        self._paths = paths
        self._path_texts: dict[str, list[str | None]] = {name: [] for name in paths.names if name not in paths.dates}
        """Path columns of type text, with their values in the sample."""
        self._warn = warn
        self._plain = plain
        self._only_words = only_words
        # This is what the vendor's reader does: only in other encodings it also skips a blank line with CRLF.
        skip_returns = plain or read.encoding != "utf-8"
        text = Text(read.delimiter, read.support_multi_line, read.empty_as_string, skip_returns)
        self.how = Format(ENCODINGS[read.encoding], text)
        self._common_header: CommonHeader | None = None
        self._columns: list[str] = []
        self._position_of: dict[str, int] = {}
        """The position of each column, if each file has its own header."""
        self._layouts: list[list[int]] = []
        self._layout_of: dict[tuple[str, ...], int] = {}

    def looked_at(self, files: Iterable[TableFile]) -> Iterable[TableFile]:
        """The same files. If each has its own header, that is read as they pass: the columns are the union, by name."""
        return map(self._look_at, files) if self._read.header == "all_files_different_headers" else files

    def _look_at(self, file: TableFile) -> TableFile:
        with opened(file) as window:
            names = tuple(read_head(window, file, self.how, header=True).names or ())
        layout = self._layout_of.get(names)
        if layout is None:
            layout = self._layout_of[names] = len(self._layouts)
            self._layouts.append([self._column(name) for name in names])
        return file._replace(layout=layout)

    def _column(self, name: str) -> int:
        position = self._position_of.setdefault(name, len(self._columns))
        if position == len(self._columns):
            self._columns.append(name)
        return position

    def pin(self, files: Iterable[tuple[int, TableFile]]) -> PinnedDelimited:
        """Read the sample and decide. Raises PlanningError."""
        header_at, sample = self._sample(files)
        if self._read.header == "all_files_different_headers":
            fields: list[int | None] = [len(positions) for positions in self._layouts]
            for layout, record in sample:
                positions = self._layouts[layout]
                for at in range(len(positions), len(record)):
                    # Beyond its header, a file's column is named by its position.
                    positions.append(self._free_column(f"Column{at + 1}", positions))
        else:
            fields = [len(self._columns) if header_at >= 0 else None]
            width = max((len(record) for _, record in sample), default=0)
            self._columns = widened(self._columns, width)
            self._layouts = [list(range(len(self._columns)))]
        check_path_column(self._read.include_path_column, self._columns)
        check_names(self._paths, [*self._columns, PATH] if self._read.include_path_column else self._columns)
        rows = list(self._rows(sample))
        values = {name: [row[at] for row in rows] for at, name in enumerate(self._columns)}
        types = self._types({**self._path_texts, **values})
        reader = {
            "kind": "table",
            "format": "delimited",
            "columns": [types[name].to_json() for name in self._columns],
            "layouts": self._layouts,
            "fields": fields,
            **self.how.to_json(),
            "path_column": self._read.include_path_column,
            "null_objects": not self._plain,
        }
        if self._paths.names:
            # Behind `Path`, before the data.
            reader["path_columns"] = path_columns_json(self._paths, int(self._read.include_path_column), types)
        return PinnedDelimited(reader, self._read.header, header_at, self._common_header)

    def _free_column(self, name: str, taken: list[int]) -> int:
        if self._position_of.get(name) in taken:
            name = distinct([*self._columns, name])[-1]
        return self._column(name)

    def _sample(self, files: Iterable[tuple[int, TableFile]]) -> tuple[int, list[tuple[int, Record]]]:
        """The offset of the file whose header counts (-1 if none does), and the first records of the input with their
        layouts."""
        header_at, sample = -1, list[tuple[int, Record]]()
        wanted = self._read.sample_rows or (PLAIN_SAMPLE_ROWS if self._plain else SAMPLE_ROWS)
        bounded = self._plain and self._read.sample_rows is None
        for offset, file in files:
            with opened(file) as window:
                head = read_head(window, file, self.how, header=self._begins_with_header(header_at))
                if head.names is not None and header_at < 0:
                    header_at = offset
                    if bounded:
                        # Nobody shall wait longer for the types of a wide table than for those of a narrow one.
                        wanted = max(SAMPLE_ROWS, min(wanted, PLAIN_SAMPLE_VALUES // len(head.names)))
                    if self._read.header != "all_files_different_headers":
                        self._columns = head.names
                    if self._read.header == "all_files_same_headers":
                        self._common_header = CommonHeader(os.fsdecode(file.name), head.names, self._plain)
                if head.first_record is not None and len(sample) < wanted:
                    found = sample_records(window, file, self.how, head.first_record, wanted - len(sample))
                    if self._common_header is not None and head.names is not None:
                        order = self._common_header.order(file, head.names, len(head.names))
                        found = found if order is None else [_in_order(record, order) for record in found]
                    sample += [(file.layout, record) for record in found]
                    in_path = self._paths.values(os.fsdecode(file.name))
                    for name, texts in self._path_texts.items():
                        texts.extend([in_path[name]] * len(found))
            if len(sample) >= wanted:
                break
        return header_at, sample

    def _begins_with_header(self, header_at: int) -> bool:
        return self._read.header != "no_header" and (self._read.header != "from_first_file" or header_at < 0)

    def _rows(self, sample: list[tuple[int, Record]]) -> Iterable[list[str | None]]:
        """The sample by column."""
        for layout, record in sample:
            row: list[str | None] = [None] * len(self._columns)
            for value, at in zip(record, self._layouts[layout], strict=False):
                row[at] = value
            yield row

    def _types(self, sample: dict[str, list[str | None]]) -> dict[str, Column]:
        columns = {}
        for name, values in sample.items():
            column, undecidable = Column(name), False
            if self._read.infer:
                column, undecidable = infer(name, values, self._plain, self._only_words)
            overridden = any(name in override.columns for override in self._read.overrides)
            if column.type == "float" and are_whole(values) and not overridden:
                self._warn(
                    f'The column "{name}" has whole numbers of more than 64 bits, which become floats, as in Azure ML, '
                    "so their last digits change. Set its type to string in column_type_overrides of the MLTable file."
                )
            if undecidable and not overridden:
                self._warn(
                    f'The column "{name}" has dates, but the first {len(values)} values do not show whether the day '
                    "or the month comes first; it stays text. "
                    "Set its type in column_type_overrides of an MLTable file."
                )
            columns[name] = column
        for override in self._read.overrides:
            for name in override.columns:
                if name not in columns:
                    known = ", ".join(list(columns)[:50]) or "none"
                    raise PlanningError(
                        f'{override.place}: column_type_overrides names the column "{name}", which the data does not '
                        f"have. Its columns: {known}."
                    )
                columns[name] = column_of(name, override.type)
        return columns


def _in_order(record: Record, order: list[int]) -> Record:
    """A record whose values come in another order of columns; those beyond its header stay where they are."""
    values: Record = [None] * max(len(order), len(record))
    for at, value in enumerate(record):
        values[order[at] if at < len(order) else at] = value
    return values


def head_for_cutting(window: Any, file: TableFile, how: Format, header: str, is_header_file: bool) -> Head:
    """The head of a file that is being cut."""
    with_header = header in ("all_files_same_headers", "all_files_different_headers") or (
        header == "from_first_file" and is_header_file
    )
    return read_head(window, file, how, header=with_header)
