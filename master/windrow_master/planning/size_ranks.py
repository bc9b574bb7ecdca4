"""Which mini-batches of files begin first: those with far more bytes than others, because the last one to end decides
when the step ends.

Sizes count in classes, each four times as large as the one below; all mini-batches up to a mebibyte are of one class.
Within a class they run in the order of the input, so that a list of like files runs in order as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from windrow_master.planning.listing.stamps import stamp_of

RANKED_FILES_MAX = 32
"""With more files in a mini-batch, their sizes level out, and are not looked up."""

ALIKE_AFTER = 10_000
"""If the first so many files are all in mini-batches of the lowest class, no more sizes are looked up: that takes a
planner longer than to list them."""

ONE_CLASS_BITS = 20
"""2 to this power: the bytes up to which mini-batches are of one class."""

CLASS_BITS = 2
"""2 to this power: how many times as large each further class is."""


class SizeRanks:
    """The ranks of the mini-batches of one step.

    Args:
        files: Files in a mini-batch.
        root: The folder that local names are relative to; empty if they are absolute.
        remote: Some files are in a store, and their names have stamps.
    """

    def __init__(self, files: int, root: bytes, *, remote: bool) -> None:
        self.is_used = files <= RANKED_FILES_MAX
        self._root = root
        self._remote = remote
        self._bytes = 0
        self._looked_at = 0
        self._differ = False

    def count(self, names: Sequence[bytes]) -> None:
        """Add files to the mini-batch at hand. One that is gone counts nothing: loading it will say so."""
        if self.is_used and (self._differ or self._looked_at < ALIKE_AFTER):
            self._bytes += sum(map(self._size_of, names))
            self._looked_at += len(names)

    def take(self) -> int | None:
        """The rank of the mini-batch at hand, and begin the next one; None if mini-batches have no ranks."""
        total, self._bytes = self._bytes, 0
        if not self.is_used:
            return None
        rank = max(0, total.bit_length() - ONE_CLASS_BITS + CLASS_BITS - 1) // CLASS_BITS
        self._differ = self._differ or rank > 0
        return rank

    @property
    def lowest(self) -> int | None:
        """The rank of a mini-batch that does not run; None if mini-batches have no ranks."""
        return 0 if self.is_used else None

    def _size_of(self, name: bytes) -> int:
        path = os.path.join(self._root, name)
        if self._remote and not path.startswith(b"/"):
            return stamp_of(name)[0]
        try:
            return os.stat(path).st_size
        except OSError:
            return 0
