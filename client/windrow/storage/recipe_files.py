"""The local files that a recipe names (docs/contracts.md, section 3)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from windrow.storage.urls import is_remote


def local_files(reader: dict[str, Any], recipe: bytes) -> Iterator[bytes]:
    """The local paths that a recipe names; none for rows that the planner has sorted.

    Raises ValueError, KeyError for a recipe that is not of this reader.
    """
    kind = reader.get("kind")
    if kind == "inputs":
        number, _, rest = recipe.partition(b"\0")
        yield from local_files(reader["inputs"][int(number)], rest)
    elif kind == "files":
        if is_remote(reader["root"]):
            return
        root = os.fsencode(reader["root"])
        for name in recipe.split(b"\0"):
            path = os.path.join(root, name)  # noqa: PTH118  bytes
            if path.startswith(b"/"):
                yield path
    elif kind in ("table", "records"):
        where = json.loads(recipe)
        for part in where.get("parts", (where,)):
            if "file" in part and not is_remote(part["file"]):
                yield os.fsencode(part["file"])
