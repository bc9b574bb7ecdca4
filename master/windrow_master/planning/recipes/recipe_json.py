"""What a worker reads for a mini-batch, as JSON for people."""

from __future__ import annotations

import json
import os
from typing import Any

from windrow_master.planning.errors import shown
from windrow_master.planning.listing.stamps import unstamped

BYTES_MAX = 256 << 10


def recipe_json(reader: dict[str, Any], recipe: bytes) -> str:
    """A JSON object. If it would be longer than BYTES_MAX, its lists hold only their first entries.

    Lists of files: `files`, absolute. Tables and records: the recipe itself. With several inputs, `input` names the
    input. Bytes of names that are not UTF-8 and control characters are escaped.
    """
    document = _document(reader, recipe)
    text = json.dumps(document, ensure_ascii=False)
    entries = 1024
    while len(text.encode("utf-8", "backslashreplace")) > BYTES_MAX and entries:
        document = {name: _cut(value, entries) for name, value in document.items()}
        text = json.dumps(document, ensure_ascii=False)
        entries //= 4
    return text


def _document(reader: dict[str, Any], recipe: bytes) -> dict[str, Any]:
    kind = reader.get("kind")
    if kind == "inputs":
        number, _, rest = recipe.partition(b"\0")
        return {"input": reader["names"][int(number)], **_document(reader["inputs"][int(number)], rest)}
    if kind == "none":
        return {}
    if kind == "files":
        root, remote = os.fsencode(reader["root"]), bool(reader.get("remote"))
        names = (unstamped(name, remote=remote) for name in recipe.split(b"\0"))
        return {"files": [shown(os.path.join(root, name)) for name in names]}
    document: dict[str, Any] = json.loads(recipe)
    return document


def _cut(value: Any, entries: int) -> Any:
    if isinstance(value, list) and len(value) > entries:
        return [*value[:entries], f"[... {len(value) - entries:,} left out ...]"]
    if isinstance(value, str) and len(value) > 64 * entries:
        return f"{value[: 64 * entries]}[...]"
    return value
