"""The values, of their pinned types, that columns from paths have for a file. Standard library only."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from windrow_worker.tables.columns import Column, convert
from windrow_worker.tables.partition_format import PathColumns, compile_format


class PathColumnsPlan:
    """Where the columns of some formats go, and of which types they are.

    Its JSON form: `formats`, `columns` (`Column`, one a name; dates as they are), `at` (position of the
    first one in the DataFrame; None: behind all).
    """

    def __init__(self, document: Dict[str, Any]) -> None:
        self._columns = PathColumns([compile_format(text) for text in document["formats"]])
        self._types = [Column.from_json(value) for value in document["columns"]]
        self.at = document["at"]

    def values(self, file: str) -> List[Tuple[Column, Any, str]]:
        """Each column with its value for a file (dates as nanoseconds), and the text if that did not fit its type."""
        found = []
        for column, value in zip(self._types, self._columns.values_of(file, self._columns.names)):
            if isinstance(value, str):
                converted = convert(column, [value])
                found.append((column, converted.values[0], value if converted.misfits else ""))
            else:
                found.append((column, value, ""))
        return found
