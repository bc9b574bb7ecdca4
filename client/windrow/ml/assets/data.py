"""Data: as inputs and outputs declare it, and as assets and models name it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from windrow.ml.attributes import Attributes


class Input(Attributes):
    """An input: data at a `path`, or a literal with its `type`; without either, the declaration of one.

    Reference: docs/reference/azure-ml/parallel-job.md#inputs-and-outputs.
    """

    _is_copied = True

    def __init__(
        self,
        *,
        type: str | None = None,
        path: Any = None,
        mode: str | None = None,
        default: Any = None,
        optional: bool | None = None,
        min: float | None = None,
        max: float | None = None,
        enum: Any = None,
        description: str | None = None,
        datastore: str | None = None,
        **more: Any,
    ) -> None:
        """`type`: uri_folder (default), uri_file, mltable, a type of model, or string, integer, number, boolean."""
        given = {
            "type": type or "uri_folder",
            "path": path,
            "mode": mode,
            "default": default,
            "optional": optional,
            "min": min,
            "max": max,
            "enum": list(enum) if isinstance(enum, (set, frozenset)) else enum,
            "description": description,
            "datastore": datastore,
        }
        super().__init__(**given, **more)
        self._typed = type is not None


class Output(Attributes):
    """An output of a step or pipeline. Reference: docs/reference/azure-ml/parallel-job.md#inputs-and-outputs.

    Not the `Output` of `windrow.sdk.job`, which says where an output is.
    """

    _is_copied = True

    def __init__(
        self,
        *,
        type: str | None = None,
        path: Any = None,
        mode: str | None = None,
        description: str | None = None,
        name: str | None = None,
        version: str | None = None,
        **more: Any,
    ) -> None:
        """`type`: uri_folder (default), uri_file, mltable. `name`, `version`: of the data asset that it becomes."""
        super().__init__(
            type=type or "uri_folder",
            path=path,
            mode=mode,
            description=description,
            name=name,
            version=version,
            **more,
        )


class Asset(Attributes):
    """A named, versioned path. Not `windrow.Asset`, which is what a master answers."""

    _is_copied = True
    default_type = "uri_folder"

    def __init__(
        self,
        *,
        name: str | None = None,
        version: str | int | None = None,
        path: Any = None,
        type: str | None = None,
        description: str | None = None,
        tags: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        """`path`: a local path, or an address in a store or datastore."""
        super().__init__(
            name=name,
            version=None if version is None else str(version),
            path=os.fspath(path) if hasattr(path, "__fspath__") else path,
            type=type or self.default_type,
            description=description,
            tags=dict(tags) if tags else None,
            **more,
        )

    @property
    def id(self) -> str:
        """The name by which jobs refer to it: `azureml:<name>:<version>`."""
        return f"azureml:{self.get('name')}:{self.get('version')}"

    def to_input(self) -> Input:
        """The asset as an input of a job: by its name once it is registered, before that by its path."""
        registered = self.__dict__.get("_registered", False)
        return Input(type=self.get("type"), path=self.id if registered else self.get("path"))


class Data(Asset):
    """A data asset."""


class Model(Asset):
    """A model. Not the `Model` of v1, which has an interface of its own."""

    default_type = "custom_model"
