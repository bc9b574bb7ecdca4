"""Rows with different columns in one file: what stands above them, and each mini-batch with the columns of all.

The columns stand in the order in which they first appear in the rows, in output order. So the file is a function of the
rows: it depends neither on which mini-batch ended first nor on how the input was cut.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from windrow_master.core.headers import HEADER_BYTES_MAX, MIXED
from windrow_master.output.extents import SegmentReader, strides
from windrow_master.store.records import CommittedRange

if TYPE_CHECKING:
    import pyarrow

HEAD_BYTES = HEADER_BYTES_MAX + (64 << 10)
"""A header line or schema is shorter, with what stands before it."""


class OtherColumns(Exception):
    """Rows have columns that their fitting does not know."""


Heads = Callable[[], Iterable[tuple[bytes, bool]]]
"""Of all mini-batches in output order: the start of the rows, with the whole header, and whether there are rows."""


class Fitting(Protocol):
    """How the rows of each mini-batch get into one file."""

    @property
    def header(self) -> bytes:
        """What stands above all rows, as they come out of `fit`."""
        ...

    @property
    def keeps_rows(self) -> bool:
        """Whether the rows of each mini-batch come out of `fit` as they are."""
        ...

    @property
    def lacks_columns(self) -> bool:
        """Whether all rows are empty dicts, so that a file of this format cannot hold them."""
        ...

    def fit(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The rows of a mini-batch, cut anywhere. Raises OtherColumns if they have columns that are not known."""
        ...

    def copied_from(self, start: bytes) -> int | None:
        """From where on the rows of a mini-batch come out of `fit` as they are; None if they do not. `start`: how they
        begin."""
        ...


class LinesFitting:
    """Lines of text, and JSON lines: as they are."""

    keeps_rows = True
    lacks_columns = False

    def __init__(self, header: bytes | None) -> None:
        self.header = header or b""

    def fit(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The same pieces."""
        yield from pieces

    def copied_from(self, start: bytes) -> int | None:
        """From their start on."""
        return 0


class CsvFitting:
    """Rows of CSV, each mini-batch below its own header line."""

    keeps_rows = False

    def __init__(self, header: bytes | None, missing: bytes, heads: Heads) -> None:
        """`header`: as the step keeps it. `missing`: what stands where a mini-batch lacks a column. `heads`: read only
        if columns differ."""
        from windrow_worker.rows.formats import csv_columns

        self._columns = csv_columns
        self._missing = missing
        if header != MIXED:
            self.header = header or b""
        else:
            starts = (head[: csv_columns.header_length(head)] for head, _ in heads())
            self.header = csv_columns.join_headers(starts)
        self.lacks_columns = self.header == csv_columns.NO_COLUMNS

    def fit(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The rows without a header line, with the columns of all."""
        try:
            yield from self._columns.fit_rows(pieces, self.header, self._missing)
        except KeyError as error:
            raise OtherColumns from error

    def copied_from(self, start: bytes) -> int | None:
        """From behind the header line, if it is that of the file."""
        return len(self.header) if start.startswith(self.header) else None


class ArrowFitting:
    """Rows of Parquet, each mini-batch an Arrow stream."""

    header = b""

    def __init__(self, header: bytes | None, heads: Heads) -> None:
        """`header`: the schema, as the step keeps it. `heads`: read only if columns or types differ. Loading pyarrow
        takes a tenth of a second, which other formats need not spend. Raises RowsForged."""
        import pyarrow
        from windrow.common import arrow_rows
        from windrow_worker.rows.formats import arrow_columns

        self._rows = arrow_rows
        self._columns = arrow_columns
        self._joined: set[pyarrow.Schema] = set()
        self.keeps_rows = header != MIXED
        if header is None:
            joined = pyarrow.schema([])
        elif header != MIXED:
            joined = arrow_rows.read_schema(header)
        else:
            found = [(arrow_rows.schema_of(head), has_rows) for head, has_rows in heads()]
            self._joined = {schema for schema, _ in found}
            joined = arrow_columns.join_schemas(found)
        self.schema: pyarrow.Schema = pyarrow.schema(
            [pyarrow.field(field.name, arrow_columns.settle_type(field.type)) for field in joined]
        )
        """Of the file."""
        self.lacks_columns = header is not None and not self.schema.names
        self.mixed: dict[str, list[str]] = {
            field.name: types for field in joined if (types := arrow_columns.mixed_types(field))
        }
        """Columns of text that hold values of other types, and which."""

    def fit(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """An Arrow stream with the columns of all; as it is where no mini-batch has others."""
        if self.keeps_rows:
            yield from pieces
            return
        import pyarrow

        target = io.BytesIO()
        rows = self._rows.ArrowRows(b"".join(pieces), len(self.schema))
        if rows.schema not in self._joined:
            raise OtherColumns
        with pyarrow.ipc.new_stream(target, self.schema) as out:
            for batch in rows:
                out.write_batch(self.fit_batch(batch))
        yield target.getvalue()

    def copied_from(self, start: bytes) -> int | None:
        """From their start on, if no mini-batch has other columns."""
        return 0 if self.keeps_rows else None

    def fit_batch(self, batch: Any) -> Any:
        """A batch of rows as one of the file. Raises KeyError for a column that the file lacks, pyarrow.ArrowException
        for a decimal that the file's type does not hold."""
        return self._columns.fit_table(batch, self.schema)


def heads_of(segments: SegmentReader, ranges: Sequence[CommittedRange]) -> Iterator[tuple[bytes, bool]]:
    """As `Heads`, of some mini-batches. Rows that are lost are left out: who reads them finds them. Raises
    RowsUnreadable."""
    for stride, large in strides(ranges):
        if large:
            (row,) = stride
            if segments.is_sound(row):
                yield segments.file(row).read(HEAD_BYTES) or b"", bool(row.row_count)
            continue
        lost: list[CommittedRange] = []
        rows, at = segments.read(stride, lost), 0
        for row in stride:
            if row not in lost:
                yield rows[at : at + row.length], bool(row.row_count)
                at += row.length


def fit_all(rows: bytes, ranges: Sequence[CommittedRange], fitting: Fitting) -> tuple[bytes, list[int]]:
    """The rows of mini-batches that stand one behind the other, and the new length of each. Raises OtherColumns."""
    if fitting.keeps_rows:
        return rows, [row.length for row in ranges]
    fitted: list[bytes] = []
    lengths: list[int] = []
    at = 0
    for row in ranges:
        pieces = list(fitting.fit((rows[at : at + row.length],)))
        at += row.length
        fitted += pieces
        lengths.append(sum(map(len, pieces)))
    return b"".join(fitted), lengths


def make_fitting(row_format: str, header: bytes | None, missing: str, heads: Heads) -> Fitting:
    """The fitting of a step. `row_format`: as windrow.spec.settings.schema.ROW_FORMATS; `header`: as the step keeps it;
    `missing`: as the step writes a missing value into CSV."""
    if row_format == "csv":
        return CsvFitting(header, missing.encode(), heads)
    if row_format == "parquet":
        return ArrowFitting(header, heads)
    return LinesFitting(header)
