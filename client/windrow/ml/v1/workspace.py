"""The workspace: a master, with the datasets, environments and models that notebooks register."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from windrow.errors import UsageError
from windrow.ml.client import MLClient
from windrow.ml.operations.workspace import mlflow_tracking_uri
from windrow.ml.v1.absent import Refusing, why_absent
from windrow.ml.v1.compute import AmlCompute
from windrow.ml.v1.datastores import DEFAULT_NAME, Datastore
from windrow.ml.v1.pipelines import Experiment
from windrow.ml.v1.registered import datasets, environments, models

_OF_CLIENT = ("master", "state", "python", "slots", "environments")
_NONE: Mapping[str, str] = MappingProxyType({})


class Workspace:
    """A workspace. Datasets, environments and models that are registered with it are the master's.

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
        """The names have no effect. `more`: `master`, `state`, `python`, `slots`, `environments` of `MLClient`."""
        known = {key: value for key, value in more.items() if key in _OF_CLIENT}
        self.ml_client = MLClient(None, subscription_id, resource_group, workspace_name, datastores=datastores, **known)
        self.datastores: dict[str, Datastore] = {
            name: Datastore(name=name, root=_root(os.fspath(place))) for name, place in datastores.items()
        }
        for store in self.datastores.values():
            store.workspace = self
        self.datasets = datasets(self.ml_client.connection)
        self.environments = environments(self.ml_client.connection)
        self._default_datastore = DEFAULT_NAME
        self._experiments: dict[str, Any] = {}
        self.models = models(self.ml_client.connection)
        self.compute_targets: Mapping[str, AmlCompute] = _Pools()
        self.location = "local"

    @classmethod
    def from_config(cls, path: Any = None, auth: object = None, **more: Any) -> Workspace:
        """Make a workspace with the names in a `config.json`, if there is one."""
        found = MLClient.from_config(path=path)
        return cls(found.subscription_id, found.resource_group_name, found.workspace_name, **more)

    @classmethod
    def get(
        cls, name: str, subscription_id: str | None = None, resource_group: str | None = None, **more: Any
    ) -> Workspace:
        """Return a workspace by name."""
        return cls(subscription_id, resource_group, name, **more)

    @property
    def name(self) -> str:
        """The workspace's name."""
        return self.ml_client.workspace_name

    @property
    def subscription_id(self) -> str:
        """The name that was given; it has no effect."""
        return self.ml_client.subscription_id

    @property
    def resource_group(self) -> str:
        """The name that was given; it has no effect."""
        return self.ml_client.resource_group_name

    @property
    def tables_folder(self) -> str:
        """Where MLTable files of datasets are written."""
        return self._hidden_folder(".tables")

    @property
    def models_folder(self) -> str:
        """Where files of registered models are kept, and links to them, for scripts that ask for models by name."""
        return self._hidden_folder(".models")

    @property
    def runs_folder(self) -> str:
        """Where the files are kept that notebooks upload to their own runs."""
        return self._hidden_folder(".runs")

    def _hidden_folder(self, name: str) -> str:
        return os.path.join(os.path.dirname(self.ml_client.connection.state), DEFAULT_NAME, name)

    def get_details(self) -> dict[str, Any]:
        """Return the names of the workspace."""
        names = {"id": self.name, "name": self.name, "location": self.location}
        return {**names, "subscription_id": self.subscription_id, "resource_group": self.resource_group}

    @property
    def experiments(self) -> dict[str, Experiment]:
        """Experiments by name: those made with this object, and those of the master's jobs."""
        names = dict.fromkeys(job.experiment_name for job in self.ml_client.windrow.list_jobs() if job.experiment_name)
        return {**{name: Experiment(self, name) for name in names}, **self._experiments}

    def get_mlflow_tracking_uri(self) -> str:
        """Return what $MLFLOW_TRACKING_URI says, else an empty text, with a warning."""
        return mlflow_tracking_uri()

    def get_default_keyvault(self) -> NoReturn:
        """Raises UsageError: Windrow does not have key vaults."""
        raise UsageError(f"A workspace has no Keyvault: {why_absent('Keyvault')}")

    def get_default_datastore(self) -> Datastore:
        """Return the default datastore."""
        return self.datastore_named(self._default_datastore)

    def set_default_datastore(self, name: str) -> None:
        """Let this datastore be the default one, for this workspace object."""
        self._default_datastore = name

    def datastore_named(self, name: str) -> Datastore:
        """Return a datastore by name. The master looks up the places of datastores that this object does not know."""
        known = self.datastores.get(name)
        if known is None:
            local = name == DEFAULT_NAME and self.ml_client.connection.would_be_embedded
            root = os.path.join(os.path.dirname(self.ml_client.connection.state), DEFAULT_NAME) if local else ""
            known = self.datastores[name] = Datastore(name=name, root=root)
            known.workspace = self
        return known

    def known_folders(self) -> tuple[str, dict[str, str]]:
        """The name of the default datastore, and the folder of each datastore of this object that is one, by name."""
        stores = {store.name: store for store in (self.get_default_datastore(), *self.datastores.values())}
        return self._default_datastore, {name: store.root for name, store in stores.items() if store.is_folder}

    def write_config(self, path: str | None = None, file_name: str = "config.json") -> None:
        """Write the workspace's names where `from_config` finds them: `.azureml/config.json` below `path`."""
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
        """Show the name."""
        return f"Workspace({self.name!r})"


class InteractiveLoginAuthentication(Refusing):
    """Accepted by a workspace, and not used: a context gives access to a master (docs/how-to/use-tls-and-tokens.md)."""

    def __init__(self, *arguments: object, **more: object) -> None:
        """Accept and ignore any arguments."""


class ServicePrincipalAuthentication(InteractiveLoginAuthentication):
    """The same as `InteractiveLoginAuthentication`."""


class MsiAuthentication(InteractiveLoginAuthentication):
    """The same as `InteractiveLoginAuthentication`."""


class AzureCliAuthentication(InteractiveLoginAuthentication):
    """The same as `InteractiveLoginAuthentication`."""


class _Pools(Mapping[str, AmlCompute]):
    """A mapping in which every name is a pool, with or without agents in it."""

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
