"""Tables by columns of the data: all rows are sorted by the keys, out of core, and each group is a run of rows.

    slices ──► the worker's own reader, steps ──► DuckDB's sort (by keys, then input order) ──► file of sorted rows
                                                                                         └──► recipes, a line a group

Before the first mini-batch is sent, the file of sorted rows stands whole and synced where agents read it, and all
recipes are written. Slices in a store are fetched ahead of the reading. `recipe` of a position is where the
next one begins. A planner that ends before that begins again.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from windrow.common.durable import sync_folder
from windrow.common.removal import discard_tree

from windrow_master.planning.emitter import Emitter
from windrow_master.planning.errors import SYSTEM_ERROR, PlanningError
from windrow_master.planning.plan_files.plan_files import PlanFiles
from windrow_master.planning.sections import Section
from windrow_master.planning.tables.cut import recipes

MEMORY_BYTES = 512 * 1024 * 1024
"""The memory that DuckDB may use before it sorts on disk."""

SLICE_BYTES = 4 * 1024 * 1024
READ_BYTES = 1024 * 1024
SORT = "sort"
"""The folder for DuckDB's temporary files, beside the file of sorted rows."""

FOR_ALL = 0o755
"""Agents may run as another user."""


class RowsPlace(NamedTuple):
    """The place for the sorted rows of an input. `folder` is None if there is no place that agents can read."""

    folder: bytes | None
    file: str


def sort_rows(
    pinned: dict[str, Any],
    keys: Sequence[str],
    position: dict[str, Any],
    place: RowsPlace,
    plan_files: PlanFiles,
    emitter: Emitter,
) -> dict[str, Any]:
    """Sort the rows of an input, and write all its recipes; return the reader document. Raises PlanningError."""
    if place.folder is None:
        raise PlanningError(
            f"The input is divided by columns of the data ({', '.join(keys)}), and the sorted rows must be where the "
            "agents can read them: this master has no datastore named default. Start it with --datastore "
            "default=PATH for a folder that all nodes see."
        )
    gc.enable()  # DataFrames come and go, some in cycles
    with _scratch(Path(os.fsdecode(place.folder)), place.file) as path:
        return _shuffle({**pinned, "slice_bytes": SLICE_BYTES}, list(keys), position, path, plan_files, emitter)


def emit_row_groups(section: Section, at: int, plan_files: PlanFiles, emitter: Emitter) -> None:
    """Emit the recipes of an input, which are all written already, from an offset on."""
    rest, end = b"", section.recipes[1]
    offset, rows_at = at, len(emitter.mark) + len('{"rows":')
    while at < end:
        part = plan_files.recipes.read(at, min(end, at + READ_BYTES))
        at += len(part)
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            # {"rows":121,…
            rows = int(line[rows_at : line.index(b",")])
            following = offset + len(line) + 1
            emitter.add(rows, offset, len(line), zlib.crc32(line), {"recipe": following}, rank=size_class(rows))
            offset = following


def size_class(rows: int) -> int:
    """The rank of a group: its rows, rounded down to the two highest bits of the number. Groups of like size have one
    rank and run in the order in which they are stored, since a worker is far faster with the groups of one batch.
    """
    lower = max(rows.bit_length() - 2, 0)
    return rows >> lower << lower


@contextlib.contextmanager
def _scratch(folder: Path, file: str) -> Iterator[Path]:
    """The path of the file of sorted rows, in its folder, with none of what an earlier planner left of it."""
    path = folder / file
    try:
        folder.mkdir(parents=True, mode=FOR_ALL, exist_ok=True)
        folder.chmod(FOR_ALL)
        path.unlink(missing_ok=True)
        discard_tree(folder / SORT)
        try:
            yield path
        finally:
            discard_tree(folder / SORT)
    except OSError as error:
        raise PlanningError(
            f"The rows of the input cannot be sorted into {folder}: {error.strerror or error}. Free some space "
            "there, or give the master's user write permission, and submit the job again.",
            SYSTEM_ERROR,
        ) from error


