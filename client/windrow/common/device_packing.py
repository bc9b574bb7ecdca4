"""Whether workers that need GPUs fit on the devices of a node, and on which of them.

Master and agent ask the same question, and must get the same answer. A need is a whole number of devices, or a fraction
of one, which a worker shares with others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

ROUNDING = 1e-6
DEVICES_MAX = 128
"""No node offers more: workers are placed on each device of a node, one after the other. Nor can a worker need more."""


def is_fraction(need: float) -> bool:
    """Whether a worker with this need shares its device."""
    return ROUNDING < need < 1 - ROUNDING


def pack(devices: int, needs: Iterable[float]) -> list[tuple[int, ...]] | None:
    """The devices of each worker, in the order of `needs`; None if there are not enough. Large needs go first, each
    as `choose` says.
    """
    wanted = list(needs)
    free = [1.0] * devices
    found: list[tuple[int, ...]] = [()] * len(wanted)
    for at in sorted(range(len(wanted)), key=lambda at: (-wanted[at], at)):
        chosen = choose(free, wanted[at])
        if chosen is None:
            return None
        found[at] = chosen
        take(free, chosen, wanted[at])
    return found


def choose(free: list[float], need: float) -> tuple[int, ...] | None:
    """The devices for one more worker, given what is free of each; None if there are not enough. A fraction goes to the
    fullest device that has room, so that whole devices stay free; whole ones to those with the lowest numbers.
    """
    if need <= ROUNDING:
        return ()
    if is_fraction(need):
        able = [at for at, room in enumerate(free) if room + ROUNDING >= need]
        return (min(able, key=lambda at: (free[at], at)),) if able else None
    count = math.ceil(need - ROUNDING)
    whole = [at for at, room in enumerate(free) if room > 1 - ROUNDING]
    return tuple(whole[:count]) if len(whole) >= count else None


def take(free: list[float], devices: Iterable[int], need: float) -> None:
    """Count a worker as one that has these devices."""
    for at in devices:
        free[at] -= need if is_fraction(need) else 1.0
