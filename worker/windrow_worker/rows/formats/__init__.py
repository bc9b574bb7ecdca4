"""Rows of files with a format (`--append_row_format`): CSV, JSON lines, Parquet. `run()` returns a DataFrame or a list
of dicts; both become bytes that the master can concatenate without looking at single rows.
"""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Protocol

    class FormatWriter(Protocol):
        """Writes what `run()` returned in one format."""

        def write(self, value: Any, write: Callable[[Any], None]) -> Written:
            """Writes the rows of a DataFrame or a sequence. Raises BadReturn for values that the format cannot hold."""
            ...

        def join(self, parts: List[bytes], write: Callable[[Any], None]) -> bytes:
            """Writes what `write` has written for the parts of a mini-batch as the rows of one; returns their header.
            Raises BadReturn."""
            ...


class Written(NamedTuple):
    """`header`: which columns the rows have, empty if the format does not need to know; `rows`: how many were written.

    Rows of a format whose mini-batches may differ in columns say themselves which they have: `header` only tells
    whether all are the same. Not the `Written` of `windrow.spec.v1`, which is an output.
    """

    header: bytes
    rows: int


def make_format_writer(name: str, to_csv: Dict[str, Any]) -> FormatWriter:
    """Makes the writer of a format. `to_csv`: arguments of `DataFrame.to_csv` that a CSV file leaves open.

    Raises MissingLibrary if Parquet is wanted and pyarrow is not installed, ValueError for an unknown name.
    """
    if name == "csv":
        from windrow_worker.rows.formats.csv_rows import CsvWriter

        return CsvWriter(to_csv)
    if name == "jsonl":
        from windrow_worker.rows.formats.json_rows import JsonLinesWriter

        return JsonLinesWriter()
    if name == "parquet":
        from windrow_worker.loaded import MissingLibrary

        try:
            from windrow_worker.rows.formats.parquet_rows import ParquetRowsWriter
        except ModuleNotFoundError as error:
            raise MissingLibrary("Output of format parquet", "pyarrow", error) from error
        return ParquetRowsWriter()
    raise ValueError("unknown format of rows %r; known: csv, jsonl, parquet" % name)
