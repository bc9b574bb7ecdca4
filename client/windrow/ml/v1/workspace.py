"""The workspace: a master, and what notebooks keep beside it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from windrow.errors import UsageError
from windrow.ml.client import MLClient
from windrow.ml.v1.absent import why_absent
from windrow.ml.v1.compute import AmlCompute
from windrow.ml.v1.datastores import DEFAULT_NAME, Datastore
from windrow.ml.v1.environment import Environments
from windrow.ml.v1.pipelines import Experiment

_OF_CLIENT = ("master", "state", "python", "slots", "environments")
_NONE: Mapping[str, str] = MappingProxyType({})


class Workspace:
    """A workspace. Datasets, environments and models that are registered are kept by this object.

    Without a master its default datastore is the folder `workspaceblobstore` beside the state folder.
    """

    def __init__(
        self,
        subscription_id: str | None = None,
        resource_group: str | None = None,
        workspace_name: str | None = None,
        auth: object = None,
        *,
        datastores: Mapping[str, str | os.PathLike[str]] = _NONE,
        **more: Any,
    ) -> None:
        """The names mean nothing here. `more`: `master`, `state`, `python`, `slots`, `environments` of `MLClient`."""
        known = {key: value for key, value in more.items() if key in _OF_CLIENT}
        self.ml_client = MLClient(None, subscription_id, resource_group, workspace_name, datastores=datastores, **known)
        self.datastores: dict[str, Datastore] = {
            name: Datastore(name=name, root=_root(os.fspath(place))) for name, place in datastores.items()
        }
        self.datasets: dict[str, Any] = {}
        self.environments = Environments()
        self._experiments: dict[str, Any] = {}
        self.models: dict[str, Any] = {}
        self.compute_targets: Mapping[str, AmlCompute] = _Pools()
        self.location = "local"

    @classmethod
    def from_config(cls, path: Any = None, auth: object = None, **more: Any) -> Workspace:
        """With the names of a `config.json`, if there is one."""
        found = MLClient.from_config(path=path)
        return cls(found.subscription_id, found.resource_group_name, found.workspace_name, **more)

    @classmethod
    def get(
        cls, name: str, subscription_id: str | None = None, resource_group: str | None = None, **more: Any
    ) -> Workspace:
        """By its name."""
        return cls(subscription_id, resource_group, name, **more)

    @property
    def name(self) -> str:
        """Its name."""
        return self.ml_client.workspace_name

    @property
    def subscription_id(self) -> str:
        """As it was given."""
        return self.ml_client.subscription_id

    @property
    def resource_group(self) -> str:
        """As it was given."""
        return self.ml_client.resource_group_name

    @property
    def tables_folder(self) -> str:
        """Where MLTable files of datasets are written."""
        return os.path.join(os.path.dirname(self.ml_client.connection.state), DEFAULT_NAME, ".tables")

    @property
    def experiments(self) -> dict[str, Experiment]:
        """Those made with this object, and those of the master's jobs, by name."""
        names = dict.fromkeys(job.experiment_name for job in self.ml_client.windrow.list_jobs() if job.experiment_name)
        return {**{name: Experiment(self, name) for name in names}, **self._experiments}

    def get_default_keyvault(self) -> NoReturn:
        """Raises UsageError: there is none."""
        raise UsageError(f"A workspace has no Keyvault: {why_absent('Keyvault')}")

    def get_default_datastore(self) -> Datastore:
        """The default one."""
        return self.datastore_named(DEFAULT_NAME)

    def datastore_named(self, name: str) -> Datastore:
        """One by its name; of others than are known here, the master knows where they are."""
        known = self.datastores.get(name)
        if known is None:
            local = name == DEFAULT_NAME and self.ml_client.connection.would_be_embedded
            root = os.path.join(os.path.dirname(self.ml_client.connection.state), DEFAULT_NAME) if local else ""
            known = self.datastores[name] = Datastore(name=name, root=root)
        return known

    def write_config(self, path: str | None = None, file_name: str = "config.json") -> None:
        """Write its names where `from_config` finds them: `.azureml/config.json` below `path`."""
        folder = os.path.join(path or os.getcwd(), ".azureml")
        os.makedirs(folder, exist_ok=True)
        names = {
            "subscription_id": self.subscription_id,
            "resource_group": self.resource_group,
            "workspace_name": self.name,
        }
        with open(os.path.join(folder, file_name), "w", encoding="utf-8") as file:
            json.dump(names, file, indent=4)

    def close(self) -> None:
        """End the connection, and private processes."""
        self.ml_client.close()

    def __repr__(self) -> str:
        """Its name."""
        return f"Workspace({self.name!r})"


class InteractiveLoginAuthentication:
    """Accepted by a workspace, and not used: a context gives access to a master (docs/how-to/use-tls-and-tokens.md)."""

    def __init__(self, *arguments: object, **more: object) -> None:
        """Anything is accepted."""


class ServicePrincipalAuthentication(InteractiveLoginAuthentication):
    """As `InteractiveLoginAuthentication`."""


class MsiAuthentication(InteractiveLoginAuthentication):
    """As `InteractiveLoginAuthentication`."""


class AzureCliAuthentication(InteractiveLoginAuthentication):
    """As `InteractiveLoginAuthentication`."""


class _Pools(Mapping[str, AmlCompute]):
    """Every name is a pool of agents, with or without agents in it."""

    def __getitem__(self, name: str) -> AmlCompute:
        return AmlCompute(None, name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _root(place: str) -> str:
    return place.rstrip("/") if "://" in place else os.path.abspath(place)
