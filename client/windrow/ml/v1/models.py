"""Models of v1 notebooks. The workspace object keeps them; their path can be a side input."""

from __future__ import annotations

import os
from typing import Any

from windrow.errors import NotFound
from windrow.ml.places import calling_place
from windrow.ml.v1.bindings import NamedInput
from windrow.ml.v1.versions import find_version


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
        """A new model at `path`; without `path`, one that was registered with this workspace object: the newest, or the
        one of a version. Raises NotFound."""
        self.version, self.earlier = 1, None
        if path is None:
            known = workspace.models.get(name) if workspace is not None else None
            if known is None:
                raise NotFound(f"This workspace object has no model {name!r}; Model.register keeps one in it.")
            known = find_version(f"model {name}", known, version)
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
        known = workspace.models.get(model_name)
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
        """Return the model's path: the model is on this machine already."""
        return self.path
