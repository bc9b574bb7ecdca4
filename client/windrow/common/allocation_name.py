"""What the name of an allocation looks like: master, agent and fleet agree on it."""

from __future__ import annotations

import re

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def is_allocation_name(text: str) -> bool:
    """Whether this can be the name of an allocation of a fleet. Engines allow no more in the names of what they run."""
    return _NAME.fullmatch(text) is not None
