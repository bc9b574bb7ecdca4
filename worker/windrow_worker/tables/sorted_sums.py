"""The checksums that stand beside a file of sorted rows. The standard library alone."""

from __future__ import annotations

import struct
from typing import Any, Callable, List, Tuple
from zlib import crc32

from windrow_worker.loaded import InputChanged
from windrow_worker.tables.files import open_listed, printable

SUMS = ".sums"
"""Added to the name of the file: that of its checksums."""
SUM = struct.Struct("<QI")
"""Of a part of the file: where it ends, and its crc32."""


class SortedSums:
    """One a part: what is before the first batch, each batch, what is behind the last."""

    def __init__(self, name: str, sums_crc32: int) -> None:
        """`name`: the file of sorted rows; `sums_crc32`: of that of its checksums. Raises InputChanged, OSError."""
        self._name = name
        with open_listed(name + SUMS) as file:
            sums = file.read()
        if crc32(sums) != sums_crc32:
            raise InputChanged(_damaged(name + SUMS))
        self._sums: List[Tuple[int, int]] = list(SUM.iter_unpack(sums))

    def __len__(self) -> int:
        return len(self._sums)

    def verify(self, part: int, read: Callable[[int, int], Any]) -> None:
        """Raise InputChanged where a part of the file is not what was written. `read`: bytes from, and how many."""
        begin = self._sums[part - 1][0] if part else 0
        end, expected = self._sums[part]
        if crc32(read(begin, end - begin)) != expected:
            raise InputChanged(_damaged(self._name))


def _damaged(name: str) -> str:
    return (
        "%s, which holds the rows of the input sorted by the partition keys, is damaged: it fails its checksum. Check "
        "that disk, and run the job again." % printable(name)
    )
