"""The memory of a planner: inputs that take more to divide than the master allows fail their step, and nothing else."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

from windrow_master.planning.errors import USER_ERROR, PlanningError, shown

_NAMES = ("OutOfMemory", "bad_alloc", "MemoryError", "Out of Memory")
"""How libraries name it that do not raise MemoryError, or raise what they met as text."""


def bound_memory(most: int | None) -> None:
    """Let this process take no more memory of its own; files that it maps do not count."""
    if most is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


class NoMemoryFor(MemoryError):
    """There was no more memory while a file was read."""

    def __init__(self, name: bytes) -> None:
        super().__init__(shown(name))
        self.name = name


@contextmanager
def reading(name: bytes) -> Iterator[None]:
    """While a file is read: raises NoMemoryFor it where there is no more memory."""
    try:
        yield
    except Exception as error:
        if lacked_memory(error) and not isinstance(error, NoMemoryFor):
            raise NoMemoryFor(name) from error
        raise


def lacked_memory(error: BaseException) -> bool:
    """Whether an error, or one behind it, is that there was no more memory."""
    return any(
        isinstance(seen, MemoryError) or any(name in f"{type(seen).__name__}: {seen}" for name in _NAMES)
        for seen in _behind(error)
    )


def too_much_memory(most: int | None, error: BaseException) -> PlanningError:
    """What the user is told of an error for which `lacked_memory` holds."""
    # Only here: it takes milliseconds, and the first run() waits for planners.
    from windrow_master.limits import how_to_raise

    allowed = "" if most is None else f", which is the master's limit planner_memory_bytes ({most:,} bytes)"
    read = next((seen.name for seen in _behind(error) if isinstance(seen, NoMemoryFor)), None)
    where = "" if read is None else f" There was no more while {shown(read)} was read."
    return PlanningError(
        f"To divide the input takes more memory than one planner gets{allowed}.{where} Very long records (a quote that "
        "is never closed makes the rest of a file one), hundreds of thousands of columns, and large row groups of "
        "Parquet take most: correct the file, write it in smaller row groups (100,000 rows, say), or divide less at "
        f"once. To give planners more, {how_to_raise('planner_memory_bytes')}.",
        USER_ERROR,
    )


def _behind(error: BaseException) -> Iterator[BaseException]:
    """The error, and those behind it."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__
