"""The typed values of columns from paths, for a file. Standard library only."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from windrow_worker.tables.columns import Column, convert
from windrow_worker.tables.partition_format import PathColumns, compile_format


class PathColumnsPlan:
    """Which columns come from paths, their types, and where they go.

    Its JSON form: `formats`, `columns` (`Column`, one for each name; dates unchanged), `at` (position of the first one
    in the DataFrame; None for after all others).
    """

    def __init__(self, document: Dict[str, Any]) -> None:
        self._columns = PathColumns([compile_format(text) for text in document["formats"]])
        self._types = [Column.from_json(value) for value in document["columns"]]
        self.at = document["at"]

    def values(self, file: str) -> List[Tuple[Column, Any, str]]:
        """Returns each column with its value for a file (dates as nanoseconds), and the text if it did not fit the
        column's type.
        """
        found = []
        for column, value in zip(self._types, self._columns.values_of(file, self._columns.names)):
            if isinstance(value, str):
                converted = convert(column, [value])
                found.append((column, converted.values[0], value if converted.misfits else ""))
            else:
                found.append((column, value, ""))
        return found
