"""Versions of the things that a workspace object keeps by name; each refers to the one before it."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from windrow.errors import NotFound


class Versioned(Protocol):
    """A dataset, a model or an environment."""

    version: Any
    """From 1 on; a number, or its text."""
    earlier: Any
    """The version before this one; None for the first."""


V = TypeVar("V", bound=Versioned)


def find_version(what: str, newest: V, version: int | str | None) -> V:
    """Return a version; None means the newest. `what`: names it in the error, such as `model net`. Raises NotFound."""
    found: V | None = newest
    while found is not None and version is not None and str(found.version) != str(version):
        found = found.earlier
    if found is None:
        raise NotFound(f"The {what} has no version {version} in this workspace object; it has 1 to {newest.version}.")
    return found
