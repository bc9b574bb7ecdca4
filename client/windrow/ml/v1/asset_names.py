"""Names and versions of the things that a workspace has by name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow.sdk.asset import Asset

_NOT_IN_NAMES = re.compile(r"[^\w.-]+", re.ASCII)


def asset_name(name: str) -> str:
    """The name of an asset for a name in a notebook."""
    return _NOT_IN_NAMES.sub("_", name).strip("_.-") or "pipeline"


def dataset_name(name: str) -> str:
    """The name of a data asset for that of a dataset, which may hold blanks; the same, if nothing of it can stay."""
    return (_NOT_IN_NAMES.sub("_", name).strip("_.-") or name) if _NOT_IN_NAMES.search(name) else name


def version_of(asset: Asset) -> int | str:
    """The version as v1 gives it: a number, if it is one."""
    return int(asset.version) if asset.version.isdecimal() else asset.version
