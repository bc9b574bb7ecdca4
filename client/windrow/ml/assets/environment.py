"""Environments of scripts.

Reference: docs/reference/azure-ml/parallel-job.md#tasks; docs/reference/azure-ml/client.md#dumped-jobs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from windrow.ml.attributes import Attributes
from windrow.spec.reading.from_python import mapping
from windrow.spec.reading.nodes import Mapping as MappingNode


class BuildContext(Attributes):
    """The `build` key of an environment: a folder with a Dockerfile."""

    _is_copied = True

    def __init__(self, *, path: Any = None, dockerfile_path: str | None = None) -> None:
        """The arguments are the keys of `build`."""
        super().__init__(path=path, dockerfile_path=dockerfile_path)


class Environment(Attributes):
    """An environment: an image, a conda file, or both.

    Not the `Environment` of v1, which has its own interface, nor that of the effective job, which is resolved.
    """

    _is_copied = True

    def __init__(
        self,
        *,
        name: str | None = None,
        version: str | int | None = None,
        image: str | None = None,
        conda_file: Any = None,
        build: Any = None,
        description: str | None = None,
        tags: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        """`conda_file`: a path, or its content as a mapping."""
        super().__init__(
            name=name,
            version=None if version is None else str(version),
            image=image,
            conda_file=os.fspath(conda_file) if hasattr(conda_file, "__fspath__") else conda_file,
            build=build,
            description=description,
            tags=dict(tags) if tags else None,
            **more,
        )

    def to_node(self, *, named: bool = True) -> MappingNode:
        """The value of a step's `environment` key. `named=False` leaves out name and version, which an inline
        environment does not need.
        """
        node = super().to_node()
        dropped = ("id", "creation_context") if named else ("id", "creation_context", "name", "version")
        return mapping({key: value for key, value in node.entries.items() if key not in dropped}, node.place)
