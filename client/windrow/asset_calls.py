"""What `windrow.Client` offers for data assets and models."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow.asset import Asset, Registry
    from windrow.master import Master
    from windrow.rpc.connection import Connection
    from windrow.spec.naming.assets import AssetLookup
    from windrow.upload import OnUpload


class AssetCalls:
    """Calls of a client. Needs its `connection` and `master()`."""

    connection: Connection

    def master(self) -> Master:
        """What the master is."""
        raise NotImplementedError

    @property
    def registry(self) -> Registry:
        """The assets of the master."""
        from windrow.asset import Registry

        return Registry(self.connection)

    def asset_lookup(self) -> AssetLookup:
        """What `windrow.spec.load_job` takes as `assets`."""
        return self.registry.lookup()

    def create_data(
        self,
        name: str,
        path: str | os.PathLike[str],
        *,
        type: str = "uri_folder",
        version: str | int | None = None,
        description: str = "",
        tags: Mapping[str, str] | None = None,
        on_upload: OnUpload = lambda moment: None,
    ) -> Asset:
        """Register data as `azureml:<name>:<version>`; without a version as the next number.

        `type`: uri_folder, uri_file or mltable. A relative path is data of this machine, and goes along to a served
        master; an absolute one is the master's. What is registered never changes; the same again is harmless. Raises
        UsageError, RequestRefused (ASSET_EXISTS, ASSET_INVALID).
        """
        from windrow.asset import Asset

        wanted = Asset("data", name, _text(version), type, os.fspath(path), False, description, dict(tags or {}))
        return self.create_asset(wanted, on_upload=on_upload)

    def create_model(
        self,
        name: str,
        path: str | os.PathLike[str],
        *,
        type: str = "custom_model",
        version: str | int | None = None,
        description: str = "",
        tags: Mapping[str, str] | None = None,
        on_upload: OnUpload = lambda moment: None,
    ) -> Asset:
        """Register a model, a file or a folder, as `create_data` does data. `type`: custom_model, mlflow_model or
        triton_model."""
        from windrow.asset import Asset

        wanted = Asset("model", name, _text(version), type, os.fspath(path), False, description, dict(tags or {}))
        return self.create_asset(wanted, on_upload=on_upload)

    def create_asset(
        self, asset: Asset, *, folder: str | os.PathLike[str] | None = None, on_upload: OnUpload = lambda moment: None
    ) -> Asset:
        """Register an asset; `folder`: where relative paths begin, by default the current one. See `create_data`."""
        from windrow.asset import place_asset

        master = self.master()
        datastores = None if master.embedded else master.datastores
        start = str(Path(folder or ".").absolute())
        return self.registry.create(
            place_asset(self.connection, asset, start, datastores=datastores, on_upload=on_upload)
        )

    def data(self, name: str, version: str | int | None = None) -> Asset:
        """One version of a data asset; by default the latest. Raises NotFound."""
        return self.registry.get("data", name, _text(version))

    def model(self, name: str, version: str | int | None = None) -> Asset:
        """One version of a model; by default the latest. Raises NotFound."""
        return self.registry.get("model", name, _text(version))

    def list_data(self, name: str = "") -> Iterator[Asset]:
        """All versions of a data asset, newest first; without a name the latest version of each."""
        return self.registry.list("data", name)

    def list_models(self, name: str = "") -> Iterator[Asset]:
        """All versions of a model, newest first; without a name the latest version of each."""
        return self.registry.list("model", name)


def _text(version: str | int | None) -> str:
    return "" if version is None else str(version)
