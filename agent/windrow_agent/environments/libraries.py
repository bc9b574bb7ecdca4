"""What the worker host needs in the Python of a script: for the tables it reads, and the rows it writes."""

from __future__ import annotations

from typing import Any


def needed_libraries(reader: Any, rows: Any) -> tuple[str, ...]:
    """Names of modules, for a step's reader and rows (docs/contracts.md, sections 3 and 4).

    The same that a client asks of `--python` (`windrow.embedded.job_interpreter`), told by the pinned reader.
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
