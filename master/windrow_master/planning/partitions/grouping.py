"""Groups files by key: key values as text that sorts as they do, and runs of the listing."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from typing import Any, NamedTuple

_SIGN = 1 << 63


class Group(NamedTuple):
    """Files with the same key values. `runs`: ranges [begin, end) of bytes of the listing; `files`: their number;
    `size`: their bytes in total.
    """

    runs: list[tuple[int, int]]
    files: int
    size: int


class Grouping:
    """Collects files in listing order, in about 30 bytes a file and the text of the values of each group."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._sizes = array("Q")
        self._groups = array("I")
        self._begins = array("Q")

    def add(self, values: Sequence[Any], begin: int, size: int) -> None:
        """Add a file whose line begins at `begin` of the listing. `values`: text, bool, int, float, or None."""
        number = self._numbers.setdefault("\0".join(map(_sortable, values)), len(self._numbers))
        if number == len(self._sizes):
            self._sizes.append(0)
        self._sizes[number] += size
        self._groups.append(number)
        self._begins.append(begin)

    def in_order(self, end: int, first: int = 0) -> Iterator[Group]:
        """The groups in the order of their values, from number `first` on. `end`: of the last line."""
        begins, sizes = self._begins, self._sizes
        begins.append(end)
        order = array("I", map(self._numbers.__getitem__, sorted(self._numbers)))
        self._numbers.clear()
        members, ends = self._members()
        for number in islice(order, first, None):
            files = members[ends[number - 1] if number else 0 : ends[number]]
            runs: list[tuple[int, int]] = []
            for at in files:
                if runs and runs[-1][1] == begins[at]:
                    runs[-1] = (runs[-1][0], begins[at + 1])
                else:
                    runs.append((begins[at], begins[at + 1]))
            yield Group(runs, len(files), sizes[number])

    def _members(self) -> tuple[array[int], array[int]]:
        """The files of all groups, group by group, each in listing order, and where those of each group end."""
        ends = array("Q", bytes(8 * len(self._sizes)))
        for number in self._groups:
            ends[number] += 1
        # These are first the begins of the groups; once its last file is in place, each is the end.
        ends = array("Q", accumulate(ends, initial=0))
        ends.pop()
        members = array("I", bytes(4 * len(self._groups)))
        for at, number in enumerate(self._groups):
            members[ends[number]] = at
            ends[number] += 1
        return members, ends


def _sortable(value: Any) -> str:
    """A value as text without NUL that sorts as the value does, null last."""
    if value is None or value != value:
        return "2"
    if isinstance(value, str):
        return "1" + value
    if isinstance(value, float):
        (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))
        return f"1{bits ^ (2**64 - 1) if bits & _SIGN else bits | _SIGN:016x}"
    return f"1{value + _SIGN:020d}"
