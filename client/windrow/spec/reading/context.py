"""The state that all readers of one job file share: problems, origins of settings, defaults of the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from windrow.spec.reading.nodes import Node, Place, Source
from windrow.spec.reading.problems import Problems, StepCode

if TYPE_CHECKING:
    from windrow.spec.naming.assets import AssetLookup, OpenLookup


ListPools: TypeAlias = Callable[[], Collection[str]]
"""Gives the names of all pools that nodes of the cluster are in."""


class Origin(NamedTuple):
    """Where an effective setting comes from.

    `kind` is default, job, component, --set, argument or settings file; `where` is `file:line`.
    """

    kind: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.kind} ({self.where})" if self.where else self.kind


class Context:
    """The state that all readers of one job file share."""

    def __init__(
        self,
        source: Source,
        *,
        embedded: bool,
        datastores: Collection[str] = (),
        assets: OpenLookup | None = None,
        pools: ListPools | None = None,
    ) -> None:
        self.source = source
        self.embedded = embedded
        self.datastores = datastores
        """Names of the datastores that the private master of an embedded run has."""
        self.problems = Problems()
        self.origins: dict[str, Origin] = {}
        self.job_name: str | None = None
        self.default_compute = ""
        """The pool of steps that name none; "" means any node."""
        self.default_datastore = ""
        """The datastore of outputs without a path; "" means the master's own default datastore."""
        self.force_rerun: bool | None = None
        """The pipeline's setting. True: no step is reused; False: every step that allows it is."""
        self.broken_steps: set[str] = set()
        """Steps for which the translation from v1 noted an error: there is nothing to read."""
        self.own_outputs: set[str] = set()
        """Keys of outputs at relative paths, which are on this machine."""
        self.placed_outputs: set[str] = set()
        """Keys of outputs without a path that go to the pipeline's default datastore."""
        self._open_assets = assets
        self._assets: AssetLookup | None = None
        self._list_pools = pools
        self._pools: Collection[str] | None = None
        self.partition_places: dict[str, Place] = {}
        """Where the partition keys of a step are given."""
        self.division_places: dict[str, Place] = {}
        """Where the inputs that a step divides are named."""
        self.codes: list[StepCode] = []
        """The code of those steps whose code exists."""

    def asset_lookup(self) -> AssetLookup | None:
        """The registry in which assets are looked up; None if there is none."""
        if self._assets is None and self._open_assets is not None:
            self._assets = self._open_assets()
        return self._assets

    def pools(self) -> Collection[str] | None:
        """The pools that nodes of the cluster are in; None for a run on this machine, or an unknown cluster."""
        if self._pools is None and self._list_pools is not None and not self.embedded:
            self._pools = self._list_pools()
        return self._pools


def origin_of(node: Node | Place) -> Origin:
    """The origin of a value written in a file or given by --set."""
    place = node.place
    return Origin(place.source.kind, place.source.label if place.source.kind == "--set" else str(place))
