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


def below(reader: dict[str, Any], recipe: bytes, folder: str) -> tuple[dict[str, Any], bytes]:
    """The reader document and recipe with every local path moved below a folder, under the same path.

    Only the input that the recipe is of is moved. Raises what `local_files` does.
    """
    kind = reader.get("kind")
    if kind == "inputs":
        number, nul, rest = recipe.partition(b"\0")
        at = int(number)
        inner, moved = below(reader["inputs"][at], rest, folder)
        return {**reader, "inputs": [*reader["inputs"][:at], inner, *reader["inputs"][at + 1 :]]}, number + nul + moved
    if kind == "files":
        if is_remote(reader["root"]):
            return reader, recipe
        prefix = os.fsencode(folder)
        names = [prefix + name if name.startswith(b"/") else name for name in recipe.split(b"\0")]
        root = reader["root"]
        return {**reader, "root": folder + root if root else root}, b"\0".join(names)
    if kind in ("table", "records"):
        where = json.loads(recipe)
        for part in where.get("parts", (where,)):
            if "file" in part and not is_remote(part["file"]):
                part["file"] = folder + part["file"]
        return reader, json.dumps(where, separators=(",", ":")).encode()
    return reader, recipe


def only(reader: dict[str, Any], recipe: bytes, item: int) -> bytes | None:
    """The recipe of one item alone, counted from 0; None if the items of this reader cannot be told apart.

    Raises what `local_files` does, and IndexError.
    """
    kind = reader.get("kind")
    if kind == "inputs":
        number, nul, rest = recipe.partition(b"\0")
        found = only(reader["inputs"][int(number)], rest, item)
        return None if found is None else number + nul + found
    if kind == "files" and "partition" not in reader:
        return recipe.split(b"\0")[item]
    return None
