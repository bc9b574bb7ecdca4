"""Rows of a CSV file: commas, quoting as in RFC 4180, lines that end with a line feed, below their own header line."""

from __future__ import annotations

import re

from windrow_worker.rows.formats import Written
from windrow_worker.rows.formats.csv_columns import fit_rows, header_length, join_headers
from windrow_worker.rows.formats.mappings import check_rows, column_names, frame_names, is_missing
from windrow_worker.rows.return_values import BadReturn, encode_text, is_dataframe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from windrow_worker.rows.dataframe import DataFrameWriter

_ROWS = 1024
_SPECIAL = re.compile('[,"\r\n]')


class CsvWriter:
    """The `FormatWriter` of CSV. One serves one step."""

    def __init__(self, to_csv: Dict[str, Any]) -> None:
        self._arguments = {"sep": ",", "index": False, **to_csv}
        self._missing = str(to_csv.get("na_rep") or "")
        self._frames: Optional[DataFrameWriter] = None

    def write(self, value: Any, write: Callable[[Any], None]) -> Written:
        """Writes the rows of a value; `FormatWriter.write` says what it may raise."""
        if is_dataframe(value):
            return Written(self._write_frame(value, write), len(value))
        check_rows(value, "csv")
        if not len(value):
            return Written(b"", 0)
        names = column_names(value)
        header = encode_text(_line(names, ""), 0)
        write(header)
        lines: List[str] = []
        for at, row in enumerate(value):
            lines.append(_line([row.get(name) for name in names], self._missing))
            if len(lines) == _ROWS or at == len(value) - 1:
                write(encode_text("".join(lines), at))
                lines = []
        return Written(header, len(value))

    def join(self, parts: List[bytes], write: Callable[[Any], None]) -> bytes:
        """Writes parts as one; `FormatWriter.join` says how."""
        header = join_headers(part[: header_length(part)] for part in parts)
        write(header)
        for part in parts:
            for piece in fit_rows([part], header, self._missing.encode()):
                write(piece)
        return header

    def _write_frame(self, frame: Any, write: Callable[[Any], None]) -> bytes:
        if frame.columns.nlevels > 1:
            frame_names(frame, "csv")
        if len(frame) and not frame.shape[1]:
            raise BadReturn(
                "The DataFrame that run() returned has rows but no columns; a CSV file would contain only blank "
                "lines. The index is not written: turn it into columns with reset_index()"
            )
        if self._frames is None:
            from windrow_worker.rows.dataframe import DataFrameWriter

            self._frames = DataFrameWriter(self._arguments, True, quotes_returns=True)
        header = self._frames.header_of(frame)
        if header:
            write(header)
            self._frames.write(frame, write)
        return header


def _line(values: List[Any], missing: str) -> str:
    fields = [missing if is_missing(value) else str(value) for value in values]
    fields = ['"' + field.replace('"', '""') + '"' if _SPECIAL.search(field) else field for field in fields]
    if fields == [""]:
        # Otherwise this would be a blank line, which readers skip.
        return '""\n'
    return ",".join(fields) + "\n"
