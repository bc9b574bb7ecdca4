"""Distributions of positive numbers in bounded memory: four bins for each doubling, each at most 25 % wide."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

_SMALLEST = 4


def bin_of(value: int) -> int:
    """The bin of a number; those below 4 have one each."""
    if value < _SMALLEST:
        return max(0, value)
    bits = value.bit_length()
    return (bits << 2 | (value >> bits - 3) & 3) - 8


def bounds_of(number: int) -> tuple[int, int]:
    """The numbers in a bin, as [first, end)."""
    if number < _SMALLEST:
        return number, number + 1
    bits, quarter = divmod(number + 8, 4)
    width = 1 << bits - 3
    first = (4 + quarter) * width
    return first, first + width


def quantile_of(bins: Mapping[int, int], share: float) -> int:
    """The number that about this share of those counted do not exceed, within the width of a bin; 0 if there are none.
    `bins`: how many numbers are in each bin.
    """
    wanted = share * sum(bins.values())
    below = 0
    for number, count in sorted(bins.items()):
        if below + count >= wanted:
            first, behind = bounds_of(number)
            return round(first + (wanted - below) / count * (behind - first))
        below += count
    return 0


class Distribution:
    """Counts how many numbers fall into each bin, and keeps their sum and maximum."""

    __slots__ = ("bins", "largest", "total")

    def __init__(self) -> None:
        self.bins: defaultdict[int, int] = defaultdict(int)
        self.total = 0
        self.largest = 0

    def add(self, value: int) -> None:
        """Add a number."""
        # As bin_of, without the call: there are millions.
        if value < _SMALLEST:
            self.bins[max(0, value)] += 1
        else:
            bits = value.bit_length()
            self.bins[(bits << 2 | (value >> bits - 3) & 3) - 8] += 1
        self.total += value
        if value > self.largest:
            self.largest = value

    @property
    def count(self) -> int:
        """How many numbers were added."""
        return sum(self.bins.values())

    def quantile(self, share: float) -> int:
        """The number that about this share of them do not exceed, within the width of a bin; 0 if there are none."""
        return min(self.largest, quantile_of(self.bins, share))

    def document(self) -> dict[str, object]:
        """Return the distribution as JSON; `bins` are [first, end, count]."""
        return {
            "bins": [[*bounds_of(number), count] for number, count in sorted(self.bins.items())],
            "count": self.count,
            "total": self.total,
            "largest": self.largest,
            **{name: self.quantile(share) for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))},
        }
