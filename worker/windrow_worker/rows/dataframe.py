"""Rows of a DataFrame: what `DataFrame.to_csv` writes, piece by piece, the header apart
(docs/reference/azure-ml/parallel-job.md#dataframe-settings)."""

from __future__ import annotations

import json
import re
import sys

from windrow_worker import failures
from windrow_worker.rows.return_values import CLEANING, BadReturn, is_surrogate, unwritable_character

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

    from windrow_worker.rows.arrow_csv import FastCsv

_CHUNK_CELLS = 100000
"""pandas writes this many cells at a time, and chooses the format of dates for each chunk: ours must be the same."""

_FAST_CELLS_MIN = 5000
"""Below this, pandas takes a few milliseconds at most, and importing Arrow would take longer."""

_REFUSED = ("path_or_buf", "compression", "storage_options", "mode")

_SETTINGS_FILE = "parallel_run_step.settings.json"

_QUOTED_OR_END = re.compile('("(?:[^"]|"")*")|\r\n')


def _line_end_argument() -> str:
    import pandas

    return "line_terminator" if tuple(map(int, pandas.__version__.split(".")[:2])) < (1, 5) else "lineterminator"


def check_settings(settings: Dict[str, Any]) -> None:
    """Raises ValueError for arguments of `to_csv` that say where to write: rows go into the step's output."""
    for name in _REFUSED:
        if settings.get(name) not in (None, "infer" if name == "compression" else None):
            raise ValueError(
                f"the argument {name!r} of pandas.DataFrame.to_csv cannot be used in parallel_run_step.settings.json: "
                "rows are written into the step's output. Remove it"
            )


class DataFrameWriter:
    """Writes the DataFrames of one step."""

    def __init__(self, settings: Dict[str, Any], header: bool, quotes_returns: bool = False) -> None:
        """`settings`: arguments of `to_csv`; by default the separator is a space, and there is no index.

        `header`: whether column names are written; one among the settings means the same, or gives other names.
        `quotes_returns`: a field that holds a carriage return is quoted, as RFC 4180 wants it. Python's `csv`,
        which pandas writes with, does that only in newer versions, or where it belongs to the line end.
        """
        self._quotes_returns = quotes_returns
        self._settings = settings
        arguments = {name: value for name, value in settings.items() if name not in _REFUSED}
        for name in ("line_terminator", "lineterminator"):
            # The name of this argument depends on the version of pandas.
            if name in arguments:
                arguments[_line_end_argument()] = arguments.pop(name)
        self._encoding = arguments.pop("encoding", None) or "utf-8"
        # A file name that is not UTF-8 is written as its bytes, unless the settings say otherwise.
        self._errors = arguments.pop("errors", None) or "surrogateescape"
        # A byte order mark (utf-16, utf-8-sig) is written once, at the top of the file, like the header.
        self._mark = "".encode(self._encoding)
        aliases = arguments.pop("header", False)
        self._header = aliases or header
        arguments.setdefault("sep", " ")
        arguments.setdefault("index", False)
        self._arguments = arguments
        self._fast: Optional[FastCsv] = None
        self._tried_fast = False

    def header_of(self, frame: Any) -> bytes:
        """What comes above the rows: the byte order mark, if the encoding has one, and the header line, if it is
        wanted. A DataFrame without rows and columns has no header, like an empty list. Raises BadReturn.
        """
        if self._header is False:
            return self._mark
        if not len(frame) and not frame.shape[1]:
            return b""
        return self._mark + self._by_pandas(frame.iloc[:0], self._header)

    def write(self, frame: Any, write: Callable[[Any], None]) -> None:
        """Writes the rows with `write`. Raises BadReturn."""
        arguments = self._arguments
        length = len(frame)
        columns = arguments.get("columns")
        width = frame.shape[1] if columns is None else len(columns)
        step = max(1, int(arguments.get("chunksize") or _CHUNK_CELLS // (width or 1)))
        fast = self._fast_for(length * width)
        for start in range(0, length, step):
            chunk = frame if length <= step else frame.iloc[start : start + step]
            piece = fast.render(chunk) if fast is not None else None
            if piece is None or (self._quotes_returns and b"\r" in piece):
                piece = self._by_pandas(chunk, False, start)
            write(piece)

    def _by_pandas(self, frame: Any, header: Any, first_row: int = 0) -> bytes:
        """`first_row`: index of the chunk's first row, for messages."""
        try:
            text = frame.to_csv(None, header=header, **self._arguments)
            if self._quotes_returns and "\r" in text:
                text = frame.to_csv(None, header=header, **self._arguments, **{_line_end_argument(): "\r\n"})
                # Line ends outside quotes are line feeds again.
                text = _QUOTED_OR_END.sub(lambda found: found[1] or "\n", text)
            encoded: bytes = text.encode(self._encoding, self._errors)
        except UnicodeEncodeError as error:
            raise BadReturn(self._unwritable(frame, first_row, error)) from error
        except Exception as error:
            raise BadReturn(
                f"pandas could not write the returned DataFrame: {failures.describe(error)}{self._with_settings()}"
            ) from error
        return encoded[len(self._mark) :]

    def _unwritable(self, frame: Any, first_row: int, error: UnicodeEncodeError) -> str:
        """The message about a character that the encoding does not have."""
        place = _place_of(error.object[error.start], frame, first_row)
        advice = (
            CLEANING
            if is_surrogate(error)
            else f'Set another "encoding" in {_SETTINGS_FILE}, or use "errors" to set how such characters are handled'
        )
        return (
            f"The returned DataFrame holds {unwritable_character(error)}{place}, which text in {self._encoding} cannot "
            f"hold. {advice}"
        )

    def _with_settings(self) -> str:
        # Separator and index of a proper CSV file are the format's, not the user's.
        given = {
            name: value
            for name, value in self._settings.items()
            if not (self._quotes_returns and name in ("sep", "index"))
        }
        if not given:
            return ""
        called = json.dumps(given)
        return f". DataFrame.to_csv was called with {called} of {_SETTINGS_FILE}; correct that, or the DataFrame"

    def _fast_for(self, cells: int) -> Optional[FastCsv]:
        """Return the fast writer, if the settings allow it and Arrow is installed."""
        if not self._tried_fast and (cells >= _FAST_CELLS_MIN or "pyarrow" in sys.modules):
            self._tried_fast = True
            if self._encoding.lower().replace("_", "-") in ("utf-8", "utf8"):
                try:
                    from windrow_worker.rows.arrow_csv import FastCsv

                    self._fast = FastCsv.for_arguments(self._arguments)
                except Exception:
                    # No Arrow, or one that cannot be imported: pandas does it alone.
                    self._fast = None
        return self._fast


def _place_of(letter: str, frame: Any, first_row: int) -> str:
    """Where a character is in a DataFrame, if it is in a text of one of its columns."""
    for at, name in enumerate(frame.columns):
        for row, value in enumerate(frame.iloc[:, at].tolist(), first_row):
            if isinstance(value, str) and letter in value:
                return f" (column {name!r}, row {row})"
    return ""
