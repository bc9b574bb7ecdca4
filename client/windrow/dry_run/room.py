"""How many workers of a step the nodes have room for, by what one of them takes.

As of empty nodes: what other jobs have of them changes until the job begins.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from windrow.common.device_packing import ROUNDING, is_fraction
from windrow.common.quantities import counted, size
from windrow.spec import EffectiveStep


class Room(NamedTuple):
    """What a node has for workers. `node`: its name, "" for this machine. `pools`: those that it is in."""

    node: str
    slots: int
    memory_bytes: int
    gpus: int
    pools: tuple[str, ...] = ()

    def is_open_to(self, step: EffectiveStep) -> bool:
        """Whether the node works on the step, by its pools."""
        return not step.compute or not self.pools or step.compute in self.pools


def room_document(step: EffectiveStep, rooms: Sequence[Room]) -> dict[str, Any]:
    """What a worker of a step takes, and how many of them fit: together (at most `instance_count` nodes count), and on
    each node that has room for one. `lacking`: why none fits, in words; "" if one does.
    """
    there = [room for room in rooms if room.is_open_to(step)]
    found = [(room, count) for room in there if (count := workers_on(room, step))]
    found.sort(key=lambda pair: (-pair[1], pair[0].node))
    used = found if step.instance_count == -1 else found[: step.instance_count]
    return {
        "cpus": 1.0 if step.cpus_per_worker is None else step.cpus_per_worker,
        "memory_bytes": step.memory_per_worker,
        "gpus": step.gpus_per_worker,
        "workers": sum(count for _, count in used),
        "nodes": [{"node": room.node, "workers": count} for room, count in used],
        "lacking": _lacking(there, step) if not found else "",
    }


def workers_on(room: Room, step: EffectiveStep) -> int:
    """How many workers of the step a node has room for, if it has no others."""
    most = step.max_concurrency_per_instance
    counts = [] if most is None else [most]
    if step.cpus_per_worker is not None:
        counts.append(_times(room.slots, step.cpus_per_worker))
    elif most is None or most <= room.slots:
        counts.append(room.slots)  # more of them than slots share these
    if step.memory_per_worker:
        counts.append(_times(room.memory_bytes, step.memory_per_worker))
    if is_fraction(step.gpus_per_worker):
        counts.append(room.gpus * _times(1, step.gpus_per_worker))
    elif step.gpus_per_worker:
        counts.append(_times(room.gpus, step.gpus_per_worker))
    return min(counts)


def need_words(room: dict[str, Any]) -> str:
    """What a worker takes, such as `4 processors, 8.6 GB of memory and 0.5 GPUs`."""
    parts = [_processors(room["cpus"])]
    parts += [f"{size(room['memory_bytes'])} of memory"] if room["memory_bytes"] else []
    parts += [_gpus(room["gpus"])] if room["gpus"] else []
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _times(all_: float, each: float) -> int:
    return math.floor((all_ + ROUNDING) / each)


def _lacking(rooms: Iterable[Room], step: EffectiveStep) -> str:
    """Why no node has room for a worker: what it needs more of than any of them has, else all that it needs."""
    there = list(rooms)
    if not there:
        return ""
    cpus = 1.0 if step.cpus_per_worker is None else step.cpus_per_worker
    checks = (
        (cpus, max(room.slots for room in there), "cpus_per_worker", _processors),
        (step.memory_per_worker, max(room.memory_bytes for room in there), "memory_per_worker", _memory),
        (step.gpus_per_worker, max(room.gpus for room in there), "gpus_per_worker", _gpus),
    )
    who = "this machine" if not there[0].node else "no node" if len(there) > 1 else there[0].node
    for needed, most, setting, words in checks:
        if needed > most + ROUNDING:
            has = f"has more than {words(most)}" if who == "no node" else f"has {words(most)}"
            return f"a worker needs {words(needed)} ({setting}), and {who} {has}"
    needed_words = need_words({"cpus": cpus, "memory_bytes": step.memory_per_worker, "gpus": step.gpus_per_worker})
    return f"a worker needs {needed_words}, and no node has all of that"


def _processors(count: float) -> str:
    return f"{count:g} processor{'' if count == 1 else 's'}"


def _memory(count: float) -> str:
    return f"{size(int(count))} of memory"


def _gpus(count: float) -> str:
    return "no GPU" if not count else counted(int(count), "GPU") if float(count).is_integer() else f"{count:g} GPUs"
