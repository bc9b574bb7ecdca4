"""The versions of what a workspace object keeps under a name: each knows the one before it."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from windrow.errors import NotFound


class Versioned(Protocol):
    """A dataset, a model or an environment."""

    version: Any
    """From 1 on; a number, or its text."""
    earlier: Any
    """The version before it of its name; None of the first."""


V = TypeVar("V", bound=Versioned)


def find_version(what: str, newest: V, version: int | str | None) -> V:
    """A version; the newest for None. `what`: it is, in the error, such as `model net`. Raises NotFound."""
    found: V | None = newest
    while found is not None and version is not None and str(found.version) != str(version):
        found = found.earlier
    if found is None:
        raise NotFound(f"The {what} has no version {version} in this workspace object, but 1 to {newest.version}.")
    return found
