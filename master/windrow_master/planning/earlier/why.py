"""Why something of a step runs again, although an earlier step has run; counted, and told to the user."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

from windrow.common.quantities import counted


class Why(StrEnum):
    """Why a file, or a mini-batch, of the new step runs although an earlier step has run."""

    NEW = "new"
    CHANGED = "changed since"
    UNSURE = "written so shortly before that job that they may have changed since"
    MOVED = "at a path that led elsewhere then"
    NO_RESULT = "without a result there"
    LISTED_TWICE = "listed more than once"
    BESIDE = "in a mini-batch that is no longer the same"


def reasons_in_words(counts: Counter[Why], noun: str) -> str:
    """Such as "The other 12 files run: 3 new, 9 changed since."; "" if there are none."""
    total = sum(counts.values())
    if not total:
        return ""
    told = ", ".join(f"{counts[why]:,} {why}" for why in Why if counts[why])
    return f"The other {counted(total, noun)} run{'s' * (total == 1)}: {told}."
