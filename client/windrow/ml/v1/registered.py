"""What a workspace has by name: the data assets, models and environments of its master, as the objects of v1.

Reference: docs/reference/azure-ml/mltable.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import yaml

from windrow.errors import NotFound
from windrow.ml.places import calling_place
from windrow.ml.v1.asset_names import dataset_name, version_of
from windrow.ml.v1.datasets import PARTITION_KEYS, FileDataset, TabularDataset
from windrow.ml.v1.environment import Environment, is_vendors
from windrow.ml.v1.models import Model
from windrow.sdk.asset import Asset
from windrow.spec.naming.assets import ENVIRONMENT, PACKAGE_FILES
from windrow.spec.naming.locations import is_elsewhere
from windrow.spec.reading.from_python import from_plain
from windrow.spec.reading.nodes import Mapping as MappingNode
from windrow.spec.reading.problems import Problems
from windrow.spec.tables.mltable import FILE_NAME, read_mltable

if TYPE_CHECKING:
    from windrow.ml.connection import MasterConnection


class Kept(Mapping[str, Any]):
    """Things by name: the newest version of each. The master has them, and is asked each time, since other notebooks
    register things, too.
    """

    def __init__(self, kind: str, connection: MasterConnection, made_of: Callable[[Asset], Any]) -> None:
        """`kind`: of the master's assets. `made_of`: what stands for an asset."""
        self._kind = kind
        self._what = "dataset" if kind == "data" else kind
        self._connection = connection
        self._made_of = made_of

    def find(self, name: str, version: int | str | None = None) -> Any:
        """Return a version; None means the newest. Raises NotFound."""
        found = self._find(name, None if version is None else str(version))
        if found is None:
            raise NotFound(
                f"There is no {self._what} {name!r}{'' if version is None else f' of version {version}'}. "
                f"`windrow {self._kind} list{self._connection.place_options()}` lists what is registered."
            )
        return self._made_of(found)

    def newest(self, name: str) -> Asset | None:
        """The asset registered last under a name."""
        return self._find(name, None)

    def name_of(self, name: str) -> str:
        """The master's name for a name in a notebook: names of v1's datasets may hold blanks."""
        return dataset_name(name) if self._kind == "data" else name

    def versions(self, name: str = "") -> Iterator[Asset]:
        """All versions of one name, newest first; without a name, the newest of each."""
        # Without a state folder nothing was ever registered, and nothing needs to be started to know that.
        registry = self._connection.client().registry if self._connection.has_state else None
        return iter(()) if registry is None else registry.list(self._kind, self.name_of(name))

    def placed(self, wanted: Asset) -> Asset:
        """The asset with the path that it will have: data at relative paths is brought to a served master."""
        return self._connection.client().place_asset(wanted)

    def register(self, wanted: Asset) -> Asset:
        """Register an asset whose path is on the master. Raises RequestRefused."""
        return self._connection.client().registry.create(wanted)

    def _find(self, name: str, version: str | None) -> Asset | None:
        if not self._connection.has_state:
            return None
        try:
            return self._connection.client().registry.get(self._kind, self.name_of(name), version)
        except NotFound:
            return None

    def __getitem__(self, name: str) -> Any:
        try:
            return self.find(name)
        except NotFound as error:
            raise KeyError(str(error)) from error

    def __iter__(self) -> Iterator[str]:
        return iter([asset.name for asset in self.versions()])

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Environments(Kept):
    """The environments of a workspace. Those of Azure ML (`AzureML-…`) have no packages, unless one of that name is
    registered.

    Not the agent's `Environments`, which builds them.
    """

    def __init__(self, connection: MasterConnection) -> None:
        """`connection`: to the master."""
        super().__init__(ENVIRONMENT, connection, self._environment_of)

    def find(self, name: str, version: int | str | None = None) -> Any:
        """Return a version; None means the newest. Raises NotFound."""
        try:
            return super().find(name, version)
        except NotFound as error:
            if version is not None and self.newest(name) is not None:
                raise
            raise NotFound(
                f"{error} Make it in this notebook, and register it: Environment.from_conda_specification({name!r}, "
                f"FILE).register(workspace). Or give the step Environment({name!r}): its scripts then run in the "
                "Python of the agent.",
                reason=error.reason,
            ) from error

    def register_plain(self, name: str, plain: Mapping[str, Any]) -> str:
        """Register an environment in the form of v1's files; return its version."""
        from windrow.sdk.packages import register_environment

        node = from_plain(plain, calling_place())
        assert isinstance(node, MappingNode)
        wanted = Asset(ENVIRONMENT, name, "", "", "")
        return register_environment(self._connection.client(), node, wanted).version

    def _environment_of(self, asset: Asset) -> Environment:
        from windrow.sdk.packages import folder_of

        folder = folder_of(self._connection.client(), asset, self._connection.packages_state)
        with open(os.path.join(folder, PACKAGE_FILES[ENVIRONMENT]), encoding="utf-8") as file:
            made = Environment.from_plain(asset.name, yaml.safe_load(file) or {})
        made.version = asset.version
        return made

    def __getitem__(self, name: str) -> Any:
        try:
            return self.find(name)
        except NotFound as error:
            if is_vendors(name):
                return Environment(name)
            raise KeyError(str(error)) from error

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.newest(name) is not None


def datasets(connection: MasterConnection) -> Kept:
    """The datasets of a workspace: the master's data assets."""
    return Kept("data", connection, dataset_of)


def environments(connection: MasterConnection) -> Environments:
    """The environments of a workspace: the master's."""
    return Environments(connection)


def models(connection: MasterConnection) -> Kept:
    """The models of a workspace: the master's."""
    return Kept("model", connection, model_of)


def dataset_of(asset: Asset) -> FileDataset | TabularDataset:
    """The dataset that stands for a data asset. Steps get the asset by its name."""
    made: FileDataset | TabularDataset
    if asset.type != "mltable":
        made = FileDataset([asset.path if asset.is_file else asset.path.rstrip("/") + "/"])
    else:
        paths, steps, keys = _definition(asset.path)
        is_list = bool(paths) and not any(name.startswith("read_") for step in steps for name in step)
        made = FileDataset(paths) if is_list else TabularDataset(paths or [asset.path], steps)
        made.steps, made.partition_keys = steps, keys
    made.become(asset)
    return made


def model_of(asset: Asset) -> Model:
    """The model that stands for a model of the master."""
    made = Model(None, asset.name, asset.path, description=asset.description, tags=dict(asset.tags))
    made.version = version_of(asset)
    return made


def _definition(place: str) -> tuple[list[str], list[dict[str, Any]], list[str]]:
    """The absolute paths, the steps, as written, and the partition keys of an MLTable file; none of each if it is not
    on this machine. Raises JobFileError if it is wrong.
    """
    file = os.path.join(place, FILE_NAME)
    if not os.path.isfile(file):
        return [], [], []
    problems = Problems()
    table = read_mltable(file, problems)
    problems.raise_errors()
    assert table is not None
    paths = [
        entry.text
        if is_elsewhere(entry.text)
        else os.path.normpath(os.path.join(place, entry.text)) + "/" * (entry.kind == "folder")
        for entry in table.paths
    ]
    with open(file, encoding="utf-8") as text:
        written = yaml.safe_load(text)
    steps = [{step: None} if isinstance(step, str) else step for step in written.get("transformations") or ()]
    return paths, steps, [str(key) for key in (written.get("metadata") or {}).get(PARTITION_KEYS) or ()]
