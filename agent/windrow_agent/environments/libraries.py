"""Libraries that the worker's host needs in the script's Python, for tables that it reads and rows that it writes."""

from __future__ import annotations

from typing import Any


def needed_libraries(reader: Any, rows: Any) -> tuple[str, ...]:
    """Names of modules, from a step's reader and rows documents (docs/contracts.md, sections 3 and 4).

    The client checks for the same ones with `--python` (`windrow.common.interpreter.check_interpreter`).
    """
    found: dict[str, None] = {}
    _add(reader, found)
    if isinstance(rows, dict) and rows.get("format") == "parquet":
        found["pyarrow"] = None
    return tuple(found)


def _add(reader: Any, found: dict[str, None]) -> None:
    if not isinstance(reader, dict):
        return
    if reader.get("kind") == "inputs":
        for one in reader.get("inputs", ()):
            _add(one, found)
    elif reader.get("kind") == "table":
        found["pandas"] = None
        if reader.get("format") in ("parquet", "sorted_rows"):
            found["pyarrow"] = None
