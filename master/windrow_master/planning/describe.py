"""The items of a mini-batch in words, for reports such as failed_items.csv."""

from __future__ import annotations

import json
import os
from typing import Any

from windrow_master.planning.errors import shown


def describe_items(reader: dict[str, Any], recipe: bytes) -> list[str]:
    """The items of a mini-batch, one text an item where items have names: file lists.

    A mini-batch of a table, or of records, is one text: `file:bytes a-b` (last byte included), or `file:row group n`
    for Parquet.
    Bytes of names that are no UTF-8 and control characters are escaped.
    """
    if reader["kind"] == "files":
        root = os.fsencode(reader["root"])
        names = recipe.split(b"\0")
        if reader.get("remote"):
            # Without stamps (see `remote`); local names among them have none.
            names = [name if name.startswith(b"/") else name.partition(b"\n")[0] for name in names]
        return [shown(os.path.join(root, name)) for name in names]
    if reader["kind"] == "none":
        return ["(no input)"]
    value = json.loads(recipe)
    file = shown(os.fsencode(value["file"]))
    if "row_group" in value:
        return [f"{file}:row group {value['row_group']}"]
    return [f"{file}:bytes {value['begin']}-{value['end'] - 1}"]
