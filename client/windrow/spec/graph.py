"""Steps of a job: how many there may be, and circles among those that wait for each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

STEPS_MAX = 1000
"""A job may have so many."""


def find_cycle(waits_for: Mapping[str, Iterable[str]]) -> list[str]:
    """One circle as `[a, b, a]` (a waits for b, b for a), or an empty list. Names that are no key are passed over."""
    done: set[str] = set()
    for start in waits_for:
        path: list[str] = []
        stack: list[tuple[str, bool]] = [(start, False)]
        while stack:
            name, leaving = stack.pop()
            if leaving:
                path.pop()
                done.add(name)
            elif name in path:
                return [*path[path.index(name) :], name]
            elif name not in done and name in waits_for:
                path.append(name)
                stack.append((name, True))
                stack.extend((next_name, False) for next_name in waits_for[name])
    return []
