"""Data assets and models: registered with the master, which gives `azureml:<name>:<version>` its meaning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from windrow.errors import UsageError
from windrow.ml.entities import Asset, Data, Model

if TYPE_CHECKING:
    from windrow.ml.connection import MasterConnection

A = TypeVar("A", bound=Asset)


class Registry(Protocol):
    """What is needed of a client whose master keeps assets."""

    def create_data(self, name: str, path: str, **more: Any) -> Any:
        """Register, and return it as registered: with its version, and its path on the master."""

    def create_model(self, name: str, path: str, **more: Any) -> Any:
        """As `create_data`."""

    def data(self, name: str, version: str | None = None) -> Any:
        """One version; None: the newest. Raises NotFound."""

    def model(self, name: str, version: str | None = None) -> Any:
        """As `data`."""

    def list_data(self, name: str = "") -> Iterator[Any]:
        """All versions of one, or the newest of each."""

    def list_models(self, name: str = "") -> Iterator[Any]:
        """As `list_data`."""


def registry_of(connection: MasterConnection) -> Registry:
    """The registry of the master behind a connection. Raises UsageError where it has none."""
    client: Any = connection.client()
    if not hasattr(client, "create_data"):
        raise UsageError(
            "This version of Windrow has no registry of data assets and models: give a job the path itself, "
            "Input(path=..., type=...), or the Data object, whose path is taken."
        )
    registry: Registry = client
    return registry


class _AssetOperations(Generic[A]):
    kind = ""
    entity: type[A]

    def __init__(self, connection: MasterConnection) -> None:
        self._connection = connection

    def create_or_update(self, asset: A) -> A:
        """Register; without a version it gets the next one. A relative path is data of this machine.

        Raises UsageError for one without name or path, WindrowError.
        """
        values = asset.to_dict()
        for key in ("name", "path"):
            if key not in values:
                raise UsageError(f"A {self.kind} asset needs a {key}: {self.entity.__name__}({key}=...).")
        keys = ("type", "version", "description", "tags")
        more = {key: values[key] for key in keys if key in values}
        return self._made(self._create(registry_of(self._connection))(values["name"], values["path"], **more))

    def get(self, name: str, version: str | None = None, label: str | None = None) -> A:
        """One asset; without a version (or with the label latest) the newest. Raises NotFound."""
        return self._made(self._find(registry_of(self._connection))(name, version))

    def list(self, name: str | None = None, **more: Any) -> Iterator[A]:
        """The newest version of each asset, or all versions of one."""
        return map(self._made, self._all(registry_of(self._connection))(name or ""))

    def _create(self, registry: Registry) -> Any:
        raise NotImplementedError

    def _find(self, registry: Registry) -> Any:
        raise NotImplementedError

    def _all(self, registry: Registry) -> Any:
        raise NotImplementedError

    def _made(self, found: Any) -> A:
        keys = ("name", "version", "type", "path", "description", "tags")
        made = self.entity(**{key: getattr(found, key) or None for key in keys})
        made._registered = True
        return made


class DataOperations(_AssetOperations[Data]):
    """`MLClient.data`."""

    kind = "data"
    entity = Data

    def _create(self, registry: Registry) -> Any:
        return registry.create_data

    def _find(self, registry: Registry) -> Any:
        return registry.data

    def _all(self, registry: Registry) -> Any:
        return registry.list_data


class ModelOperations(_AssetOperations[Model]):
    """`MLClient.models`."""

    kind = "model"
    entity = Model

    def _create(self, registry: Registry) -> Any:
        return registry.create_model

    def _find(self, registry: Registry) -> Any:
        return registry.model

    def _all(self, registry: Registry) -> Any:
        return registry.list_models