def _shuffle(
    pinned: dict[str, Any],
    keys: list[str],
    position: dict[str, Any],
    path: Path,
    plan_files: PlanFiles,
    emitter: Emitter,
) -> dict[str, Any]:
    """Write the sorted rows and all recipes; return the reader document."""
    folder = path.parent
    duckdb = _duckdb()
    # pyarrow and pandas, only where rows are read.
    import pyarrow
    from windrow_worker.tables.sorted_sums import SUMS

    from windrow_master.planning.partitions.carried import ROW, Carried
    from windrow_master.planning.partitions.read_ahead import read_ahead
    from windrow_master.planning.partitions.row_schema import RowSchema
    from windrow_master.planning.partitions.rows import Rows
    from windrow_master.planning.partitions.sorted_rows import BATCH_ROWS, SortedRows

    row_schema = RowSchema(pinned["reader"])
    carried = Carried(row_schema.schema, row_schema.json_columns, keys)
    slices = (recipe for recipe, _, _ in recipes(pinned, position, plan_files, emitter.warn))
    rows = Rows(pinned["reader"], read_ahead(slices, str(folder)), row_schema, carried)
    order = ", ".join([*(f"{name} NULLS LAST" for name in carried.key_columns), ROW])
    config = {
        "memory_limit": f"{MEMORY_BYTES // 1024**2}MiB",
        "temp_directory": str(folder / SORT),
        "threads": str(min(os.cpu_count() or 1, 4)),
        "preserve_insertion_order": "false",
    }
    output = SortedRows(str(path), carried.written, keys)
    lines = _RecipeLines(keys, emitter.mark, plan_files)
    try:
        with duckdb.connect(config=config) as connection:
            connection.register("input", rows.reader())
            columns = ", ".join(name for name in carried.schema.names if name != ROW)
            found = connection.sql(f"SELECT {columns} FROM input ORDER BY {order}").to_arrow_reader(BATCH_ROWS)
            for batch in found:
                if batch.num_rows:
                    for begin, values in output.append(carried.unpack(batch)):
                        lines.begin(begin, values)
    except duckdb.Error as error:
        # What the reading of the input raised comes back as an error of DuckDB's, as text.
        raise rows.error or PlanningError(
            f"The rows of the input could not be sorted in {folder}: {error}. Free some space there, and submit the "
            "job again.",
            SYSTEM_ERROR,
        ) from error
    lines.finish(output.rows)
    sums_crc32 = output.finish()
    for file in (path, path.with_name(path.name + SUMS)):
        file.chmod(0o644)
    sync_folder(folder)
    sync_folder(folder.parent)
    for column, number, example in rows.misfits:
        emitter.count_misfits(number)
        emitter.warn(
            f'In the column "{column}", values that do not fit (null, cut, beyond the header, or left out): '
            f"{number:,}. For example {example}."
        )
    now = path.stat()
    return {
        "kind": "table",
        "format": "sorted_rows",
        "null_objects": pinned["reader"].get("null_objects", False),
        "file": str(path),
        "size": now.st_size,
        "mtime_ns": now.st_mtime_ns,
        "sums_crc32": sums_crc32,
        "batch_rows": BATCH_ROWS,
        "categories": [field.name for field in row_schema.schema if pyarrow.types.is_dictionary(field.type)],
        "json_columns": row_schema.json_columns,
        "partition": {"keys": keys},
        "row_index_exact": True,
    }


class _RecipeLines:
    """Writes the recipe of each group when the next one begins."""

    def __init__(self, keys: list[str], mark: bytes, plan_files: PlanFiles) -> None:
        self._keys = keys
        self._mark = mark
        self._recipes = plan_files.recipes
        self._open: tuple[int, list[Any]] | None = None
        self._lines: list[bytes] = []

    def begin(self, row: int, values: list[Any]) -> None:
        """A group with these values of the keys begins at a row."""
        self._close(row)
        self._open = row, values

    def finish(self, rows: int) -> None:
        """Write the recipe of the last group."""
        self._close(rows)
        self._write()

    def _close(self, end: int) -> None:
        if self._open is None:
            return
        begin, values = self._open
        recipe = {"rows": end - begin, "begin": begin, "key": values}
        line = json.dumps(recipe, separators=(",", ":"), default=str).encode()
        self._lines.append(self._mark + line + b"\n")
        if len(self._lines) >= 10_000:
            self._write()

    def _write(self) -> None:
        self._recipes.append(b"".join(self._lines))
        self._lines.clear()


def _duckdb() -> Any:
    try:
        import duckdb
    except ModuleNotFoundError as error:
        raise PlanningError(
            "The input is divided by columns of the data, which needs DuckDB on the master's machine. Install it there "
            "with: pip install 'windrow[partition]'."
        ) from error
    return duckdb
