"""Turns recipes into arguments of `run()`: makes the loader of a step, and contains the loaders of files."""

from __future__ import annotations

import os

from windrow_worker.loaded import Loaded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

    from windrow_worker.loaded import Loader


class FileLoader:
    """Mini-batches of files: a list of their paths, as text. The script opens them.

    A recipe holds the names, joined by NUL: raw bytes, relative to `root`, or absolute if that is empty. A name that is
    not valid text is decoded by `os.fsdecode`, so that `open` finds the file.
    """

    def __init__(self, root: str) -> None:
        self._prefix = os.path.join(root, "") if root else ""

    def load(self, recipe: bytes) -> Loaded:
        """The paths of one mini-batch."""
        names: List[str] = os.fsdecode(recipe).split("\0") if recipe else []
        prefix = self._prefix
        if prefix:
            names = [prefix + name for name in names]
        return Loaded(names, len(names))


class FileGroupLoader(FileLoader):
    """Mini-batches of files with the same values of the partition keys, which are in their paths."""

    def __init__(self, root: str, partition: Dict[str, Any]) -> None:
        """`partition`: its `keys`, and the `formats` of paths that contain them. `listed`: a recipe begins with the
        listed name of its first file, which has the values; the files have other names here.
        """
        from windrow_worker.tables.partition_format import PathColumns, compile_format

        super().__init__(root)
        self._columns = PathColumns([compile_format(text) for text in partition["formats"]])
        self._keys: List[str] = partition["keys"]
        self._listed = bool(partition.get("listed"))

    def load(self, recipe: bytes) -> Loaded:
        """The paths of one mini-batch, and its partition."""
        name = b""
        if self._listed:
            name, _, recipe = recipe.partition(b"\0")
        loaded = super().load(recipe)
        first = os.fsdecode(name) if name else loaded.value[0]
        loaded.partition_key_value = self._columns.key_value(first, self._keys)
        return loaded


class NothingLoader:
    """Mini-batches without any input (docs/reference/azure-ml/parallel-job.md#program-arguments,
    `--rank_mini_batch_count`): an empty list."""

    def load(self, recipe: bytes) -> Loaded:
        """Returns an empty list, whatever the recipe."""
        return Loaded([], 0)


class InputsLoader:
    """Mini-batches of several inputs, each with its own loader: a recipe begins with the input's number, and NUL."""

    def __init__(self, readers: List[Dict[str, Any]]) -> None:
        self._loaders = [make_loader(reader) for reader in readers]

    def load(self, recipe: bytes) -> Loaded:
        """Loads the rest of the recipe with the loader of its input."""
        number, _, rest = recipe.partition(b"\0")
        return self._loaders[int(number)].load(rest)


def make_loader(reader: Dict[str, Any]) -> Loader:
    """The loader for a step's reader document.

    Imports pandas if a reader is of kind "table". Raises MissingLibrary if it is not installed, what the import raises
    if it does not work, ValueError for an unknown kind.
    """
    kind = reader.get("kind")
    if kind == "files":
        root, partition = reader.get("root") or "", reader.get("partition")
        return FileLoader(root) if partition is None else FileGroupLoader(root, partition)
    if kind == "none":
        return NothingLoader()
    if kind == "records":
        # They need the standard library only.
        from windrow_worker.tables.json_lines import RecordsLoader

        return RecordsLoader(reader)
    if kind == "table":
        from windrow_worker import tables

        return tables.make_loader(reader)
    if kind == "inputs":
        return InputsLoader(reader["inputs"])
    raise ValueError(f"unknown reader kind {kind!r}; known: files, inputs, none, records, table")


def is_row_index_exact(reader: Dict[str, Any]) -> bool:
    """Whether the index of a mini-batch's first item in the whole input is known: the planner knew or counted all items
    before it.
    """
    return bool(reader.get("row_index_exact", reader.get("kind") in ("files", "none")))
