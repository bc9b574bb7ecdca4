"""The environment of a step: the version of Python and the packages that its scripts need.

A conda or pip list becomes a virtual environment on each node. A name or an image alone means the node's own Python,
with a warning. Reference: docs/reference/azure-ml/parallel-job.md#tasks, #version-1;
docs/reference/azure-ml/client.md#dumped-jobs.
"""

from __future__ import annotations

import os

from windrow.spec.effective.job import Environment
from windrow.spec.environments.conda import read_conda
from windrow.spec.environments.requirement_lines import Requirements, read_requirements_file
from windrow.spec.naming.assets import ENVIRONMENT
from windrow.spec.naming.locations import absolute, parse_location, why_unreachable
from windrow.spec.reading.context import Context
from windrow.spec.reading.keys import warn_of_unknown
from windrow.spec.reading.nodes import Mapping, Node, Scalar, is_null, shown
from windrow.spec.reading.yaml_files import read_yaml

_OWN = "scripts run in the Python of --python, else of the agent's active environment"
_NO_LIST = f"has no list of packages (conda_file), so nothing is built: {_OWN}"

_KEYS = (
    "$schema",
    "name",
    "version",
    "image",
    "conda_file",
    "build",
    "description",
    "tags",
    "properties",
    "os_type",
    "inference_config",
    "datastore",
    "creation_context",
    "id",
    "latest_version",
    "auto_delete_setting",
    # v1: azureml.core.Environment
    "python",
    "docker",
    "environment_variables",
    "environmentVariables",
    "spark",
    "r",
    "databricks",
    "inferencing_stack_version",
    "inferencingStackVersion",
)


def read_environment(node: Node | None, key: str, context: Context) -> Environment | None:
    """Reads an environment as a step names it: by name, as the path of a file, or inline.

    None if an error was noted, or if nothing has to be built and the agents' own Python is used (a warning says why).
    """
    if node is None or is_null(node):
        return None
    if isinstance(node, Mapping):
        return _inline(node, key, context)
    if not isinstance(node, Scalar):
        context.problems.error(
            node,
            key,
            f"is {shown(node)}; it must be a name, the path of an environment's file, or the environment itself.",
        )
        return None
    location = parse_location(node.text)
    if location.kind == "other_host":
        context.problems.error(node, key, why_unreachable(location, node.text))
        return None
    if location.kind == "local" and is_path(location.value, node.place.source.folder):
        return _file(location.value, node, key, context)
    from windrow.spec.reading.packages import registered_file  # most environments are no names

    file = registered_file(node, ENVIRONMENT, key, context)
    if file:
        return _file(file, node, key, context)
    if file is not None:
        context.problems.warn(
            node,
            key,
            f"{shown(node)} has no effect: no environment of that name is registered; {_OWN}. To have one built, "
            "register it (windrow environment create), or write its conda_file here.",
        )
    return None


def is_path(text: str, folder: str) -> bool:
    """Whether a text is the path of a file, rather than an environment's name."""
    return "/" in text or text.endswith((".yml", ".yaml", ".txt", ".json")) or os.path.isfile(absolute(text, folder))


def _file(value: str, node: Scalar, key: str, context: Context, *, is_conda: bool = False) -> Environment | None:
    """Reads an environment, a conda file or a pip list from its path. `is_conda`: a YAML file is a conda file, even
    without `dependencies`.
    """
    path = absolute(value, node.place.source.folder)
    if not os.path.isfile(path):
        what = "is a folder" if os.path.isdir(path) else "does not exist"
        context.problems.error(
            node, key, f"{shown(node)} {what} ({path}); paths are relative to the file that holds them."
        )
        return None
    if path.endswith(".txt"):
        return _pip_file(path, node, key, context)
    root = read_yaml(path, "environment", context.problems)
    if root is None:
        return None
    if not isinstance(root, Mapping):
        context.problems.error(root, key, f"is {shown(root)}; a file of an environment is a mapping.")
        return None
    if is_conda or "dependencies" in root.entries:
        return read_conda(root, key, context)
    return _inline(root, key, context)


def _pip_file(path: str, node: Node, key: str, context: Context) -> Environment | None:
    before = len(context.problems.errors)
    found = Requirements.none()
    read_requirements_file(path, node.place, key, found, context)
    if len(context.problems.errors) > before:
        return None
    return Environment(None, tuple(found.requirements), tuple(found.constraints), tuple(found.options))


def _inline(node: Mapping, key: str, context: Context) -> Environment | None:
    if "dependencies" in node.entries:
        return read_conda(node, key, context)
    warn_of_unknown(node, _KEYS, key, context)
    python = node.entries.get("python")
    if isinstance(python, Mapping):
        return _v1(python, f"{key}.python", context)
    conda = node.entries.get("conda_file")
    image = node.entries.get("image")
    if image is None or is_null(image):
        image = node.entries.get("build")
    what = "image" if not isinstance(image, Mapping) else "build"
    if isinstance(image, Mapping) and "dockerfile" in image.entries:
        what = "build.dockerfile"  # v1's base_dockerfile
    named = f"{shown(image)} " if isinstance(image, Scalar) else ""
    if conda is None or is_null(conda):
        if image is not None and not is_null(image):
            context.problems.warn(
                image,
                f"{key}.{what}",
                f"{named}has no effect: workers do not run in containers. The environment {_NO_LIST}.",
            )
        else:
            context.problems.warn(node, key, f"{_NO_LIST}.")
        return None
    if image is not None and not is_null(image):
        # Nearly every job file of Azure ML names an image, and its libraries are in conda_file.
        tell = context.problems.note if what == "image" else context.problems.warn
        tell(
            image,
            f"{key}.{what}",
            f"{named}has no effect: workers do not run in containers. What its image would bring has to be in "
            "conda_file, or on the nodes.",
        )
    return _conda(conda, f"{key}.conda_file", context)


def _conda(node: Node, key: str, context: Context) -> Environment | None:
    """Reads a conda file from its path or its content."""
    if isinstance(node, Mapping):
        return read_conda(node, key, context)
    if isinstance(node, Scalar):
        location = parse_location(node.text)
        if location.kind == "other_host":
            context.problems.error(node, key, why_unreachable(location, node.text))
            return None
        if location.kind == "local" and location.value:
            return _file(location.value, node, key, context, is_conda=True)
    context.problems.error(
        node, key, f"is {shown(node)}; it must be the path of a conda file, relative to this one, or its content."
    )
    return None


def _v1(python: Mapping, key: str, context: Context) -> Environment | None:
    """Reads the Python of a v1 Environment: `conda_dependencies`, or `user_managed_dependencies`."""
    entries = {name.replace("_", "").casefold(): value for name, value in python.entries.items()}
    managed = entries.get("usermanageddependencies")
    if isinstance(managed, Scalar) and managed.value is True:
        context.problems.warn(managed, key, f"the user manages the dependencies, so nothing is built: {_OWN}.")
        return None
    for name in ("condadependencies", "condadependenciesfile"):
        conda = entries.get(name)
        if conda is not None and not is_null(conda):
            if isinstance(conda, Mapping) and isinstance(project := conda.entries.get("project_environment"), Mapping):
                conda = project
            return _conda(conda, key, context)
    context.problems.warn(python, key, f"{_NO_LIST}.")
    return None
