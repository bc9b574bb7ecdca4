"""`azureml.core.Model`, offered where the real package is not installed: a registered model, as a file or folder.

It looks where the real one does in a script: below the folder that $AML_APP_ROOT names, then the working folder. Where
the master is not on the notebook's machine, $WINDROW_MODELS has the places of the registered ones.
"""

from __future__ import annotations

import json
import os
import shutil

from .run import absent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn, Optional, Tuple

    Found = Tuple[str, Optional[int]]
    """Its path, and its version; None if it is not registered, but in the code."""

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
        raise AttributeError(f"Model.{name} is not there in Windrow: {_why(name)}.")


def _why(name: str) -> str:
    return _INSTEAD.get(
        name,
        "it offers Model.get_model_path and Model(workspace, name).download. Give what else the script needs to "
        "the step as an input, or as an argument",
    )


class Model(metaclass=_ModelType):
    """A registered model: `Model(workspace, name, version=2)`; without a version, the newest."""

    def __init__(
        self,
        workspace: Any,
        name: Optional[str] = None,
        id: Optional[str] = None,
        tags: Any = None,
        properties: Any = None,
        version: Optional[int] = None,
        **more: Any,
    ) -> None:
        """`workspace` has no effect; `id`: name:version. Raises FileNotFoundError for a model that is not there."""
        if id:
            name, _, text = id.partition(":")
            version = int(text) if text else version
        if not name or tags or properties or any(more.get(key) for key in ("run_id", "model_framework")):
            raise RuntimeError("A script finds models of Windrow by their name alone: Model(workspace, name)")
        self.name = name
        self._path, self.version = _found(name, version)
        self.id = name if self.version is None else f"{name}:{self.version}"

    def download(self, target_dir: str = ".", exist_ok: bool = False, exists_ok: Optional[bool] = None) -> str:
        """Copies the model's file or folder into `target_dir`, and returns its path there. Raises FileExistsError."""
        target = os.path.join(target_dir, os.path.basename(self._path))
        if os.path.exists(target) and not (exist_ok or exists_ok):
            raise FileExistsError(f"{target} is there already; download(exist_ok=True) replaces it")
        os.makedirs(target_dir, exist_ok=True)
        if os.path.realpath(self._path) == os.path.realpath(target):
            return target
        if os.path.isdir(self._path):
            shutil.copytree(self._path, target, dirs_exist_ok=True, copy_function=_copy)
        else:
            _copy(self._path, target)
        return target

    def __getattr__(self, name: str) -> NoReturn:
        """Raises AttributeError."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"Model.{name} is not there in Windrow: {_why(name)}.")

    def __repr__(self) -> str:
        """Shows the id."""
        return f"Model(id={self.id!r})"

    @staticmethod
    def get_model_path(model_name: str, version: Optional[int] = None, _workspace: Any = None) -> str:
        """The path of a model; without `version`, of the newest. Raises FileNotFoundError."""
        return _found(model_name, version)[0]


def _copy(path: str, target: str) -> str:
    """Workers of one node may copy to the same place: none of them meets half a file."""
    begun = f"{target}.{os.getpid()}"
    shutil.copyfile(path, begun)
    os.replace(begun, target)
    return target


def _found(name: str, version: Optional[int]) -> Found:
    """Raises FileNotFoundError."""
    roots = [root for root in (os.environ.get("AML_APP_ROOT"), os.getcwd()) if root]
    found = next(filter(None, (_below(root, name, version) for root in roots)), None)
    found = found or _registered(name, version)
    if found is not None:
        return found
    folders = " and ".join(os.path.join(root, _FOLDER, name) for root in roots)
    raise FileNotFoundError(
        f"There is no model {name!r}{'' if version is None else f' of version {version}'} for this step. "
        "Register it in the notebook that submits the pipeline (Model.register), or give it to the step as an "
        f"input. The script looks in {folders}"
    )


def _below(root: str, name: str, version: Optional[int]) -> Optional[Found]:
    """A model below a folder; None if it is not there."""
    folder = os.path.join(root, _FOLDER, name)
    numbers = sorted((int(text) for text in _names(folder) if text.isdigit()), reverse=True)
    wanted = [number for number in numbers if version is None or number == int(version)]
    for number in wanted[:1]:
        below = os.path.join(folder, str(number))
        there = _names(below)
        if len(there) == 1:
            return os.path.join(below, there[0]), number
    beside = os.path.join(root, name)
    return (beside, None) if version is None and os.path.exists(beside) else None


def _registered(name: str, version: Optional[int]) -> Optional[Found]:
    """A model of the master; None if it has none of that name and version. Raises FileNotFoundError for one
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
    return str(place), int(wanted)


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
