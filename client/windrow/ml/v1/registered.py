"""What a workspace keeps by name: datasets and models that a notebook registers with it, and those of the master.

Reference: docs/reference/azure-ml/mltable.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

import yaml

from windrow.errors import NotFound
from windrow.ml.v1.datasets import FileDataset, TabularDataset
from windrow.ml.v1.models import Model
from windrow.ml.v1.versions import find_version
from windrow.spec.naming.locations import is_elsewhere
from windrow.spec.reading.problems import Problems
from windrow.spec.tables.mltable import FILE_NAME, read_mltable

if TYPE_CHECKING:
    from windrow.sdk.asset import Asset, Registry


class Kept(MutableMapping[str, Any]):
    """Things by name. What the workspace object does not keep is looked up at the master, which is asked at the first
    such name.
    """

    def __init__(self, kind: str, registry: Callable[[], Registry], made_of: Callable[[Asset], Any]) -> None:
        """`kind`: of the master's assets, `data` or `model`. `made_of`: what stands for an asset."""
        self.own: dict[str, Any] = {}
        """Those that were registered with the workspace object; the newest version of each."""
        self._kind = kind
        self._what = "dataset" if kind == "data" else kind
        self._registry = registry
        self._made_of = made_of

    def find(self, name: str, version: int | str | None = None) -> Any:
        """Return a version; None means the newest. Raises NotFound."""
        if name in self.own:
            return find_version(f"{self._what} {name}", self.own[name], version)
        try:
            return self._made_of(self._registry().get(self._kind, name, None if version is None else str(version)))
        except NotFound as error:
            raise NotFound(
                f"There is no {self._what} {name!r}{'' if version is None else f' of version {version}'}: neither this "
                f"workspace object nor the master has it. `windrow {self._kind} list` lists the master's.",
                reason=error.reason,
            ) from error

    def __getitem__(self, name: str) -> Any:
        try:
            return self.find(name)
        except NotFound as error:
            raise KeyError(str(error)) from error

    def __setitem__(self, name: str, value: Any) -> None:
        self.own[name] = value

    def __delitem__(self, name: str) -> None:
        del self.own[name]

    def __iter__(self) -> Iterator[str]:
        """The names: own ones first, then the master's."""
        return iter(dict.fromkeys([*self.own, *(asset.name for asset in self._registry().list(self._kind))]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def datasets(registry: Callable[[], Registry]) -> Kept:
    """The datasets of a workspace: its own, and the master's data assets."""
    return Kept("data", registry, dataset_of)


def models(registry: Callable[[], Registry]) -> Kept:
    """The models of a workspace: its own, and the master's."""
    return Kept("model", registry, model_of)


def dataset_of(asset: Asset) -> FileDataset | TabularDataset:
    """The dataset that stands for a data asset. Steps get the asset by its name."""
    made: FileDataset | TabularDataset
    if asset.type != "mltable":
        made = FileDataset([asset.path if asset.is_file else asset.path.rstrip("/") + "/"])
    else:
        paths, steps = _definition(asset.path)
        is_list = bool(paths) and not any(name.startswith("read_") for step in steps for name in step)
        made = FileDataset(paths) if is_list else TabularDataset(paths or [asset.path], steps)
        made.steps = steps
    made.name, made.version = asset.name, _version_of(asset)
    made.description, made.tags = asset.description, dict(asset.tags)
    made.registered = asset.reference
    return made


def model_of(asset: Asset) -> Model:
    """The model that stands for a model of the master."""
    made = Model(None, asset.name, asset.path, description=asset.description, tags=dict(asset.tags))
    made.version = _version_of(asset)
    return made


def _version_of(asset: Asset) -> int | str:
    return int(asset.version) if asset.version.isdecimal() else asset.version


def _definition(place: str) -> tuple[list[str], list[dict[str, Any]]]:
    """The absolute paths and the steps, as written, of an MLTable file; none of either if it is not on this machine.
    Raises JobFileError if it is wrong.
    """
    file = os.path.join(place, FILE_NAME)
    if not os.path.isfile(file):
        return [], []
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
        written = yaml.safe_load(text).get("transformations") or ()
    return paths, [{step: None} if isinstance(step, str) else step for step in written]
