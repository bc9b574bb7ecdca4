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
    """What is needed of a master's registry. `kind` is data or model; assets are mappings of their keys."""

    def create(self, kind: str, asset: dict[str, Any]) -> dict[str, Any]:
        """Register, and return it as registered: with its version, and its path on the master."""

    def get(self, kind: str, name: str, version: str | None) -> dict[str, Any]:
        """One asset; without a version the newest. Raises NotFound."""

    def list(self, kind: str, name: str | None) -> Iterator[dict[str, Any]]:
        """All, or all versions of one."""


def registry_of(connection: MasterConnection) -> Registry:
    """The registry of the master behind a connection. Raises UsageError where it has none."""
    raise UsageError(
        "This version of Windrow has no registry of data assets and models yet: give a job the path itself, "
        "Input(path=..., type=...), or the Data object, whose path is taken."
    )


class _AssetOperations(Generic[A]):
    kind = ""
    entity: type[A]

    def __init__(self, connection: MasterConnection) -> None:
        self._connection = connection

    def create_or_update(self, asset: A) -> A:
        """Register; without a version it gets the next one. Raises WindrowError."""
        return self._made(registry_of(self._connection).create(self.kind, asset.to_dict()))

    def get(self, name: str, version: str | None = None, label: str | None = None) -> A:
        """One asset; without a version (or with the label latest) the newest. Raises NotFound."""
        return self._made(registry_of(self._connection).get(self.kind, name, version))

    def list(self, name: str | None = None, **more: Any) -> Iterator[A]:
        """All assets, or all versions of one."""
        return map(self._made, registry_of(self._connection).list(self.kind, name))

    def _made(self, asset: dict[str, Any]) -> A:
        made = self.entity(**asset)
        made._registered = True
        return made


class DataOperations(_AssetOperations[Data]):
    """`MLClient.data`."""

    kind = "data"
    entity = Data


class ModelOperations(_AssetOperations[Model]):
    """`MLClient.models`."""

    kind = "model"
    entity = Model
