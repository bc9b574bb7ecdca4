"""`azureml.core.Model`, offered where the real package is not installed: a registered model, as a file or folder.

It looks where the real one does in a script: below the folder that $AML_APP_ROOT names, then the working folder; then
it asks the agent. Where the master is not on the notebook's machine, $WINDROW_MODELS has the places of those that the
notebook knew.
"""

from __future__ import annotations

import json
import os
import shutil
from datetime import datetime, timezone

from ._agent import NoAgent, ask, bring, files_below, readable
from ._stand_ins import names_of
from ._told import TOLD
from .run import tell_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, NoReturn, Optional, Tuple

    Found = Tuple[str, Optional[int]]
    """Its path, and its version; None if it is not registered, but in the code."""
    Models = List["Model"]

__all__ = ["Model"]

_FOLDER = "azureml-models"
_PLACES = "WINDROW_MODELS"
_KEPT = "/.models/"
"""In the path of a model that scripts have handed in, and the master keeps."""
"""JSON: by name and version, the path or address of each model."""


class _ModelType(type):
    def __getattr__(cls, name: str) -> NoReturn:
        """Raises AttributeError."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"Model.{name} is not there in Windrow: {_WHY}.")


_WHY = (
    "it offers Model.register, Model.list, Model.get_model_path and Model(workspace, name).download. Give what else "
    "the script needs to the step as an input, or as an argument"
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
        if name and tags:
            having = [model for model in Model.list(workspace, name, tags) if version in (None, model.version)]
            if not having:
                raise FileNotFoundError(f"No version of the model {name!r} has the tags {tags!r}")
            version = having[0].version
        if not name or properties or any(more.get(key) for key in ("run_id", "model_framework")):
            raise RuntimeError("A script finds models of Windrow by their name and tags: Model(workspace, name)")
        self._path, found = _found(name, version)
        self._become({"name": name, "version": found})

    _path: Optional[str]

    def _become(self, known: Dict[str, Any]) -> None:
        self.name = known["name"]
        self.version = _number(known["version"])
        self.id = self.name if self.version is None else f"{self.name}:{self.version}"
        self._known = known if "tags" in known else None

    @classmethod
    def _of(cls, known: Dict[str, Any], path: Optional[str] = None) -> Model:
        """The model that the master tells of. `path`: where it is, if that is known."""
        model = cls.__new__(cls)
        model._become(known)
        model._path = path
        return model

    @property
    def tags(self) -> Dict[str, str]:
        """The tags that it was registered with."""
        return dict(self._told().get("tags") or {})

    @property
    def description(self) -> str:
        """What it was registered with for people."""
        return str(self._told().get("description") or "")

    @property
    def properties(self) -> Dict[str, str]:
        """An empty dictionary: they are not kept."""
        return {}

    @property
    def created_time(self) -> Optional[datetime]:
        """When it was registered; None for one that is in the code."""
        moment = self._told().get("created_s")
        return None if moment is None else datetime.fromtimestamp(moment, timezone.utc)

    def _told(self) -> Dict[str, Any]:
        if self._known is None:
            versions = [] if self.version is None else _registered_models(self.name)
            self._known = next((one for one in versions if _number(one["version"]) == self.version), {})
        return self._known

    @classmethod
    def register(
        cls,
        workspace: Any,
        model_path: str,
        model_name: str,
        tags: Optional[Mapping[str, Any]] = None,
        properties: Optional[Mapping[str, Any]] = None,
        description: Optional[str] = None,
        **more: Any,
    ) -> Model:
        """Registers a file or folder as the next version of a model; returns when it is kept for good.

        A step registers the same content under the same name once, also when a mini-batch runs again. `workspace` has
        no effect. Raises FileNotFoundError.
        """
        return register(model_name, model_path, description, tags)

    @staticmethod
    def list(workspace: Any, name: Optional[str] = None, tags: Any = None, latest: bool = False, **more: Any) -> Models:
        """The registered models, the newest first. `tags`: those that they must have, as `[["kind", "net"], "year"]`;
        `latest`: of each name only the newest.
        """
        found = _registered_models(name or "")
        if not latest and not name:
            found = [version for newest in found for version in _registered_models(newest["name"])]
            found.sort(key=lambda model: model["created_s"], reverse=True)
        wanted = [(tag, None) if isinstance(tag, str) else (tag[0], tag[1]) for tag in _pairs(tags)]
        return [
            Model._of(model)
            for model in found[: 1 if latest and name else None]
            if all(key in model["tags"] and value in (None, model["tags"][key]) for key, value in wanted)
        ]

    def download(self, target_dir: str = ".", exist_ok: bool = False, exists_ok: Optional[bool] = None) -> str:
        """Copies the model's file or folder into `target_dir`, and returns its path there. Raises FileExistsError."""
        if self._path is None:
            self._path = _found(self.name, self.version)[0]
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
        raise AttributeError(f"Model.{name} is not there in Windrow: {_WHY}.")

    def __repr__(self) -> str:
        """Shows the id."""
        return f"Model(id={self.id!r})"

    @staticmethod
    def get_model_path(model_name: str, version: Optional[int] = None, _workspace: Any = None) -> str:
        """The path of a model; without `version`, of the newest. Raises FileNotFoundError."""
        return _found(model_name, version)[0]


