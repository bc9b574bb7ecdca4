"""`MLClient`: submits jobs, follows them, and registers assets, by the names that notebooks use.

It talks to the master that $WINDROW_MASTER or the current context names. Without one, it starts a private master over a
state folder, whose jobs run on this machine while the client lives.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType, MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from windrow.ml.absent import refuse_attribute
from windrow.ml.assets.data import Data, Model
from windrow.ml.assets.environment import Environment
from windrow.ml.connection import MasterConnection
from windrow.ml.jobs.step import Step
from windrow.ml.operations.components import ComponentOperations
from windrow.ml.operations.compute import Compute, ComputeOperations
from windrow.ml.operations.environments import EnvironmentOperations
from windrow.ml.operations.finished import Finished
from windrow.ml.operations.jobs import JobOperations
from windrow.ml.operations.registry import DataOperations, ModelOperations
from windrow.ml.operations.workspace import DatastoreOperations, WorkspaceOperations
from windrow.ml.schedules import JobSchedule, ScheduleOperations, refuse

if TYPE_CHECKING:
    from windrow.sdk.client import Client

CONFIG_FILE = "config.json"
_NONE: Mapping[str, str] = MappingProxyType({})


class MLClient:
    """A client. Credentials, subscription, resource group and workspace are accepted, and have no effect."""

    def __init__(
        self,
        credential: object = None,
        subscription_id: str | None = None,
        resource_group_name: str | None = None,
        workspace_name: str | None = None,
        registry_name: str | None = None,
        *,
        master: str | None = None,
        state: str | os.PathLike[str] | None = None,
        python: str | None = None,
        slots: int | None = None,
        datastores: Mapping[str, str | os.PathLike[str]] = _NONE,
        environments: str | None = None,
        **more: Any,
    ) -> None:
        """Opens nothing yet.

        `master`: its address or the name of a context; by default $WINDROW_MASTER, else the current context. Without a
        master, jobs run on this machine: `state` is their folder (by default $WINDROW_STATE, else .windrow), `python`
        the interpreter of their scripts, `slots` the number of workers at a time, `datastores` the places of datastores
        by name, and `environments` as `windrow run --environments` (by default $WINDROW_ENVIRONMENTS).
        """
        self.subscription_id = subscription_id or ""
        self.resource_group_name = resource_group_name or ""
        self.workspace_name = workspace_name or registry_name or "windrow"
        self.connection = MasterConnection(
            master=master,
            state=state,
            python=python,
            slots=slots,
            datastores=datastores,
            environments=environments,
        )
        self.environments = EnvironmentOperations(self.connection)
        self.components = ComponentOperations(self.connection, registry_name)
        self.jobs = JobOperations(self.connection)
        self.data = DataOperations(self.connection)
        self.models = ModelOperations(self.connection)
        self.compute = ComputeOperations()
        self.datastores = DatastoreOperations(self.connection)
        self.schedules = ScheduleOperations()
        self.workspaces = WorkspaceOperations(self.workspace_name, self.resource_group_name)

    @classmethod
    def from_config(
        cls, credential: object = None, *, path: Any = None, file_name: str | None = None, **more: Any
    ) -> Self:
        """Make a client with the names in a workspace's `config.json`, which is looked for in this folder and those
        above it.
        """
        found = _config(Path(path) if path else Path.cwd(), file_name or CONFIG_FILE)
        return cls(
            credential,
            found.get("subscription_id"),
            found.get("resource_group"),
            found.get("workspace_name"),
            **more,
        )

    @classmethod
    def from_cli(cls, credential: object = None, **more: Any) -> Self:
        """The same as `from_config`."""
        return cls.from_config(credential, **more)

    @property
    def windrow(self) -> Client:
        """The `windrow.Client` that this one uses, for what Azure ML's API does not have."""
        return self.connection.client()

    def create_or_update(self, entity: Any, **more: Any) -> Any:
        """Submit a job, register data, a model, an environment or a component, or note a compute, by its type."""
        if isinstance(entity, Data):
            return self.data.create_or_update(entity)
        if isinstance(entity, Model):
            return self.models.create_or_update(entity)
        if isinstance(entity, Environment):
            return self.environments.create_or_update(entity)
        if (isinstance(entity, Step) and entity.is_component) or isinstance(entity, FunctionType):
            return self.components.create_or_update(entity)
        if isinstance(entity, JobSchedule):
            refuse(entity)
        if isinstance(entity, Compute):
            return self.compute.begin_create_or_update(entity).result()
        return self.jobs.create_or_update(entity, **more)

    def begin_create_or_update(self, entity: Any, **more: Any) -> Finished:
        """The same as `create_or_update`; `result()` returns at once."""
        return Finished(self.create_or_update(entity, **more))

    def __getattr__(self, name: str) -> NoReturn:
        """Raise AttributeError, with what to do instead of what Azure ML's client has."""
        refuse_attribute(name)

    def close(self) -> None:
        """End the connection and any private processes. May be repeated; the next call of a method connects again."""
        self.connection.close()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the client."""
        self.close()

    def __repr__(self) -> str:
        """Show the workspace and the state folder."""
        return f"MLClient(workspace_name={self.workspace_name!r}, state={self.connection.state!r})"


def _config(folder: Path, file_name: str) -> dict[str, str]:
    """The names in a workspace's config file; {} without one, because nothing here needs them."""
    if folder.is_file():
        candidates = [folder]
    else:
        above = [folder.absolute(), *folder.absolute().parents]
        candidates = [place / sub / file_name for place in above for sub in ("", ".azureml", "aml_config")]
    for candidate in candidates:
        try:
            values = json.loads(candidate.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        return {str(key): str(value) for key, value in values.items()} if isinstance(values, dict) else {}
    return {}
