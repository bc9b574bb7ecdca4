"""Data assets and models. Reference: docs/reference/azure-ml/parallel-job.md#inputs-and-outputs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from windrow.ml.attributes import Attributes
from windrow.ml.data import Input


class Asset(Attributes):
    """A named, versioned path."""

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
        """What names it in a job: `azureml:<name>:<version>`."""
        return f"azureml:{self.get('name')}:{self.get('version')}"

    def to_input(self) -> Input:
        """What it is as an input of a job: its name once it is registered, before that its path."""
        registered = self.__dict__.get("_registered", False)
        return Input(type=self.get("type"), path=self.id if registered else self.get("path"))


class Data(Asset):
    """A data asset."""


class Model(Asset):
    """A model."""

    default_type = "custom_model"
