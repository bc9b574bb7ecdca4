"""The progress of `take` and `skip`: how many of the rows or files that reach them pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Bound(NamedTuple):
    """A `take` (`skips` False) or a `skip` of a number of rows."""

    skips: bool
    number: int


class Counts:
    """All bounds of an input, in order, and how many rows have reached each so far (`seen`)."""

    def __init__(self, bounds: Sequence[Bound], seen: Sequence[int] | None = None) -> None:
        self._bounds = tuple(bounds)
        self.seen = list(seen) if seen else [0] * len(self._bounds)

    def passing(self, number: int, rows: int) -> tuple[int, int]:
        """The range of the next `rows` that pass the bound with this number; all of them count as seen."""
        bound, seen = self._bounds[number], self.seen[number]
        self.seen[number] = seen + rows
        left = min(max(bound.number - seen, 0), rows)
        return (left, rows) if bound.skips else (0, left)

    @property
    def nothing_passes(self) -> bool:
        """Whether some `take` is full, so that no further row gets through."""
        return any(
            not bound.skips and seen >= bound.number for bound, seen in zip(self._bounds, self.seen, strict=True)
        )

    @property
    def everything_passes(self) -> bool:
        """Whether there is nothing left to count."""
        return all(bound.skips and seen >= bound.number for bound, seen in zip(self._bounds, self.seen, strict=True))
