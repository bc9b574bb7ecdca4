"""Splitting: how the items that fail are found in a mini-batch, so that the others count. Pure functions.

A mini-batch that is split keeps its one outcome and its one lease at a time. Its next lease carries an order
(`Split`): the worker gives each piece of the items to a `run()` of its own, and halves a piece whose `run()` raises,
until single items are left. Only a piece that ends its worker is halved here, for the next attempt.

Invariants:
1. `cuts` rise, between 0 and `items`.
2. Each death makes a piece smaller, or brings its only item nearer to being given up. So deaths are bounded: by
   `DEATHS_MAX`, and by what halving allows.
3. Nothing of this is stored. A new master splits again, after one attempt with all items; what has an outcome keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from windrow.common.quantities import counted

from windrow_master.core.states import Cause, Phase

RUNS_MAX = 1000
"""The most calls of `run()` to find the failing items of one attempt; a piece that fails after them is not halved."""

ITEM_TRIES = 2
"""So often a single item may end its worker."""

DEATHS_MAX = 64
"""How many workers may die over pieces of one mini-batch; the next piece that ends a worker is given up as a whole."""

IN_VAIN_MAX = 3
"""The number of mini-batches in a row in which splitting has found no good item, with none succeeding otherwise, after
which no more are split: the script is at fault, or its environment."""

SPLIT_AT_ONCE = frozenset((Cause.CRASH, Cause.OOM))
"""Causes for which a mini-batch is split before the same size is tried again."""

SPLIT_AT_LAST = frozenset((Cause.EXCEPTION, Cause.BAD_RETURN, Cause.TIMEOUT))
"""Causes for which a mini-batch is split when its tries are used up."""

WITH_ITEMS = frozenset((Phase.RUNNING, Phase.RETURNING))
"""Phases of an attempt whose failure may be that of single items."""


@dataclass(frozen=True, order=True, slots=True)
class FailedItems:
    """Neighbouring items of one mini-batch that failed alike. Not a row of the store: `first` counts within the
    mini-batch.
    """

    first: int
    count: int
    cause: Cause
    message: str
    place: str = ""
    """Of a row of a table: its file, and its line or row there."""


class ReportedItems(Protocol):
    """Failed items as a node reports them; windrow.rpc.v1.FailedItems has this shape."""

    @property
    def first(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def cause(self) -> int: ...
    @property
    def message(self) -> str: ...
    @property
    def place(self) -> str: ...


@dataclass(slots=True)
class Split:
    """How one mini-batch is split."""

    items: int
    cuts: list[int] = field(default_factory=list)
    """Where pieces begin, beside the first, which begins at 0."""
    given_up: list[FailedItems] = field(default_factory=list)
    """Items that are no longer run, ascending."""
    suspects: list[int] = field(default_factory=list)
    """Where the pieces begin of which one ended the last worker: they run first, and once more in their turn. What runs
    before them would run again after each death.
    """
    deaths: int = 0
    """Workers that died over a piece."""
    others: int = 0
    """Attempts that failed in another way."""
    ended: dict[int, int] = field(default_factory=dict)
    """Single item -> how often it has ended its worker."""

    @property
    def is_over(self) -> bool:
        """Whether no item is left to run."""
        return sum(one.count for one in self.given_up) == self.items


def begin(items: int) -> Split:
    """Split a mini-batch of this many items, more than 1, that has failed as a whole: into halves."""
    return Split(items, [items - items // 2])


def note_death(split: Split, first: int, count: int, cause: Cause, message: str) -> None:
    """Note that a piece has ended its worker: halve it, or give its only item up."""
    split.deaths += 1
    split.suspects = []
    if count > 1 and split.deaths < DEATHS_MAX:
        half = first + count - count // 2
        split.cuts = _with_cuts(split, first, half, first + count)
        split.suspects = _behind_others(split, first, half)
        return
    if count == 1:
        split.ended[first] = split.ended.get(first, 0) + 1
        split.cuts = _with_cuts(split, first, first + 1)
        # One that takes too long alone did so each time before, and each try takes that long.
        tries = 1 if cause is Cause.TIMEOUT else ITEM_TRIES
        if split.ended[first] < tries and split.deaths < DEATHS_MAX:
            split.suspects = _behind_others(split, first)
            return
    else:
        message += f" (not split further: {split.deaths} workers have died over this mini-batch)"
    split.cuts = _with_cuts(split, first, first + count)
    split.given_up = sorted([*split.given_up, FailedItems(first, count, cause, message)])


def _behind_others(split: Split, *suspects: int) -> list[int]:
    """These pieces, if others run before them."""
    given_up = {one.first for one in split.given_up}
    return list(suspects) if any(cut < suspects[0] for cut in {0, *split.cuts} - given_up) else []


def _with_cuts(split: Split, *more: int) -> list[int]:
    return sorted({*split.cuts, *(cut for cut in more if 0 < cut < split.items)})


def is_piece(split: Split, first: int, count: int) -> bool:
    """Whether a node may be right that these items were given to a `run()` of their own."""
    last = first + count
    return (
        count > 0
        and last <= split.items
        and not any(one.first < last and first < one.first + one.count for one in split.given_up)
    )


def read_items(reported: Iterable[ReportedItems], items: int) -> list[FailedItems] | None:
    """The failed items of a mini-batch, as a node reports them; None if they cannot be: they overlap, or are none of
    its items.
    """
    found: list[FailedItems] = []
    behind = 0
    for one in sorted(reported, key=lambda one: one.first):
        if one.first < behind or not one.count or one.first + one.count > items:
            return None
        behind = one.first + one.count
        found.append(FailedItems(one.first, one.count, _cause(one.cause), one.message, one.place))
    return found


def _cause(number: int) -> Cause:
    try:
        return Cause(number) or Cause.EXCEPTION
    except ValueError:
        return Cause.EXCEPTION


def count_of(found: Sequence[FailedItems]) -> int:
    """How many items these are."""
    return sum(one.count for one in found)


def short_message(items: int, results: int, named: Sequence[FailedItems]) -> str:
    """What is wrong with an attempt that succeeded with fewer results than items. `named`: its failed items."""
    failed = count_of(named)
    if not failed:
        return f"run() returned {counted(results, 'result')} for {counted(items, 'item')}"
    first = f"{counted(failed, 'item')} of {items:,} failed; the first: {named[0].message}"
    if failed == items - results:
        return first
    return f"{first}; and run() returned {counted(results, 'result')} for {counted(items - failed, 'item')}"


def with_rest(found: Sequence[FailedItems], items: int, cause: Cause, message: str) -> list[FailedItems]:
    """These failed items, and all others of the mini-batch as failed for this cause: together each item once."""
    whole: list[FailedItems] = []
    behind = 0
    for one in [*found, FailedItems(items, 0, cause, "")]:
        if behind < one.first:
            whole.append(FailedItems(behind, one.first - behind, cause, message))
        if one.count:
            whole.append(one)
        behind = one.first + one.count
    return whole
