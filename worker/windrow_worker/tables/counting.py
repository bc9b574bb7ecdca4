"""Counts the records of a slice without reading their values."""

from __future__ import annotations

from typing import Any, Dict

from windrow_worker.tables.delimited_text import Text
from windrow_worker.tables.encodings import to_text
from windrow_worker.tables.files import read_slice
from windrow_worker.tables.json_lines import InvalidLine, table_lines
from windrow_worker.tables.positions import line_positions, record_positions


def count_records(reader: Dict[str, Any], recipe: Dict[str, Any]) -> int:
    """The number of records in a slice of a text file. Raises OSError, InputChanged, InputMisread."""
    data, encoding = read_slice(recipe, reader["encoding"]), reader["encoding"]
    if reader["format"] == "json_lines":
        if reader["drop_invalid"]:
            text, plain = to_text(data, encoding, recipe["begin"]), reader.get("plain", False)
            return sum(not isinstance(line, InvalidLine) for line in table_lines(text, plain))
        return len(line_positions(data, recipe["begin"], encoding))
    return len(record_positions(data, recipe["begin"], encoding, Text(**reader["text"])))
