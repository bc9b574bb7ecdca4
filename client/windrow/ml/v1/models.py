"""Models of v1 notebooks. The master has them by name; their path can be a side input."""

from __future__ import annotations

import os
import shutil
from typing import Any

from windrow.common.removal import remove_tree
from windrow.common.trees import copy_tree
from windrow.errors import NotFound, UsageError
from windrow.ml.places import calling_place
from windrow.ml.v1.bindings import NamedInput
from windrow.ml.v1.local_data import kept_copy
from windrow.sdk.asset import Asset


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
        """A new model at `path`; without `path`, one that is registered: the newest, or the one of a version. Raises
        NotFound."""
        self.version: int | str = 1
        if path is None:
            if workspace is None:
                raise NotFound(f"Model {name!r} has neither a path nor a workspace to look it up in.")
            known = workspace.models.find(name, version)
            path, self.version = known.path, known.version
            more = {"tags": known.tags, "description": known.description, **more}
        self.path = path
        self.name = name
        self.place = calling_place()
        self.tags = more.get("tags") or {}
        self.description = more.get("description") or ""

    @staticmethod
    def register(workspace: Any, model_path: str, model_name: str, **more: Any) -> Model:
        """Register a copy of a file or folder with the master as a model, which other notebooks find by its name: as
        the next version, unless it is the same as the newest one. Raises NotFound if the path does not exist.
        """
        if not os.path.exists(model_path):
            raise NotFound(f"Model {model_name}: there is nothing at {os.path.abspath(model_path)}.")
        tags, description = dict(more.get("tags") or {}), more.get("description") or ""
        # A copy, because notebooks write the next model into the same file. Relative: it is of this machine.
        place = os.path.relpath(kept_copy(model_path, os.path.join(workspace.models_folder, "files")))
        wanted = Asset("model", model_name, "", "custom_model", place, False, description, tags)
        made = workspace.models.register(workspace.models.placed(wanted))
        return Model(workspace, model_name, version=made.version)

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
            (remove_tree if os.path.isdir(place) and not os.path.islink(place) else os.unlink)(place)
        os.makedirs(target_dir, exist_ok=True)
        if os.path.isdir(self.path):
            copy_tree(self.path, place)
        else:
            shutil.copy2(self.path, place)
        return place
