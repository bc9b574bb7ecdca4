"""Reads slices in turn. Slices in remote storage are fetched ahead, within a budget."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple

from windrow_master.planning.tables.fetched import ranges, readable

AHEAD_BYTES = 256 << 20
"""The most bytes on disk that wait to be read, unless a single slice is larger."""
AHEAD_MAX = 8
"""The number of slices that are fetched at the same time."""


class _Asked(NamedTuple):
    """A slice that is being fetched: the recipe with its local file, and a function that removes it."""

    size: int
    brought: Future[tuple[dict[str, Any], ExitStack]]


def read_ahead(recipes: Iterable[dict[str, Any]], folder: str) -> Iterator[dict[str, Any]]:
    """Each recipe in turn, in a form that a worker on this machine could run, valid until the next one is asked for.

    `folder`: holds fetched slices meanwhile. Raises PlanningError, OSError.
    """
    waiting: deque[_Asked] = deque()
    with ThreadPoolExecutor(AHEAD_MAX, "fetch") as pool:
        try:
            for recipe in recipes:
                if "etag" not in recipe:
                    yield from _taken(waiting, 0, 0)
                    yield recipe
                    continue
                size = sum(end - begin for begin, end in ranges(recipe))
                yield from _taken(waiting, AHEAD_MAX - 1, AHEAD_BYTES - size)
                waiting.append(_Asked(size, pool.submit(_brought, recipe, folder)))
            yield from _taken(waiting, 0, 0)
        finally:
            for one in waiting:
                if not one.brought.cancel() and one.brought.exception() is None:
                    one.brought.result()[1].close()


def _taken(waiting: deque[_Asked], slices_max: int, bytes_max: int) -> Iterator[dict[str, Any]]:
    """Take the first waiting slices, until at most `slices_max` slices and `bytes_max` bytes are left."""
    while waiting and (len(waiting) > slices_max or sum(one.size for one in waiting) > bytes_max):
        recipe, files = waiting.popleft().brought.result()
        with files:
            yield recipe


def _brought(recipe: dict[str, Any], folder: str) -> tuple[dict[str, Any], ExitStack]:
    with ExitStack() as files:
        here = files.enter_context(readable(recipe, folder))
        return here, files.pop_all()
