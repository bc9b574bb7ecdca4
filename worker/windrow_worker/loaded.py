"""What every loader gives and raises, whatever the input is."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional, Protocol, Sequence, Tuple

    class Loader(Protocol):
        """Reads the mini-batches of one step."""

        def load(self, recipe: bytes) -> Loaded:
            """What the recipe describes. Raises InputChanged, InputMisread; anything else is a failure to load."""
            ...


class InputChanged(Exception):
    """A file is no longer what it was when it was listed. The message names the file and what differs."""


class InputMisread(Exception):
    """What was read is not what the planner has cut: a part does not begin or end at a record, or holds another number
    of them. The message says what, and where."""


class MissingLibrary(ImportError):
    """The interpreter lacks a library that a format needs. The message says what, where, and what to do."""

    def __init__(self, what: str, library: str, error: ImportError) -> None:
        """`what`: the words before "needs"; `error`: what the import raised."""
        import shlex

        python = shlex.quote(sys.executable)
        super().__init__(
            "%s needs %s in the Python that runs the script, %s: %s. Install it there (%s -m pip install %s), or let "
            "scripts run in another Python (--python)" % (what, library, sys.executable, error, python, library)
        )


class Loaded:
    """A loaded mini-batch.

    `value`: what `run()` gets. `item_count`: files, or rows. `misfits`: values that did not fit their column's
    pinned type, as (column, count, example). `partition_key_value`: the mini-batch's partition, where there is one.
    `positions`, of a table: tells where each row stands in its file, as an array of numbers that grow; the same
    however the file is cut. `is_void`: no row of a table is left, after its steps or of lines that are left out where
    they are invalid; `run()` is not called.
    """

    __slots__ = ("is_void", "item_count", "misfits", "partition_key_value", "positions", "value")

    def __init__(
        self,
        value: Any,
        item_count: int,
        misfits: Sequence[Tuple[str, int, str]] = (),
        partition_key_value: Optional[Dict[str, Any]] = None,
        positions: Optional[Callable[[], Any]] = None,
        is_void: bool = False,
    ) -> None:
        self.value = value
        self.item_count = item_count
        self.misfits = misfits
        self.partition_key_value = partition_key_value
        self.positions = positions
        self.is_void = is_void
