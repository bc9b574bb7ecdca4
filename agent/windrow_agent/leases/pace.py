"""The pace of a step, and how many leases to hold ahead: enough that no worker waits for the network, and no more.

A worker should have work for about `AHEAD_S` in its channel: a round trip to the master takes a few milliseconds, and
completions are sent several at a time. That is over a hundred leases if `run()` takes microseconds, and a few if it
takes tens of milliseconds. If it takes seconds, a worker has only the lease in progress: a round trip does not matter
then, and another node could use the rest. It also has only one until the first has run: if mini-batches are few and
long, other nodes can start them at once.

What a worker has ahead also decides how long its results may gather. Every wake-up of agent and master takes a fraction
of a millisecond from the processors that run the script, however little there is to do.
"""

from __future__ import annotations

AHEAD_S = 0.5
"""Work to have in a worker's channel, in seconds."""

RESULTS_GATHER_S = 0.1
"""How long the results of a worker gather if it has enough ahead."""

RESULTS_GATHER_BYTES = 64 << 10
"""Most bytes that gather: a worker must not wait for room in its result channel."""

DEPTH_MAX = 128
"""Most leases of one worker."""

LONG_S = 1.0
"""With mini-batches this long or longer, a worker has only the lease in progress."""

_WEIGHT = 0.2


def depth_for(duration_s: float | None) -> int:
    """How many leases a worker should have, the one in progress included. `duration_s`: None if unknown."""
    if duration_s is None or duration_s >= LONG_S:
        return 1
    if duration_s * (DEPTH_MAX - 1) <= AHEAD_S:
        return DEPTH_MAX
    return 1 + max(1, round(AHEAD_S / duration_s))


class Pace:
    """A running estimate of how long one mini-batch of a step keeps a worker busy.

    It follows slow mini-batches at once, and fast ones slowly.
    """

    __slots__ = ("duration_s",)

    def __init__(self) -> None:
        self.duration_s: float | None = None

    def observe(self, total_s: float, count: int) -> None:
        """`count` mini-batches together took `total_s` seconds of worker time."""
        mean = total_s / count
        old = self.duration_s
        if old is None or mean > 4 * old:
            self.duration_s = mean
        else:
            weight = 1 - (1 - _WEIGHT) ** min(count, 20)
            self.duration_s = old + weight * (mean - old)

    @property
    def depth(self) -> int:
        """How many leases a worker should have now."""
        return depth_for(self.duration_s)


def may_gather(duration_s: float | None, ahead: int, result_bytes: float) -> bool:
    """Whether a worker's results may gather for RESULTS_GATHER_S: it has enough work, and its channel does not fill up.

    `ahead`: leases beyond the one in progress; `result_bytes`: size of a result.
    """
    if duration_s is None or not 0 < duration_s <= RESULTS_GATHER_S:
        return False
    count = RESULTS_GATHER_S / duration_s
    return ahead >= 2 * count and count * result_bytes <= RESULTS_GATHER_BYTES


def worth_reporting(reported: int, wanted: int) -> bool:
    """Whether a new capacity is worth a message: if it becomes or leaves zero, or changes by a quarter or more."""
    if reported == wanted:
        return False
    if reported == 0 or wanted == 0:
        return True
    return abs(wanted - reported) * 4 >= reported


def shares(loads: list[int], queued: int, depth: int) -> list[int]:
    """How many of `queued` leases each worker gets, so that loads are as even as possible and none exceeds `depth`.

    `loads`: how many leases each worker has. Returns one number per worker, in the same order; the sum is at most
    `queued`.
    """
    gets = [0] * len(loads)
    order = sorted((index for index in range(len(loads)) if loads[index] < depth), key=loads.__getitem__)
    # Like water: the lowest k workers rise to one level, for the smallest k whose level is below the next one's load.
    for k in range(1, len(order) + 1):
        poured = queued + sum(loads[index] for index in order[:k])
        if k == len(order) or poured <= k * loads[order[k]]:
            level, more = divmod(poured, k)
            for position, index in enumerate(order[:k]):
                gets[index] = min(depth, level + (position < more)) - loads[index]
            break
    return gets
