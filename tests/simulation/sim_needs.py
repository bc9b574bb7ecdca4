"""What workers need, what nodes have, and what that is worth: by the plainest means, with no code of the core's own."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence

from windrow_master.core.settings import StepSettings

NEAR = 1e-6

Amounts = tuple[float, float, float]
"""Processors, bytes of memory, GPUs: what a node has, or what a worker needs."""

PROCESSORS, GPUS = 0, 2


def says_what_it_needs(settings: StepSettings) -> bool:
    """Whether a worker of a step takes something else than a slot."""
    return settings.cpus_per_worker is not None or bool(settings.memory_per_worker or settings.gpus_per_worker)


def need_on(settings: StepSettings, slots: float) -> Amounts:
    """What a worker of a step takes of a node with so many slots."""
    if says_what_it_needs(settings):
        processors = 1.0 if settings.cpus_per_worker is None else settings.cpus_per_worker
        return processors, float(settings.memory_per_worker), settings.gpus_per_worker
    most = settings.max_concurrency_per_instance
    return (1.0 if most is None else min(1.0, slots / most)), 0.0, 0.0


def lacking(total: Amounts, needs: Iterable[Amounts]) -> int | None:
    """The first resource of which workers need more than a node has; None: they fit."""
    listed = list(needs)
    for at, most in enumerate(total):
        if sum(need[at] for need in listed) > most + NEAR:
            return at
    parts = tuple(sorted((need[GPUS] for need in listed if need[GPUS]), reverse=True))
    return None if packs(int(total[GPUS]), parts) else GPUS


@functools.lru_cache(maxsize=10000)
def packs(devices: int, parts: tuple[float, ...]) -> bool:
    """Whether there is any way to give each worker its devices, or its part of one. `parts`: the largest first."""
    free = devices - sum(round(part) for part in parts if part > 1 - NEAR)
    return free >= 0 and _packs((1.0,) * free, tuple(part for part in parts if part <= 1 - NEAR))


def _packs(rooms: tuple[float, ...], parts: tuple[float, ...]) -> bool:
    if not parts:
        return True
    for room in sorted(set(rooms)):
        if room >= parts[0] - NEAR:
            left = list(rooms)
            left[left.index(room)] -= parts[0]
            if _packs(tuple(left), parts[1:]):
                return True
    return False


@functools.lru_cache(maxsize=10000)
def most_on(total: Amounts, need: Amounts) -> int:
    """How many workers fit on an empty node."""
    count = 0
    while lacking(total, [need] * (count + 1)) is None:
        count += 1
    return count


def cost_of(settings: StepSettings, nodes: Sequence[Amounts]) -> Amounts:
    """What a worker of a step takes of all nodes together, as parts of each resource. Where it takes most of, what it
    leaves on its node and no other worker of its step can use is counted as its own.
    """
    capacity = [sum(node[at] for node in nodes) for at in range(3)]
    need = need_on(settings, nodes[0][PROCESSORS])
    parts = [each / total if total else 0.0 for each, total in zip(need, capacity, strict=True)]
    most = sum(most_on(node, need) for node in nodes)
    if most:
        scarcest = parts.index(max(parts))
        parts[scarcest] = max(parts[scarcest], 1 / most)
    return parts[0], parts[1], parts[2]


def whole(number: float) -> int:
    """Whole workers of a share."""
    return math.floor(number + NEAR)
