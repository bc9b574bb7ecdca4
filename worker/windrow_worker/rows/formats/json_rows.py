"""Rows of a JSON lines file: one object per row; missing values, and those that JSON lacks (NaN), are null."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from windrow_worker import failures
from windrow_worker.rows.formats import Written
from windrow_worker.rows.formats.mappings import check_rows, frame_names, is_missing
from windrow_worker.rows.return_values import BadReturn, is_dataframe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List


_ROWS = 1024


class JsonLinesWriter:
    """The `FormatWriter` of JSON lines. One serves one step."""

    def write(self, value: Any, write: Callable[[Any], None]) -> Written:
        """Writes the rows of a value; `FormatWriter.write` says what it may raise."""
        if not is_dataframe(value):
            check_rows(value, "jsonl")
            rows: Iterator[Mapping[Any, Any]] = iter(value)
        else:
            rows = _rows_of(value)
        lines: List[bytes] = []
        count = 0
        for row in rows:
            lines.append(_line(row, count))
            count += 1
            if len(lines) == _ROWS:
                write(b"".join(lines))
                lines = []
        if lines:
            write(b"".join(lines))
        return Written(b"", count)

    def join(self, parts: List[bytes], write: Callable[[Any], None]) -> bytes:
        """Writes parts as one; `FormatWriter.join` says how."""
        for part in parts:
            write(part)
        return b""


def _rows_of(frame: Any) -> Iterator[Dict[str, Any]]:
    names = frame_names(frame, "jsonl")
    for start in range(0, len(frame), _ROWS):
        part = frame.iloc[start : start + _ROWS]
        columns = [part.iloc[:, at].astype(object).tolist() for at in range(len(names))]
        if not columns:
            for _ in range(len(part)):
                yield {}
        for values in zip(*columns):
            yield dict(zip(names, values))


def _line(row: Mapping[Any, Any], index: int) -> bytes:
    plain = row if isinstance(row, dict) else dict(row)
    try:
        try:
            text = _ENCODER.encode(plain)
        except ValueError:
            # NaN or infinity; or a structure that contains itself, which fails again.
            text = _ENCODER.encode(_finite(plain))
        try:
            return text.encode("utf-8") + b"\n"
        except UnicodeEncodeError:
            # A lone surrogate, as in a file name: JSON can only have it as an ASCII escape.
            return json.dumps(json.loads(text), separators=(",", ":")).encode("ascii") + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise BadReturn(
            f"Row {index} of what run() returned cannot be written as JSON: {failures.describe(error)}. "
            "Use strings, numbers, booleans, dates, None, and lists and dicts of them"
        ) from error


def _plain(value: Any) -> Any:
    """Turns a value that JSON lacks into one that it has. Raises TypeError."""
    import datetime
    import decimal
    import pathlib
    import uuid

    if is_missing(value):
        return None
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, decimal.Decimal) and not value.is_finite():
        return None
    if isinstance(value, (decimal.Decimal, uuid.UUID, pathlib.PurePath, datetime.timedelta)):
        return str(value)
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        # A numpy scalar or array. What stays a numpy value (a date) becomes text, except a float with more digits.
        plain = value.tolist()
        if type(plain) is type(value) and value.dtype.kind == "f":
            return float(value)
        return (
            str(value) if type(plain) is type(value) or (isinstance(plain, int) and value.dtype.kind in "mM") else plain
        )
    raise TypeError(f"JSON has no {type(value).__name__}")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return _finite(_plain(value))
    return value


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
