"""From a recipe to what ``run()`` is given."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Protocol, Sequence, Tuple

    class Loader(Protocol):
        """Reads the mini-batches of one step."""

        def load(self, recipe: bytes) -> Loaded:
            """What the recipe describes. Raises InputChanged; anything else it raises is a failure to load."""
            ...


class InputChanged(Exception):
    """A file is no longer what it was when it was listed. The message names the file and what differs."""


class MissingLibrary(ImportError):
    """The interpreter lacks what the input's format needs. The message says what, where, and what to do."""


class Loaded:
    """A loaded mini-batch.

    ``value``: what ``run()`` gets. ``item_count``: files, or rows. ``misfits``: values that did not fit their column's
    pinned type, as (column, count, example). ``partition_key_value``: the mini-batch's partition, where there is one.
    """

    __slots__ = ("item_count", "misfits", "partition_key_value", "value")

    def __init__(
        self,
        value: Any,
        item_count: int,
        misfits: Sequence[Tuple[str, int, str]] = (),
        partition_key_value: Optional[Dict[str, Any]] = None,
    ) -> None:
        self.value = value
        self.item_count = item_count
        self.misfits = misfits
        self.partition_key_value = partition_key_value


class FileLoader:
    """Mini-batches of files: a list of their paths, as text. Opening them is the script's own matter.

    A recipe holds the names, joined by NUL: raw bytes, relative to ``root``, absolute where that is empty. A name that
    is no valid text comes out as :func:`os.fsdecode` makes it, so that ``open`` finds the file.
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


class NothingLoader:
    """Mini-batches without any input (reference 2.2, ``--rank_mini_batch_count``): an empty list."""

    def load(self, recipe: bytes) -> Loaded:
        """An empty list, whatever the recipe."""
        return Loaded([], 0)


def make_loader(reader: Dict[str, Any]) -> Loader:
    """The loader for a step's reader document.

    Imports pandas where the reader is of kind "table". Raises MissingLibrary where it is not installed, what the
    import raises where it does not work, ValueError for another kind.
    """
    kind = reader.get("kind")
    if kind == "files":
        return FileLoader(reader.get("root") or "")
    if kind == "none":
        return NothingLoader()
    if kind == "table":
        from windrow_worker import tables

        return tables.make_loader(reader)
    raise ValueError(f"unknown reader kind {kind!r}; known: files, none, table")
