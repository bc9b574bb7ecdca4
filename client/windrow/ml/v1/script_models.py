"""Models for scripts that ask for them by name, and find what is registered: `Model.get_model_path("m")`, and
`Model(workspace, "m")` with the workspace of their run.

On this machine, the script looks below the folder that $AML_APP_ROOT names, for `azureml-models/<name>/<version>/
<file>`. So do scripts with the vendor's package (azureml-core 1.57, `Model._get_model_path_local`). Links there would
mean nothing on the nodes of a master elsewhere: their scripts, without that package, find the paths in $WINDROW_MODELS.

Datastores that are folders of the notebook, `workspaceblobstore` among them, are known to no master. Scripts on this
machine that ask for datastores find them in $WINDROW_DATASTORES.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from windrow.common.trees import walk
from windrow.spec.reading.context import Context
from windrow.spec.reading.from_python import mapping, scalar
from windrow.spec.reading.nodes import Mapping as MappingNode
from windrow.spec.reading.nodes import Node, Scalar

if TYPE_CHECKING:
    from windrow.ml.v1.registered import Kept

VARIABLE = "AML_APP_ROOT"
PATHS = "WINDROW_MODELS"
"""JSON: by name and version, the path or address of each model."""
DATASTORES = "WINDROW_DATASTORES"
"""JSON: the name of the default one, and by name the folder of each."""
_PATHS_CHARS_MAX = 64 << 10
_CALL = re.compile(rb"\bget_model_path\b|\bModel\s*\(")
_STORES = re.compile(rb"\bDatastore\b|\bget_default_datastore\b|\.datastores\b")
_SCRIPT_BYTES_MAX = 1 << 20


def with_models(root: MappingNode, models: Kept, folder: str, context: Context) -> MappingNode:
    """The tree of a pipeline, in which steps whose scripts ask for models find those that are registered.

    `models`: of the master, which is asked only for such a script. `folder`: where links to them are made, for a master
    on this machine. Notes a warning if there are too many for a master elsewhere.
    """
    jobs = root.entries.get("jobs")
    if not isinstance(jobs, MappingNode):
        return root
    steps: dict[str, Node | None] = dict(jobs.entries)
    for key, step in jobs.entries.items():
        if not isinstance(step, MappingNode) or not _asks(_code_of(step), _CALL):
            continue
        variables = step.entries.get("environment_variables")
        entries = variables.entries if isinstance(variables, MappingNode) else {}
        if VARIABLE in entries:
            continue
        name, text = (VARIABLE, _linked(models, folder)) if context.embedded else (PATHS, _paths(models))
        if not text:
            continue  # none is registered: the script may have models in its code
        if len(text) > _PATHS_CHARS_MAX:
            context.problems.warn(
                step,
                f"jobs.{key}",
                "its script asks for models by name, and the master has too many models for it to find them: give "
                "the model to the step as an input, and its path as an argument.",
            )
            continue
        variables = mapping({**entries, name: scalar(text, step.place)}, step.place)
        there = {**step.entries, "environment_variables": variables}
        steps[key] = mapping(there, step.place)
    return mapping({**root.entries, "jobs": mapping(steps, jobs.place)}, root.place)


def with_datastores(root: MappingNode, default: str, folders: Mapping[str, str]) -> MappingNode:
    """The tree of a pipeline for this machine, in which steps whose scripts ask for datastores find those of the
    notebook. `default`: the name of the default one; `folders`: by name.
    """
    jobs = root.entries.get("jobs")
    if not isinstance(jobs, MappingNode):
        return root
    steps: dict[str, Node | None] = dict(jobs.entries)
    text = json.dumps({"default": default, "places": folders}, sort_keys=True)
    for key, step in jobs.entries.items():
        if not isinstance(step, MappingNode) or not _asks(_code_of(step), _STORES):
            continue
        if default in folders:
            os.makedirs(folders[default], exist_ok=True)
        variables = step.entries.get("environment_variables")
        entries = variables.entries if isinstance(variables, MappingNode) else {}
        if DATASTORES not in entries:
            variables = mapping({**entries, DATASTORES: scalar(text, step.place)}, step.place)
            steps[key] = mapping({**step.entries, "environment_variables": variables}, step.place)
    return mapping({**root.entries, "jobs": mapping(steps, jobs.place)}, root.place)


def _code_of(step: MappingNode) -> str:
    task = step.entries.get("task")
    code = (task if isinstance(task, MappingNode) else step).entries.get("code")
    return os.path.join(code.place.source.folder, str(code.value)) if isinstance(code, Scalar) else ""


def _asks(code: str, call: re.Pattern[bytes]) -> bool:
    """Whether a script in a folder imports `azureml` and has such a call: for a model `Model.get_model_path` or
    `Model(workspace, name)`.
    """
    if not code:
        return False
    for folder, _, names in walk(code):
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(".py") and os.path.isfile(path) and os.path.getsize(path) <= _SCRIPT_BYTES_MAX:
                with open(path, "rb") as file:
                    text = file.read()
                if b"azureml" in text and call.search(text):
                    return True
    return False


def _paths(models: Kept) -> str:
    """The places of all versions of the models; "" if there is none."""
    found: dict[str, dict[str, str]] = {}
    for newest in models.versions():
        found[newest.name] = {model.version: model.path for model in models.versions(newest.name)}
    return json.dumps(found, sort_keys=True) if found else ""


def _linked(models: Kept, folder: str) -> str:
    """A folder with links to all versions of the models. Equal models share it; a changed file makes another one, so
    that no result of a run with the former file is taken for one of this. "" without models.
    """
    found = sorted(
        (model.name, model.version, model.path)
        for newest in models.versions()
        for model in models.versions(newest.name)
        if os.path.exists(model.path)
    )
    if not found:
        return ""
    stamps = [(*one, os.stat(one[2]).st_size, os.stat(one[2]).st_mtime_ns) for one in found]
    root = os.path.join(folder, hashlib.sha256(repr(stamps).encode()).hexdigest()[:24])
    for name, version, path in found:
        below = os.path.join(root, "azureml-models", name, version)
        os.makedirs(below, exist_ok=True)
        link = os.path.join(below, os.path.basename(path))
        if not os.path.lexists(link):
            os.symlink(path, link)
    return root
