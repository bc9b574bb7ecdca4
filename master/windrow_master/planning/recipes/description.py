"""The items and the partition of a mini-batch in words, for reports such as failed_items.csv."""

from __future__ import annotations

import json
import os
from typing import Any

from windrow_master.planning.errors import shown
from windrow_master.planning.listing.stamps import unstamped


def describe_items(reader: dict[str, Any], recipe: bytes) -> list[str]:
    """The items of a mini-batch in words.

    - A list of files: one text for each item, its name.
    - A table or records: one text, `file:bytes a-b` (last byte included), or `file:row group n` for Parquet.
    - A table divided by keys in its paths: one such text for each part.
    - Rows sorted by keys: the values of the group.

    With several inputs, the text also names the input. Bytes of names that are not UTF-8 and control characters are
    escaped.
    """
    if reader["kind"] == "inputs":
        name, reader, recipe = _input_of(reader, recipe)
        items = describe_items(reader, recipe)
        return [f"{item} of input {name}" for item in items] if reader.get("format") == "sorted_rows" else items
    if reader["kind"] == "files":
        root = os.fsencode(reader["root"])
        remote = bool(reader.get("remote"))
        return [shown(os.path.join(root, unstamped(name, remote=remote))) for name in recipe.split(b"\0")]
    if reader["kind"] == "none":
        return ["(no input)"]
    value = json.loads(recipe)
    if reader.get("format") == "sorted_rows":
        return [f"the group {describe_partition(reader, recipe)}"]
    return [_part(part) for part in value.get("parts", (value,))]


def has_partition(reader: dict[str, Any]) -> bool:
    """Whether the input is divided by partition keys."""
    return "partition" in (reader["inputs"][0] if reader.get("kind") == "inputs" else reader)


def describe_partition(reader: dict[str, Any], recipe: bytes) -> str:
    """The values of the partition keys of a mini-batch as a JSON object; empty if the input has no keys."""
    if reader["kind"] == "inputs":
        _, reader, recipe = _input_of(reader, recipe)
    if "partition" not in reader:
        return ""
    # Only reports of inputs with keys need it.
    from windrow.spec.tables.partition_format import compile_format
    from windrow_worker.tables.partition_format import PathColumns, key_value

    partition = reader["partition"]
    if reader["kind"] == "files":
        columns = PathColumns([compile_format(text) for text in partition["formats"]])
        name = unstamped(recipe.split(b"\0", 1)[0], remote=bool(reader.get("remote")))
        first = os.path.join(os.fsencode(reader["root"]), name)
        told = columns.key_value(os.fsdecode(first), partition["keys"])
    else:
        told = key_value(partition["keys"], json.loads(recipe)["key"])
    return json.dumps(told, default=str, ensure_ascii=False)


def _input_of(reader: dict[str, Any], recipe: bytes) -> tuple[str, dict[str, Any], bytes]:
    """The name of the input that a recipe is of, how that is read, and the recipe for it."""
    number, _, rest = recipe.partition(b"\0")
    return reader["names"][int(number)], reader["inputs"][int(number)], rest


def _part(part: dict[str, Any]) -> str:
    file = shown(os.fsencode(part["file"]))
    if "row_group" in part:
        return f"{file}:row group {part['row_group']}"
    return f"{file}:bytes {part['begin']}-{part['end'] - 1}"
