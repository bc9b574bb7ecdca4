"""The file of a data asset or a model, as `az ml data create --file` and `az ml model create --file` take it. Its
keys are those of the vendor's schemas; paths are relative to the file.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from windrow.spec.reading.keys import check_keys, read_scalar, read_text, read_text_map
from windrow.spec.reading.mapping_file import read_mapping_file
from windrow.spec.reading.nodes import is_null
from windrow.spec.reading.problems import Problem
from windrow.spec.settings.fields import Field
from windrow.spec.settings.schema import DATA_TYPES, MODEL_TYPES

_TEXT, _NODE = Field("text"), Field("node")
_KEYS: dict[str, Field] = {
    "$schema": _NODE,
    "name": _TEXT,
    "version": _TEXT,
    "type": _TEXT,
    "path": _TEXT,
    "description": _TEXT,
    "tags": Field("map"),
    "properties": Field("node", effect="properties are not kept; use tags"),
    "creation_context": _NODE,
    "id": _NODE,
    "latest_version": _NODE,
    "datastore": Field("text", effect="write the path as azureml://datastores/NAME/paths/PATH"),
    "flavors": Field("node", effect="flavors of a model are not read; a script loads the files at its path"),
    "stage": Field("text", effect="stages of a model are not kept; use tags"),
    "job_name": Field("text", effect="Windrow records the job only for outputs that a job registers itself"),
}


class AssetFile(NamedTuple):
    """The content of an asset's file; `folder`: what relative paths are relative to. Missing values are empty."""

    name: str
    version: str
    type: str
    path: str
    description: str
    tags: dict[str, str]
    folder: str
    warnings: tuple[Problem, ...]


def load_asset_file(path: str | os.PathLike[str], kind: str) -> AssetFile:
    """Reads the file of an asset; `kind`: data or model. Raises JobFileError with all that is wrong."""
    root, context = read_mapping_file(path, "asset", "the file of an asset is a mapping, with name, path and type.")
    problems = context.problems
    check_keys(root, _KEYS, "", context)
    entries = root.entries
    types = DATA_TYPES if kind == "data" else MODEL_TYPES
    texts = {name: read_text(entries.get(name), name, context) or "" for name in ("name", "version", "description")}
    wanted = read_scalar(entries.get("type"), Field("choice", choices=types), "type", context)
    place = read_text(entries.get("path"), "path", context) or ""
    if is_null(entries.get("path")):
        problems.error(root, "path", "is missing; give the path of the data, relative to this file, or its address.")
    tags = read_text_map(entries.get("tags"), "tags", context)
    problems.raise_errors()
    return AssetFile(
        texts["name"],
        texts["version"],
        str(wanted or ""),
        place,
        texts["description"],
        tags,
        os.path.dirname(os.path.abspath(path)),
        tuple(problems.warnings),
    )
