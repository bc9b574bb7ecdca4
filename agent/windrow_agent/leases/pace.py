"""How many leases to hold ahead: enough that no worker waits for the network, no more than that.

A worker should have work for about `AHEAD_S` in its channel: a round trip to the master and its scheduling take a few
milliseconds, and completions are told several at a time. So over a hundred when `run()` takes microseconds, a few
extra when it takes tens of milliseconds, and nothing but the one in work when it takes seconds (a round trip is then
lost in the noise, and another node could use the rest). Also one until the first has run: if they are few and long,
others could run at once what this node would hold.

What a worker has before it also decides how long its results may gather. Each wake-up of agent and master takes a
fraction of a millisecond from the processors that the script runs on, however little there is to do.
"""

from __future__ import annotations

AHEAD_S = 0.5
"""Work to have in a worker's channel, in seconds."""

RESULTS_GATHER_S = 0.1
"""So long the results of a worker gather that has enough before it."""

RESULTS_GATHER_BYTES = 64 << 10
"""No more than this: a worker must not wait until there is room in the channel of its results."""

DEPTH_MAX = 128
"""Most leases with one worker."""

LONG_S = 1.0
"""From this duration on, a worker has one lease only: the one it works on."""

_WEIGHT = 0.2


def depth_for(duration_s: float | None) -> int:
    """Leases a worker should have, the one in work included, when a mini-batch takes `duration_s` (None: unknown)."""
    if duration_s is None or duration_s >= LONG_S:
        return 1
    if duration_s * (DEPTH_MAX - 1) <= AHEAD_S:
        return DEPTH_MAX
    return 1 + max(1, round(AHEAD_S / duration_s))


class Pace:
    """Running estimate of how long one mini-batch of a step keeps a worker busy.

    Follows slow ones at once, fast ones slowly.
    """

    __slots__ = ("duration_s",)

    def __init__(self) -> None:
        self.duration_s: float | None = None

    def observe(self, total_s: float, count: int) -> None:
        """`count` mini-batches took `total_s` seconds of worker time together."""
        mean = total_s / count
        old = self.duration_s
        if old is None or mean > 4 * old:
            self.duration_s = mean
        else:
            weight = 1 - (1 - _WEIGHT) ** min(count, 20)
            self.duration_s = old + weight * (mean - old)

    @property
    def depth(self) -> int:
        """Leases a worker should have now."""
        return depth_for(self.duration_s)


def may_gather(duration_s: float | None, ahead: int, result_bytes: float) -> bool:
    """Whether the results of a worker may gather for RESULTS_GATHER_S: it will not run dry, nor its channel fill up.

    `ahead`: leases that it has beyond the one in work; `result_bytes`: how many a result takes.
    """
    if duration_s is None or not 0 < duration_s <= RESULTS_GATHER_S:
        return False
    count = RESULTS_GATHER_S / duration_s
    return ahead >= 2 * count and count * result_bytes <= RESULTS_GATHER_BYTES


def worth_reporting(told: int, wanted: int) -> bool:
    """Whether a new capacity is worth a message: always when it becomes or leaves zero, else from a quarter on."""
    if told == wanted:
        return False
    if told == 0 or wanted == 0:
        return True
    return abs(wanted - told) * 4 >= told


def shares(loads: list[int], queued: int, depth: int) -> list[int]:
    """How many of `queued` leases each worker gets now, so that loads become as even as they can, none above
    `depth`.

    `loads`: leases each worker has. Returns one number a worker, in the same order; their sum is at most `queued`.
    """
    gets = [0] * len(loads)
    order = sorted((index for index in range(len(loads)) if loads[index] < depth), key=loads.__getitem__)
    # Pour: the lowest k workers rise to one level, for the smallest k whose level stays below the next one's load.
    for k in range(1, len(order) + 1):
        poured = queued + sum(loads[index] for index in order[:k])
        if k == len(order) or poured <= k * loads[order[k]]:
            level, more = divmod(poured, k)
            for position, index in enumerate(order[:k]):
                gets[index] = min(depth, level + (position < more)) - loads[index]
            break
    return gets
