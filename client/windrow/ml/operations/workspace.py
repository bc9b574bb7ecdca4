"""`MLClient.workspaces` and `MLClient.datastores`: the names of the workspace, the datastores of the master."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from windrow.errors import NotFound
from windrow.ml.attributes import Attributes
from windrow.ml.exceptions import JobWarning

if TYPE_CHECKING:
    from windrow.ml.connection import MasterConnection


MLFLOW_VARIABLE = "MLFLOW_TRACKING_URI"


def mlflow_tracking_uri(stacklevel: int = 3) -> str:
    """Where MLflow logs: what $MLFLOW_TRACKING_URI says. Without it warns (JobWarning) and returns an empty text, with
    which MLflow logs into a folder.
    """
    uri = os.environ.get(MLFLOW_VARIABLE, "")
    if not uri:
        warnings.warn(
            f"Windrow has no MLflow server. Set {MLFLOW_VARIABLE} to the address of yours; without it, MLflow logs "
            "into the working folder of each process.",
            JobWarning,
            stacklevel=stacklevel,
        )
    return uri


class Workspace(Attributes):
    """The workspace, which stands for the master: its names."""

    @property
    def mlflow_tracking_uri(self) -> str:
        """What $MLFLOW_TRACKING_URI says, else an empty text, with a warning."""
        return mlflow_tracking_uri()


class WorkspaceOperations:
    """`MLClient.workspaces`: the only workspace, which stands for the master."""

    def __init__(self, name: str, resource_group: str) -> None:
        """`name`, `resource_group`: the names that the client was given."""
        self._name = name
        self._resource_group = resource_group

    def get(self, name: str | None = None, **more: Any) -> Workspace:
        """The workspace, under the names that the client was given."""
        return Workspace(name=name or self._name, location="local", resource_group=self._resource_group or "windrow")

    def list(self, **more: Any) -> Iterator[Workspace]:
        """The only workspace."""
        return iter([self.get()])


class DatastoreOperations:
    """`MLClient.datastores`: the datastores of the master."""

    def __init__(self, connection: MasterConnection) -> None:
        """`connection`: to the master."""
        self._connection = connection

    def list(self, **more: Any) -> Iterator[Attributes]:
        """All datastores, each with its place."""
        places = self._connection.client().master().datastores
        return iter([Attributes(name=name, path=place) for name, place in places.items()])

    def get(self, name: str) -> Attributes:
        """Return a datastore by name. Raises NotFound."""
        for store in self.list():
            if store["name"] == name:
                return store
        raise NotFound(
            f"The master has no datastore {name!r}. Name it when the master is started (--datastore {name}=PLACE), or "
            f"for jobs on this machine: MLClient(datastores={{{name!r}: PLACE}})."
        )

    def get_default(self) -> Attributes:
        """Return the datastore named `default`."""
        return self.get("default")
