"""`azureml.core.Model`, offered where the real package is not installed: of its methods, only `get_model_path`.

It looks where the real one does in a script: below the folder that $AML_APP_ROOT names, then the working folder. Where
the master is not on the notebook's machine, $WINDROW_MODELS has the places of the registered ones.
"""

from __future__ import annotations

import json
import os

from .run import absent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn, Optional

__all__ = ["Model"]

_FOLDER = "azureml-models"
_PLACES = "WINDROW_MODELS"
"""JSON: by name and version, the path or address of each model."""


_INSTEAD = {
    "register": "write the model into an output of the step, and register it: windrow model create",
    "list": "there is no workspace. Give the step its models as inputs",
}


class _ModelType(type):
    def __getattr__(cls, name: str) -> NoReturn:
        """Raises AttributeError."""
        if name.startswith("__"):
            raise AttributeError(name)
        why = _INSTEAD.get(name, "it offers only Model.get_model_path. Install azureml-core in the Python of the step")
        raise AttributeError(f"Model.{name} is not there in Windrow: {why}.")


class Model(metaclass=_ModelType):
    """Finds registered models by name."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        """Raises RuntimeError."""
        raise RuntimeError(
            "A script cannot open the workspace's models. Model.get_model_path(name) gives the path of one, or give it "
            "to the step as an input"
        )

    @staticmethod
    def get_model_path(model_name: str, version: Optional[int] = None, _workspace: Any = None) -> str:
        """The path of a model; without `version`, of the newest. Raises FileNotFoundError."""
        roots = [root for root in (os.environ.get("AML_APP_ROOT"), os.getcwd()) if root]
        found = next(filter(None, (_below(root, model_name, version) for root in roots)), None)
        found = found or _registered(model_name, version)
        if found is not None:
            return found
        folders = " and ".join(os.path.join(root, _FOLDER, model_name) for root in roots)
        raise FileNotFoundError(
            f"There is no model {model_name!r}{'' if version is None else f' of version {version}'} for this step. "
            "Register it in the notebook that submits the pipeline (Model.register), or give it to the step as an "
            f"input. The script looks in {folders}"
        )


def _below(root: str, name: str, version: Optional[int]) -> Optional[str]:
    """The path of a model below a folder; None if it is not there."""
    folder = os.path.join(root, _FOLDER, name)
    numbers = sorted((int(text) for text in _names(folder) if text.isdigit()), reverse=True)
    wanted = [number for number in numbers if version is None or number == int(version)]
    for number in wanted[:1]:
        below = os.path.join(folder, str(number))
        there = _names(below)
        if len(there) == 1:
            return os.path.join(below, there[0])
    beside = os.path.join(root, name)
    return beside if version is None and os.path.exists(beside) else None


def _registered(name: str, version: Optional[int]) -> Optional[str]:
    """The path of a model of the master; None if it has none of that name and version. Raises FileNotFoundError for one
    that is not on this node.
    """
    versions = json.loads(os.environ.get(_PLACES) or "{}").get(name) or {}
    numbers = sorted((int(text) for text in versions if text.isdigit()), reverse=True)
    wanted = str(version) if version is not None else str(numbers[0]) if numbers else ""
    place = versions.get(wanted)
    if place is None:
        return None
    if not os.path.exists(place):
        raise FileNotFoundError(
            f"The model {name}:{wanted} is at {place}, which is not on this node. Give it to the step as an input, "
            f"azureml:{name}:{wanted}, and its path to the script as an argument"
        )
    return str(place)


def _names(folder: str) -> list:  # type: ignore[type-arg]  # Python 3.8 has no list[str]
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def __getattr__(name: str) -> NoReturn:
    """Raises ModuleNotFoundError, as the import of a package that is not installed does."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise absent(f"{__name__}.{name}")
