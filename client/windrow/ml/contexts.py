"""What the reader of job files is told of where a job will run."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from windrow.spec.nodes import Source
from windrow.spec.reading import Context

OpenRegistry = Callable[[], Any]
"""Opens the registry in which the names of assets are looked up (`windrow.Client.asset_lookup`)."""


def context_of(
    source: Source, *, embedded: bool, datastores: Collection[str], assets: OpenRegistry | None = None
) -> Context:
    """For one reading of one job."""
    more: dict[str, Any] = {} if assets is None else {"assets": assets}
    return Context(source, embedded=embedded, datastores=datastores, **more)
