"""How large a mini-batch's data is, from its recipe."""

from __future__ import annotations

import json
import os
from typing import Any

from windrow_master.planning.listing.stamps import stamp_of


def bytes_of(reader: dict[str, Any], recipe: bytes) -> int | None:
    """The bytes of the files, or parts of files, in a mini-batch; None if it has none, or their size is not known."""
    if reader["kind"] == "inputs":
        number, _, rest = recipe.partition(b"\0")
        return bytes_of(reader["inputs"][int(number)], rest)
    if reader["kind"] == "none" or reader.get("format") == "sorted_rows":
        return None
    if reader["kind"] == "files":
        root = os.fsencode(reader["root"])
        return _total([_file_bytes(root, name, remote=bool(reader.get("remote"))) for name in recipe.split(b"\0")])
    value = json.loads(recipe)
    return _total([_part_bytes(part) for part in value.get("parts", (value,))])


def _total(sizes: list[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _file_bytes(root: bytes, name: bytes, *, remote: bool) -> int | None:
    if remote and not name.startswith(b"/"):
        return stamp_of(name)[0]
    try:
        return os.stat(os.path.join(root, name)).st_size  # noqa: PTH116, PTH118  bytes
    except OSError:
        return None


def _part_bytes(part: dict[str, Any]) -> int | None:
    if "row_group" not in part:
        begin, end = part["begin"], part["end"]
        return int(end - begin)
    if "spans" in part:
        # The last one is the footer's.
        return int(sum(end - begin for begin, end in part["spans"][:-1]))
    try:
        from pyarrow import parquet

        group = parquet.read_metadata(os.fsencode(part["file"]).decode()).row_group(part["row_group"])
        return int(sum(group.column(at).total_compressed_size for at in range(group.num_columns)))
    except Exception:  # whatever a damaged file does: the run will report it
        return None