def register(
    name: str,
    path: str,
    description: Optional[str],
    tags: Optional[Mapping[str, Any]],
    of_run: Any = None,
) -> Model:
    """Registers a model. `path`: on this node; with `of_run`, first of all among the files of that run. Raises
    FileNotFoundError, RuntimeError.
    """
    path = os.fspath(path).rstrip("/") or "/"
    request = {
        "do": "register",
        "name": name,
        "description": description or "",
        "tags": {str(key): str(value) for key, value in (tags or {}).items()},
        "of_job": of_run is not None and of_run.parent is None,
    }
    try:
        if of_run is not None:
            try:
                return Model._of(ask({**request, "run_path": path})[0]["model"])
            except FileNotFoundError:
                if not os.path.exists(path):
                    raise
            except NoAgent:
                if os.path.exists(path):
                    raise
        files = files_below(os.path.basename(path), path)
        if not files:
            raise FileNotFoundError(f"Model {name}: there is no file at {os.path.abspath(path)}")
        return Model._of(ask(request, files)[0]["model"], path)
    except NoAgent as error:
        tell_once("register", f"the model {name!r} is not registered: {error}")
        return Model._of({"name": name, "version": None, "tags": request["tags"]}, path)


def _registered_models(name: str) -> List[Dict[str, Any]]:
    """What is registered, the newest first: all versions of a name, or the newest of each. Raises NoAgent."""
    return [part["model"] for part in ask({"do": "models", "name": name})[1]]


def _pairs(tags: Any) -> Any:
    return list(tags.items()) if isinstance(tags, dict) else tags or ()


def _number(version: Any) -> Any:
    return int(version) if isinstance(version, str) and version.isdigit() else version


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
    wanted, place = _known_to_notebook(name, version)
    if found is None and place and readable(place):
        _check(name, wanted, place)
        found = place, int(wanted)
    found = found or _asked_for(name, version)
    if found is not None:
        return found
    if place:
        raise FileNotFoundError(
            f"The model {name}:{wanted} is at {place}, which is not on this node. Give it to the step as an input, "
            f"azureml:{name}:{wanted}, and its path to the script as an argument"
        )
    folders = " and ".join(os.path.join(root, _FOLDER, name) for root in roots)
    raise FileNotFoundError(
        f"There is no model {name!r}{'' if version is None else f' of version {version}'} for this step. "
        "Register it first (Model.register in a notebook or a step before, windrow model create), or give it to the "
        f"step as an input. The script looks in {folders}, and asks the master"
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


def _known_to_notebook(name: str, version: Optional[int]) -> Tuple[str, str]:
    """The version and place of a model that the notebook knew; both "" if it knew none of that name and version."""
    versions = json.loads(os.environ.get(_PLACES) or "{}").get(name) or {}
    numbers = sorted((int(text) for text in versions if text.isdigit()), reverse=True)
    wanted = str(version) if version is not None else str(numbers[0]) if numbers else ""
    return (wanted, str(versions[wanted])) if wanted in versions else ("", "")


def _asked_for(name: str, version: Any) -> Optional[Found]:
    """A model of the master; None if it has none of that name and version. Where this process cannot read it, the
    agent opens its files, and they are copied into the worker's folder.

    Raises FileNotFoundError for one that is not on this node.
    """
    try:
        known = [one for one in _registered_models(name) if version is None or _number(one["version"]) == version]
    except NoAgent:
        return None
    if not known:
        return None
    found = known[0]
    if readable(found["path"]):
        _check(name, found["version"], found["path"])
        return found["path"], _number(found["version"])
    place = os.path.join(TOLD["scratch_folder"], "models", name, found["version"])
    bring({"do": "open", "name": name, "version": found["version"]}, place)
    return os.path.join(place, os.path.basename(found["path"])), _number(found["version"])


def _check(name: str, version: str, path: str) -> None:
    """Has the agent compare a model that scripts have handed in with what they had handed in. Raises RuntimeError if it
    is something else by now.
    """
    if _KEPT in path:
        try:
            ask({"do": "check", "name": name, "version": version})
        except NoAgent:
            pass


def _names(folder: str) -> list:  # type: ignore[type-arg]  # Python 3.8 has no list[str]
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []  # nothing is there, or a confined script may not look


__getattr__ = names_of(__name__)
