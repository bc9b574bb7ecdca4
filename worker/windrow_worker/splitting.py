"""Splitting: runs a mini-batch piece by piece, to find the items that fail. The others count.

The master orders it for a mini-batch that has failed as a whole. Each piece gets a `run()` of its own. A piece whose
`run()` raises, or returns what cannot be used, is halved until single items are left; a single item has one more try. A
piece that ends the process is shown on the page, and halved by the master, for the next attempt.
"""

from __future__ import annotations

import json
import struct
from time import monotonic, sleep  # a script may replace those in their module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, Optional, Sequence, Tuple

    Failure = Tuple[str, str, str]
    """Cause, message and detail."""

DELAY_MAX_S = 60.0
"""An exception that asks for a longer wait is not obeyed while a worker is held for it."""

ALIVE_S = 5.0
"""In a wait, the page is renewed at this interval; less than any time limit for what follows `run()`."""

_LENGTH = struct.Struct("<I")


class FailedItems:
    """Neighbouring items that failed alike. `first`: the index of the first in its mini-batch, from 0. `place`: of a
    row of a table, its file and its line or row there.
    """

    __slots__ = ("cause", "count", "first", "message", "place")

    def __init__(self, first: int, count: int, cause: str, message: str, place: str = "") -> None:
        self.first = first
        self.count = count
        self.cause = cause
        self.message = message
        self.place = place


class Order:
    """How to split a mini-batch. `cuts`: where pieces begin, beside the first. `given_up`: items that are not run.
    `suspects`: where pieces begin of which one has ended a worker: they run first, and once more in their turn.
    `runs_max`: the number of calls of `run()` after which a piece that fails is no longer halved. `call_s`, `item_s`:
    by the rate limit, the seconds from a call of `run()` to the next one, and for each of its items; 0.0 for no limit.
    """

    __slots__ = ("call_s", "cuts", "given_up", "item_s", "runs_max", "suspects")

    def __init__(
        self,
        cuts: List[int],
        given_up: List[FailedItems],
        suspects: List[int],
        runs_max: int,
        call_s: float = 0.0,
        item_s: float = 0.0,
    ) -> None:
        self.cuts = cuts
        self.given_up = given_up
        self.suspects = suspects
        self.runs_max = runs_max
        self.call_s = call_s
        self.item_s = item_s


class Pace:
    """When the next piece of a mini-batch may run: by the rate limit, and by what the last exception has asked for.

    `alive` is called again and again during a wait, so that a wait is not taken for a piece that hangs.
    """

    def __init__(self, order: Order, alive: Callable[[], Any]) -> None:
        self._call_s = order.call_s
        self._item_s = order.item_s
        self._alive = alive
        self._due = monotonic()

    def wait(self, items: int) -> None:
        """Waits until a piece of so many items may run."""
        left = self._due - monotonic()
        while left > 0:
            sleep(min(left, ALIVE_S))
            self._alive()
            left = self._due - monotonic()
        self._due = max(self._due, monotonic()) + self._call_s + self._item_s * items

    def delay(self, seconds: float) -> None:
        """Lets the next piece wait at least so long."""
        self._due = max(self._due, monotonic() + min(seconds, DELAY_MAX_S))


def read_order(packet: Any, begin: int) -> Tuple[Order, int]:
    """The order in a packet, and where it ends there. Raises ValueError, KeyError, struct.error."""
    (length,) = _LENGTH.unpack_from(packet, begin)
    begin += _LENGTH.size
    document = json.loads(bytes(packet[begin : begin + length]))
    given_up = [FailedItems(*one) for one in document["given_up"]]
    pace = document["call_s"], document["item_s"]
    order = Order(document["cuts"], given_up, document["suspects"], document["runs_max"], *pace)
    return order, begin + length


def pieces(order: Order, items: int) -> List[Tuple[int, int]]:
    """The pieces to begin with, as (first, count), in order. What is given up begins and ends at cuts."""
    idle = {one.first for one in order.given_up}
    found: List[Tuple[int, int]] = []
    behind = items
    for first in sorted({0, *(cut for cut in order.cuts if 0 < cut < items)}, reverse=True):
        if first not in idle:
            found.append((first, behind - first))
        behind = first
    return found[::-1]


def find_failures(
    order: Order,
    items: int,
    attempt: Callable[[int, int], Optional[Failure]],
    probe: Callable[[int, int], Any],
) -> Tuple[List[FailedItems], Optional[Failure]]:
    """Runs all pieces; returns the items that failed, in order, and the last failure.

    `attempt(first, count)` runs these items, and keeps what they give unless it returns a failure. `probe` runs them,
    and keeps nothing.
    """
    for first, count in pieces(order, items):
        if first in order.suspects:
            probe(first, count)
    failed = list(order.given_up)
    last: Optional[Failure] = None
    runs = 0
    waiting = [(first, count, False) for first, count in reversed(pieces(order, items))]
    while waiting:
        first, count, again = waiting.pop()
        runs += 1
        failure = attempt(first, count)
        if failure is None:
            continue
        last = failure
        if count == 1 and not again:
            waiting.append((first, 1, True))
        elif count > 1 and runs < order.runs_max:
            half = count - count // 2
            waiting += [(first + half, count - half, False), (first, half, False)]
        else:
            cause, message, _ = failure
            if count > 1:
                message += f" (not split further: run() was called {runs:,} times to find the items that fail)"
            failed.append(FailedItems(first, count, cause, message))
    failed.sort(key=lambda one: one.first)
    return failed, last


def count_of(failed: Sequence[FailedItems]) -> int:
    """How many items these are."""
    return sum(one.count for one in failed)


def piece_of(value: Any, first: int, count: int) -> Any:
    """Some items of what `run()` gets: of a list, or of a DataFrame, whose rows are counted from 0 again."""
    if isinstance(value, list):
        return value[first : first + count]
    return value.iloc[first : first + count].reset_index(drop=True)
