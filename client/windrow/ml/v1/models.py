"""Models of v1 notebooks. The workspace object keeps them; their path can be a side input."""

from __future__ import annotations

import os
import shutil
from typing import Any

from windrow.errors import NotFound, UsageError
from windrow.ml.places import calling_place
from windrow.ml.v1.bindings import NamedInput


class Model:
    """A model: a named path. Not the `Model` of `windrow.ml.assets`, which names a path to be registered."""

    def __init__(
        self,
        workspace: Any = None,
        name: str = "",
        path: str | None = None,
        *,
        version: int | str | None = None,
        **more: Any,
    ) -> None:
        """A new model at `path`; without `path`, one that was registered with this workspace object or with the master:
        the newest, or the one of a version. Raises NotFound."""
        self.version: int | str = 1
        self.earlier: Any = None
        if path is None:
            if workspace is None:
                raise NotFound(f"Model {name!r} has neither a path nor a workspace to look it up in.")
            known = workspace.models.find(name, version)
            path, self.version, self.earlier = known.path, known.version, known.earlier
        self.path = path
        self.name = name
        self.place = calling_place()
        self.tags = more.get("tags") or {}
        self.description = more.get("description") or ""

    @staticmethod
    def register(workspace: Any, model_path: str, model_name: str, **more: Any) -> Model:
        """Keep a file or folder as a model in the workspace object. Raises NotFound if the path does not exist."""
        if not os.path.exists(model_path):
            raise NotFound(f"Model {model_name}: there is nothing at {os.path.abspath(model_path)}.")
        known = workspace.models.own.get(model_name)
        made = Model(None, model_name, os.path.abspath(model_path), **more)
        made.version, made.earlier = (known.version + 1 if known else 1), known
        workspace.models[model_name] = made
        return made

    def as_named_input(self, name: str) -> NamedInput:
        """Return the model as a side input."""
        return NamedInput(name, self)

    def reference(self, folder: str) -> dict[str, Any]:
        """The entry for the model among a pipeline's data references."""
        return {"path": self.path}

    def download(self, target_dir: str = ".", exist_ok: bool = False) -> str:
        """Copy the model's file or folder into `target_dir`, and return its place there. Raises NotFound for a model
        that is not on this machine, and UsageError if there is something, unless `exist_ok`, which replaces it.
        """
        if not os.path.exists(self.path):
            raise NotFound(
                f"Model {self.name}: {self.path} is not on this machine. Give it to a step as an input, or fetch it "
                "with the tools of its store."
            )
        place = os.path.join(target_dir, os.path.basename(self.path.rstrip("/")))
        if os.path.realpath(place) == os.path.realpath(self.path):
            return place
        if os.path.lexists(place):
            if not exist_ok:
                raise UsageError(f"Model {self.name}: there is {place} already; exist_ok=True replaces it.")
            (shutil.rmtree if os.path.isdir(place) and not os.path.islink(place) else os.unlink)(place)
        os.makedirs(target_dir, exist_ok=True)
        if os.path.isdir(self.path):
            shutil.copytree(self.path, place)
        else:
            shutil.copy2(self.path, place)
        return place
