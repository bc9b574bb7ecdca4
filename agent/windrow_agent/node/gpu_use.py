"""What workers use of their GPUs, by what the driver says of processes. Pure.

A worker that has a device alone uses all of what is used there. Of a device that workers share, the driver's list of
processes says who uses what. Where that cannot be told, the use of the whole device is an upper bound: if nobody uses
it, each of them is idle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeGuard

from windrow_agent.node.gpu_driver import Reading

IDLE_PERCENT = 5.0
"""Whoever uses less than this of a GPU holds it without using it."""

FAR_BEYOND = 1.2
"""A worker may use this many times its share of a device's memory: libraries keep some memory in reserve, and the
share of a small device would be used up by what CUDA itself takes."""
BEYOND_BYTES_MIN = 256 << 20
"""And at least this much more than its share."""
LOOKS_BEYOND = 2
"""In so many looks one after the other, before it is ended."""


class Held(NamedTuple):
    """What a worker has. `places`: of the agent's devices; `share`: of each of them."""

    places: tuple[int, ...]
    share: float


class Use(NamedTuple):
    """What a worker uses of its devices together; None if that cannot be told. `idle`: it uses next to nothing; None:
    nobody knows.
    """

    memory_bytes: int | None
    percent: float | None
    idle: bool | None


UNKNOWN = Use(None, None, None)


def uses(
    held: Mapping[int, Held],
    processes: Mapping[int, Collection[int]],
    readings: Sequence[Reading | None],
    *,
    sees_all: bool = False,
) -> dict[int, Use]:
    """What each worker uses. `held`: by worker; `processes`: by worker, the processes that are surely its own;
    `readings`: of the agent's devices, by place. `sees_all`: a worker of which no process is named uses nothing.
    """
    holders: dict[int, int] = {}
    for one in held.values():
        for place in one.places:
            holders[place] = holders.get(place, 0) + 1
    found = {}
    for key, one in held.items():
        there = [readings[place] if place < len(readings) else None for place in one.places]
        alone = [one.share == 1 and holders[place] == 1 for place in one.places]
        found[key] = _use(there, alone, processes.get(key, ()), sees_all=sees_all)
    return found


def _use(
    readings: Sequence[Reading | None], alone: Sequence[bool], processes: Collection[int], *, sees_all: bool
) -> Use:
    """The use of one worker. `alone`: whether it has a device alone."""
    memory: list[int | None] = []
    percents: list[float | None] = []
    bounds: list[float | None] = []
    for reading, has_alone in zip(readings, alone, strict=True):
        if reading is None or reading.trouble:
            return UNKNOWN
        own = [one for one in reading.processes if one.pid in processes]
        used = [one.memory_bytes for one in own if one.memory_bytes is not None]
        busy = [one.percent for one in own if one.percent is not None]
        percent = min(100.0, sum(busy)) if busy else None
        if has_alone:
            memory.append(sum(used) if used else reading.memory_used_bytes)
            percent = max(filter(_is_known, (percent, reading.percent)), default=None)
        elif sees_all and not own:
            memory.append(None if reading.memory_used_bytes is None else 0)
            percent = None if reading.percent is None else 0.0
        else:
            memory.append(sum(used) if used else None)
        percents.append(percent)
        bounds.append(reading.percent if percent is None else percent)
    return Use(
        None if None in memory else sum(filter(None, memory)),
        None if None in percents else sum(filter(None, percents)) / max(1, len(percents)),
        None if None in bounds else all((bound or 0.0) < IDLE_PERCENT for bound in bounds),
    )


def _is_known(value: float | None) -> TypeGuard[float]:
    return value is not None


def memory_share(held: Held, readings: Sequence[Reading | None]) -> int | None:
    """The memory that a worker's part of one device is; None if it has whole devices, or nobody says how large."""
    if held.share >= 1 or len(held.places) != 1 or held.places[0] >= len(readings):
        return None
    reading = readings[held.places[0]]
    return int(reading.memory_bytes * held.share) if reading is not None and reading.memory_bytes else None


def is_far_beyond(used_bytes: int, share_bytes: int) -> bool:
    """Whether a worker uses so much more than its share that it takes the memory of others."""
    return used_bytes > max(share_bytes * FAR_BEYOND, share_bytes + BEYOND_BYTES_MIN)


@dataclass(slots=True)
class Watched:
    """What is remembered of one worker from look to look."""

    use: Use = UNKNOWN
    idle_since_ns: int = 0
    """Since when it has used next to nothing (monotonic); 0: it uses its devices, or nobody knows."""
    beyond: int = 0
    """Looks in a row in which it was far beyond its share."""


@dataclass(slots=True)
class UseOverTime:
    """What workers have used, look by look."""

    workers: dict[int, Watched] = field(default_factory=dict)

    def note(
        self, found: Mapping[int, Use], held: Mapping[int, Held], readings: Sequence[Reading | None], now_ns: int
    ) -> list[int]:
        """Note one look. Return the workers that are to be ended, since they take the memory of others."""
        self.workers = {key: self.workers.get(key, Watched()) for key in found}
        beyond = []
        for key, use in found.items():
            worker = self.workers[key]
            worker.use = use
            if use.idle is None or not use.idle:
                worker.idle_since_ns = 0
            elif not worker.idle_since_ns:
                worker.idle_since_ns = now_ns
            share = memory_share(held[key], readings)
            is_beyond = use.memory_bytes is not None and share is not None and is_far_beyond(use.memory_bytes, share)
            worker.beyond = worker.beyond + 1 if is_beyond else 0
            if worker.beyond >= LOOKS_BEYOND:
                beyond.append(key)
        return beyond

    def idle_ms(self, key: int, now_ns: int) -> int:
        """For how long a worker has used next to nothing; 0 if it uses its devices."""
        worker = self.workers.get(key)
        return max(0, now_ns - worker.idle_since_ns) // 1_000_000 if worker is not None and worker.idle_since_ns else 0
