"""The memory of a planner: inputs that take more to divide than the master allows fail their step, and nothing else."""

from __future__ import annotations

import resource

from windrow_master.planning.errors import USER_ERROR, PlanningError

_NAMES = ("OutOfMemory", "bad_alloc", "MemoryError", "Out of Memory")
"""How libraries name it that do not raise MemoryError, or raise what they met as text."""


def bound_memory(most: int | None) -> None:
    """Let this process take no more memory of its own; files that it maps do not count."""
    if most is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def lacked_memory(error: BaseException) -> bool:
    """Whether an error, or one behind it, is that there was no more memory."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, MemoryError) or any(name in f"{type(seen).__name__}: {seen}" for name in _NAMES):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def too_much_memory(most: int | None) -> PlanningError:
    """What the user is told."""
    # Only here: it takes milliseconds, and the first run() waits for planners.
    from windrow_master.limits import how_to_raise

    allowed = "" if most is None else f", which is the master's limit planner_memory_bytes ({most:,} bytes)"
    return PlanningError(
        f"To divide the input takes more memory than one planner gets{allowed}. Large row groups of Parquet and long "
        "rows take most: write the files in smaller row groups (100,000 rows, say), or divide less at once. To give "
        f"planners more, {how_to_raise('planner_memory_bytes')}.",
        USER_ERROR,
    )
