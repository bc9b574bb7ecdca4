"""Versions of the things that a workspace has by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow.sdk.asset import Asset


def version_of(asset: Asset) -> int | str:
    """The version as v1 gives it: a number, if it is one."""
    return int(asset.version) if asset.version.isdecimal() else asset.version
