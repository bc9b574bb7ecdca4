"""What became of the second attempts of slow mini-batches (`--speculate`), in words."""

from __future__ import annotations

from windrow.common.quantities import counted


def second_attempts(begun: int, won: int, *, ended: bool) -> str:
    """For a step that allows them. `begun`, `won`: how many there were, and of those succeeded first. `ended`: there
    will be no more.
    """
    if begun:
        return f"{counted(begun, 'second attempt')} of slow mini-batches; {won:,} succeeded first"
    return (
        f"no second attempt{'' if ended else ' so far'} (--speculate): no mini-batch ran for more than twice the mean "
        "time, and a second, while a worker was idle"
    )
