"""What every loader returns and raises."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Collection, Dict, Optional, Protocol, Sequence, Tuple

    class Loader(Protocol):
        """Reads the mini-batches of one step."""

        def load(self, recipe: bytes) -> Loaded:
            """Loads what the recipe describes. Raises InputChanged, InputMisread; any other exception is a failure to
            load.
            """
            ...


class InputChanged(Exception):
    """A file has changed since it was listed. The message names the file and what differs."""


class InputMisread(Exception):
    """The data is not what the planner cut: a part does not begin or end at a record, or has another number of them.
    The message says what is wrong, and where.
    """


class MissingLibrary(ImportError):
    """The interpreter lacks a library that a format needs. The message says what, where, and what to do."""

    def __init__(self, what: str, library: str, error: ImportError) -> None:
        """`what`: the words before "needs"; `error`: what the import raised."""
        import shlex

        python = shlex.quote(sys.executable)
        super().__init__(
            "%s needs %s in the Python that runs the script, %s: %s. Install it there (%s -m pip install %s), or run "
            "scripts in another Python (--python)" % (what, library, sys.executable, error, python, library)
        )


class Loaded:
    """A loaded mini-batch.

    - `value`: what `run()` gets. `item_count`: the number of files or rows, of those that cannot be read as well.
    - `unreadable`: rows that cannot be read, as (place in words, message); they are not in `value`, and come last when
      items are counted.
    - `misfits`: values that did not fit the pinned type of their column, as (column, count, example).
    - `partition_key_value`: the mini-batch's partition, if there is one.
    - `positions`, for a table: returns the place of each row in its file as an array of ascending numbers, the same
      however the file is cut.
    - `shown_as_null`: columns of a table with values that a DataFrame shows as null (not a number, or a time beyond its
      range). They keep their type, even if they have no other value.
    - `is_void`: no row of a table is left, after its steps or without its invalid lines; `run()` is not called.
    """

    __slots__ = (
        "is_void",
        "item_count",
        "misfits",
        "partition_key_value",
        "positions",
        "shown_as_null",
        "unreadable",
        "value",
    )

    def __init__(
        self,
        value: Any,
        item_count: int,
        misfits: Sequence[Tuple[str, int, str]] = (),
        partition_key_value: Optional[Dict[str, Any]] = None,
        positions: Optional[Callable[[], Any]] = None,
        is_void: bool = False,
        unreadable: Sequence[Tuple[str, str]] = (),
        shown_as_null: Collection[str] = (),
    ) -> None:
        self.value = value
        self.item_count = item_count
        self.misfits = misfits
        self.partition_key_value = partition_key_value
        self.positions = positions
        self.is_void = is_void
        self.unreadable = unreadable
        self.shown_as_null = shown_as_null

    @property
    def readable_count(self) -> int:
        """How many items `value` has."""
        return self.item_count - len(self.unreadable)
