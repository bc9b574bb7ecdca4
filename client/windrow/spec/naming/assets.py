"""Registered assets: their names, and the registry in which job files look them up."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import NamedTuple, TypeAlias

ASSET_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,254}", re.ASCII)

_ASSET_VERSION = re.compile(r"[A-Za-z0-9][\w.-]{0,49}", re.ASCII)


def is_asset_version(text: str) -> bool:
    """Whether a text can be the version of an asset; `latest` is a label, not a version."""
    return _ASSET_VERSION.fullmatch(text) is not None and text != "latest"


def split_asset_reference(reference: str) -> tuple[str, str, str] | None:
    """Splits `<name>:<version>` or `<name>@latest` (without `azureml:`) into the name, `:` or `@`, and what
    follows; the last two are empty for a bare name. Returns None if the text cannot name an asset. Raises
    ValueError for a label other than `latest`.
    """
    name, sign, said = reference.partition("@") if "@" in reference else reference.partition(":")
    if not ASSET_NAME.fullmatch(name) or (sign == ":" and not is_asset_version(said)):
        return None
    if sign == "@" and said != "latest":
        raise ValueError(f"names an unknown label; the only one is {name}@latest.")
    return name, sign, said


DATA, MODEL = "data", "model"
ENVIRONMENT, COMPONENT = "environment", "component"
PACKAGE_FILES = {ENVIRONMENT: "environment.yml", COMPONENT: "components/1.yml"}
"""By kind of those that the master keeps as packages: the file of a package that is read first."""


class FoundAsset(NamedTuple):
    """One version of an asset. `path`: absolute, or an address; of an environment or component, the digest of its
    package.
    """

    kind: str
    name: str
    version: str
    type: str
    path: str
    is_file: bool

    @property
    def reference(self) -> str:
        """The name in a job file: `azureml:<name>:<version>`."""
        return f"azureml:{self.name}:{self.version}"


class AssetLookup(NamedTuple):
    """A registry. `find(kind, name, version)`: that version (the latest if None), or None if it does not exist;
    `names(kind)`: the names of all assets of a kind; `versions(kind, name)`: the versions of one asset;
    `folder(asset)`: where the package of an environment or component is on this machine.
    """

    find: Callable[[str, str, str | None], FoundAsset | None]
    names: Callable[[str], Collection[str]]
    versions: Callable[[str, str], Collection[str]]
    folder: Callable[[FoundAsset], str]


NO_ASSETS = AssetLookup(lambda kind, name, version: None, lambda kind: (), lambda kind, name: (), lambda asset: "")
"""A registry without assets: there is no master and no state folder."""

OpenLookup: TypeAlias = Callable[[], AssetLookup]
"""Opens a registry. Called at the first asset, so that job files without assets do not wait for a master."""
