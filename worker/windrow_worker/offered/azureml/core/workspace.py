"""Names of `azureml.core` that scripts import, often without a use, and that need a workspace: there is none."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_DATA = (
    "give the data to the step as an input. Run.get_context().input_datasets[NAME] is its path, with to_path() and "
    "to_pandas_dataframe()"
)
_NONE = "a script has no workspace. Give the step its data and models as inputs"
_INSTEAD = {
    "Dataset": _DATA,
    "Datastore": _DATA + "; what the step writes goes into its outputs",
    "Environment": "a script runs in the environment of its step, which the notebook or job file chooses",
    "Experiment": "Run.get_context().experiment.name is the name of the script's own; notebooks submit to others",
    "Keyvault": "secrets are not kept. Read an environment variable; windrow agent --pass-env NAME lets it through",
}


class _StandInType(type):
    def __getattr__(cls, name: str) -> NoReturn:
        """Raises AttributeError."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError("%s.%s is not there in a script of Windrow: %s" % (cls.__name__, name, _why(cls)))


class _StandIn(metaclass=_StandInType):
    def __init__(self, *arguments: Any, **more: Any) -> None:
        """Raises RuntimeError."""
        raise RuntimeError("%s is not there in a script of Windrow: %s" % (type(self).__name__, _why(type(self))))


def _why(cls: type) -> str:
    return _INSTEAD.get(cls.__name__, _NONE)


class Workspace(_StandIn):
    """Not there, but as `Run.get_context().experiment.workspace`, which names the models that a script opens."""

    name = "windrow"
    subscription_id = ""
    resource_group = ""
    location = "local"


class _OwnWorkspace(Workspace):
    """What scripts hand to `Model(workspace, name)`."""

    def __init__(self) -> None:
        """Opens nothing."""

    def __getattr__(self, name: str) -> NoReturn:
        """Raises AttributeError."""
        if name.startswith("__"):
            raise AttributeError(name)
        why = _INSTEAD["Keyvault"] if "keyvault" in name else _DATA if "data" in name else _NONE
        raise AttributeError("Workspace.%s is not there in a script of Windrow: %s" % (name, why))


OWN = _OwnWorkspace()


class Dataset(_StandIn):
    """Not there."""


class Datastore(_StandIn):
    """Not there."""


class Environment(_StandIn):
    """Not there."""


class Experiment(_StandIn):
    """Not there."""


class Keyvault(_StandIn):
    """Not there."""


__all__ = ["Dataset", "Datastore", "Environment", "Experiment", "Keyvault", "Workspace"]


def __getattr__(name: str) -> NoReturn:
    """Raises ModuleNotFoundError, as the import of a package that is not installed does."""
    if name.startswith("__"):
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    from .run import absent

    raise absent(__name__ + "." + name)
