"""`azureml.core.Workspace`, offered where the real package is not installed: the master of the script's step, which has
models, data assets and datastores by name.
"""

from __future__ import annotations

import os

from ._stand_ins import DATA, NONE, SECRETS, Named, missing, names_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, NoReturn

    from .datastore import Datastore

__all__ = ["Workspace"]

_MLFLOW = "MLFLOW_TRACKING_URI"


class Workspace(metaclass=Named):
    """The workspace of a script: however it is got, and whatever names it is given, always that of its run."""

    name = "windrow"
    subscription_id = ""
    resource_group = ""
    location = "local"

    def __init__(self, *arguments: Any, **more: Any) -> None:
        """The names and credentials have no effect."""

    @classmethod
    def from_config(cls, *arguments: Any, **more: Any) -> Workspace:
        """The workspace of the run."""
        return OWN

    @classmethod
    def get(cls, *arguments: Any, **more: Any) -> Workspace:
        """The workspace of the run."""
        return OWN

    @property
    def datasets(self) -> ByName:
        """The data assets by name."""
        from .dataset import Dataset

        return ByName(lambda name: Dataset.get_by_name(self, name))

    @property
    def datastores(self) -> Dict[str, Datastore]:
        """The datastores by name. Raises NoAgent."""
        from .datastore import Datastore, places

        return {name: Datastore.get(self, name) for name in places()}

    @property
    def models(self) -> Dict[str, Any]:
        """The newest version of each model, by name. Raises NoAgent."""
        from .model import Model

        return {model.name: model for model in Model.list(self)}

    def get_default_datastore(self) -> Datastore:
        """The default datastore. Raises RuntimeError if there is none."""
        from .datastore import Datastore

        return Datastore.get_default(self)

    def get_details(self) -> Dict[str, str]:
        """The names of the workspace."""
        return {"id": self.name, "name": self.name, "location": self.location}

    def get_mlflow_tracking_uri(self) -> str:
        """What $MLFLOW_TRACKING_URI says; empty without it: then MLflow logs into the working folder."""
        return os.environ.get(_MLFLOW, "")

    def __getattr__(self, name: str) -> NoReturn:
        """Raises AttributeError."""
        raise missing("Workspace", name, SECRETS if "keyvault" in name else DATA if "data" in name else NONE)

    def __repr__(self) -> str:
        """Shows the name."""
        return "Workspace(%r)" % self.name


class ByName:
    """Like a dictionary of what is looked up by name."""

    def __init__(self, find: Any) -> None:
        """`find`: raises FileNotFoundError for a name that is not there."""
        self._find = find

    def __getitem__(self, name: str) -> Any:
        try:
            return self._find(name)
        except FileNotFoundError as error:
            raise KeyError(str(error)) from error

    def __contains__(self, name: object) -> bool:
        return self.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        raise TypeError("A script finds data by its name; windrow data list names all")

    def get(self, name: Any, default: Any = None) -> Any:
        """What has the name, else `default`."""
        try:
            return self[name]
        except KeyError:
            return default


OWN = Workspace()
__getattr__ = names_of(__name__)
