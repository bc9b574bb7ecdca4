"""Versions of the things that a workspace has by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from windrow.errors import NotFound

if TYPE_CHECKING:
    from windrow.sdk.asset import Asset


class Versioned(Protocol):
    """An environment."""

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


def version_of(asset: Asset) -> int | str:
    """The version as v1 gives it: a number, if it is one."""
    return int(asset.version) if asset.version.isdecimal() else asset.version
