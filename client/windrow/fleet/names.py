"""Names of allocations. An engine shows them, and a fleet finds its own by the prefix of a group."""

from __future__ import annotations

import hashlib
import re
import secrets

_WORDS_MAX = 10
_STAYS, _LEAVES = "s", "x"


def prefix_of(fleet: str, group: str) -> str:
    """What the names of a group's allocations begin with, and no others.

    The names of fleet and group may hold what engines do not allow in names, and be long: what is left of them is for
    people; the digest tells groups apart.
    """
    digest = hashlib.sha256(f"{fleet}\0{group}".encode()).hexdigest()[:6]
    return f"{_brief(fleet)}-{_brief(group)}-{digest}-"


def new_name(prefix: str, *, stays: bool) -> str:
    """A name that no allocation has had. `stays`: its agent does not leave when it is idle; whoever runs the fleet next
    has to know.
    """
    return f"{prefix}{_STAYS if stays else _LEAVES}{secrets.token_hex(5)}"


def stays(name: str) -> bool:
    """Whether the agent of an allocation does not leave when it is idle."""
    return name.rpartition("-")[2].startswith(_STAYS)


def _brief(name: str) -> str:
    """The beginning of a name in small letters, digits and hyphens; it begins with a letter or digit."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:_WORDS_MAX].strip("-") or "x"
