"""Data assets and models: registered with the master, which gives `azureml:<name>:<version>` its meaning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from windrow.errors import UsageError
from windrow.ml.absent import refuse_label
from windrow.ml.assets.data import Asset, Data, Model

if TYPE_CHECKING:
    from windrow.ml.connection import MasterConnection
    from windrow.sdk.asset import Asset as Registered
    from windrow.sdk.client import Client

A = TypeVar("A", bound=Asset)


class _AssetOperations(Generic[A]):
    kind = ""
    entity: type[A]

    def __init__(self, connection: MasterConnection) -> None:
        self._connection = connection

    def create_or_update(self, asset: A) -> A:
        """Register an asset; without a version, as the next one. A relative path means data of this machine.

        Raises UsageError for one without name or path, WindrowError.
        """
        values = asset.to_dict()
        for key in ("name", "path"):
            if key not in values:
                raise UsageError(f"A {self.kind} asset needs a {key}: {self.entity.__name__}({key}=...).")
        keys = ("type", "version", "description", "tags")
        more = {key: values[key] for key in keys if key in values}
        return self._made(self._create(self._connection.client(), values["name"], values["path"], more))

    def get(self, name: str, version: str | None = None, label: str | None = None) -> A:
        """Return one asset; without a version (or with the label latest) the newest. Raises NotFound, and UsageError
        for another label.
        """
        refuse_label(f"{self.kind} asset {name}", label)
        return self._made(self._connection.client().registry.get(self.kind, name, version))

    def list(self, name: str | None = None, **more: Any) -> Iterator[A]:
        """The newest version of each asset, or all versions of one."""
        return map(self._made, self._connection.client().registry.list(self.kind, name or ""))

    def _create(self, client: Client, name: str, path: str, more: dict[str, Any]) -> Registered:
        raise NotImplementedError

    def _made(self, found: Registered) -> A:
        keys = ("name", "version", "type", "path", "description", "tags")
        made = self.entity(**{key: getattr(found, key) or None for key in keys})
        made._registered = True
        return made


class DataOperations(_AssetOperations[Data]):
    """`MLClient.data`."""

    kind = "data"
    entity = Data

    def _create(self, client: Client, name: str, path: str, more: dict[str, Any]) -> Registered:
        return client.create_data(name, path, **more)


class ModelOperations(_AssetOperations[Model]):
    """`MLClient.models`."""

    kind = "model"
    entity = Model

    def _create(self, client: Client, name: str, path: str, more: dict[str, Any]) -> Registered:
        return client.create_model(name, path, **more)
