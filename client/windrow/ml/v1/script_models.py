"""Models for scripts that ask for them by name: `Model.get_model_path("m")`, which finds what is registered.

The script looks below the folder that $AML_APP_ROOT names, for `azureml-models/<name>/<version>/<file>`. So do scripts
with the vendor's package (azureml-core 1.57, `Model._get_model_path_local`).
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from windrow.spec.reading.context import Context
from windrow.spec.reading.from_python import mapping, scalar
from windrow.spec.reading.nodes import Mapping as MappingNode
from windrow.spec.reading.nodes import Node, Scalar

if TYPE_CHECKING:
    from windrow.ml.v1.registered import Kept

VARIABLE = "AML_APP_ROOT"
_CALL = b"get_model_path"
_SCRIPT_BYTES_MAX = 1 << 20


def with_models(root: MappingNode, models: Kept, folder: str, context: Context) -> MappingNode:
    """The tree of a pipeline, in which steps whose scripts ask for models find those that are registered.

    `models`: of the master, which is asked only for such a script. `folder`: where links to them are made.
    Notes a warning for a master elsewhere, whose nodes do not see the files of this machine.
    """
    jobs = root.entries.get("jobs")
    if not isinstance(jobs, MappingNode):
        return root
    steps: dict[str, Node | None] = dict(jobs.entries)
    for key, step in jobs.entries.items():
        if not isinstance(step, MappingNode) or not _asks(_code_of(step)):
            continue
        variables = step.entries.get("environment_variables")
        entries = variables.entries if isinstance(variables, MappingNode) else {}
        if VARIABLE in entries:
            continue
        if not context.embedded:
            context.problems.warn(
                step,
                f"jobs.{key}",
                "its script calls Model.get_model_path, which does not find the models that this notebook registered: "
                "the master is on another machine. Give them to the step as inputs, and their paths as arguments.",
            )
            continue
        value = scalar(_linked(models, folder), step.place)
        there = {**step.entries, "environment_variables": mapping({**entries, VARIABLE: value}, step.place)}
        steps[key] = mapping(there, step.place)
    return mapping({**root.entries, "jobs": mapping(steps, jobs.place)}, root.place)


def _code_of(step: MappingNode) -> str:
    task = step.entries.get("task")
    code = (task if isinstance(task, MappingNode) else step).entries.get("code")
    return os.path.join(code.place.source.folder, str(code.value)) if isinstance(code, Scalar) else ""


def _asks(code: str) -> bool:
    """Whether a script in a folder calls `get_model_path`."""
    if not code:
        return False
    for folder, _, names in os.walk(code):
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(".py") and os.path.isfile(path) and os.path.getsize(path) <= _SCRIPT_BYTES_MAX:
                with open(path, "rb") as file:
                    if _CALL in file.read():
                        return True
    return False


def _linked(models: Kept, folder: str) -> str:
    """A folder with links to all versions of the models. Equal models share it; a changed file makes another one, so
    that no result of a run with the former file is taken for one of this.
    """
    found = sorted(
        (model.name, model.version, model.path)
        for newest in models.versions()
        for model in models.versions(newest.name)
        if os.path.exists(model.path)
    )
    stamps = [(*one, os.stat(one[2]).st_size, os.stat(one[2]).st_mtime_ns) for one in found]
    root = os.path.join(folder, hashlib.sha256(repr(stamps).encode()).hexdigest()[:24])
    for name, version, path in found:
        below = os.path.join(root, "azureml-models", name, version)
        os.makedirs(below, exist_ok=True)
        link = os.path.join(below, os.path.basename(path))
        if not os.path.lexists(link):
            os.symlink(path, link)
    return root
