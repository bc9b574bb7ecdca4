"""Looks up components that a job file names in a registry, in a folder that mirrors it.

Reference: docs/reference/azure-ml/parallel-job.md#parallel-steps (component).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from windrow.common.registries import Registries
from windrow.common.trees import walk
from windrow.errors import UsageError
from windrow.spec.reading.problems import did_you_mean, listed

_REFERENCE = re.compile(
    r"azureml://registries/(?P<registry>[^/]+)/components/(?P<name>[^/]+)"
    r"(?:/versions/(?P<version>[^/]+)|/labels/(?P<label>[^/]+))?/?"
)
_KEY = re.compile(rb"^(name|version|type):[ \t]*(?:\"([^\"\n]*)\"|'([^'\n]*)'|([^#\n]*))", re.MULTILINE)
_TYPES = ("command", "parallel", "pipeline")
_HEAD_BYTES = 64 << 10
"""Name, version and type of a component stand in the beginning of its file."""


class ComponentReference(NamedTuple):
    """A component in a registry. `version`: empty for the newest."""

    registry: str
    name: str
    version: str


def component_reference(text: str) -> ComponentReference | None:
    """What an address `azureml://registries/…` names; None if it is no component."""
    found = _REFERENCE.fullmatch(text.strip())
    if found is None or found["label"] not in (None, "latest"):
        return None
    return ComponentReference(found["registry"], found["name"], found["version"] or "")


def component_file(wanted: ComponentReference) -> str:
    """The file of a component. Raises ValueError, saying as the rest of a sentence why there is none."""
    try:
        registries = Registries()
    except UsageError as error:
        raise ValueError(f"cannot be looked up: {error}.") from error
    folder = registries.folders.get(wanted.registry)
    if folder is None:
        raise ValueError(
            "is in a registry that this machine does not have. Copy the registry's files into a folder, and name it: "
            f"windrow registry add {wanted.registry} FOLDER."
        )
    names: set[str] = set()
    versions: dict[str, str] = {}
    for file, name, version in _components(folder):
        names.add(name)
        if name == wanted.name:
            versions.setdefault(version, file)
    if not versions:
        raise ValueError(f"is not in the registry's folder {folder}.{did_you_mean(wanted.name, names)}")
    if wanted.version and wanted.version not in versions:
        raise ValueError(f"is not in the registry's folder {folder}, which has the versions {listed(versions)}.")
    return versions[wanted.version or max(versions, key=_in_order)]


def _components(folder: str) -> Iterator[tuple[str, str, str]]:
    """The files of components below a folder, with their names and versions, in a fixed order."""
    for path, folders, files in walk(folder):
        folders.sort()
        for name in sorted(files):
            if not name.endswith((".yml", ".yaml")):
                continue
            file = os.path.join(path, name)
            try:
                with open(file, "rb") as source:
                    head = source.read(_HEAD_BYTES)
            except OSError:
                continue
            keys = {key.decode(): next(filter(None, rest), b"").decode(errors="replace").strip()
                    for key, *rest in _KEY.findall(head)}  # fmt: skip
            if keys.get("type") in _TYPES and keys.get("name"):
                yield file, keys["name"], keys.get("version", "")


def _in_order(version: str) -> list[tuple[int, str]]:
    """`1.10` is newer than `1.9`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"[.-]", version)]
