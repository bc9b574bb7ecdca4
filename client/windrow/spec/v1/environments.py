"""The environment of a v1 step in the form of v2: inline, a file, or a legacy name or folder. Reference:
docs/reference/azure-ml/parallel-job.md#version-1.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from windrow.spec.naming.locations import absolute
from windrow.spec.reading.context import Context
from windrow.spec.reading.from_python import mapping, scalar
from windrow.spec.reading.nodes import Mapping, Node, Scalar, is_null, shown
from windrow.spec.reading.yaml_files import read_yaml
from windrow.spec.v1.reading import entry, found_from, text_of


class Environment(NamedTuple):
    """An environment: v2's node for it, and the variables that it sets.

    Not the `Environment` classes of `windrow.ml`, which users construct.
    """

    node: Node | None = None
    variables: Mapping | None = None


def read_environment(config: Mapping, key: str, folder: str, context: Context) -> Environment:
    """Reads the environment of a ParallelRunConfig or run configuration; without a node if it does not name one.
    `folder`: as for `read_run_config`.
    """
    node = entry(config, "environment")
    if node is not None:
        return _inline_or_file(node, f"{key}.environment", folder, context)
    name = text_of(config, "environment_name", key, context)
    if name is not None:
        text = name.text.strip()
        return Environment(scalar(text if text.startswith("azureml:") else f"azureml:{text}@latest", name.place))
    saved = text_of(config, "environment_dir_path", key, context)
    if saved is not None:
        return _folder(found_from(saved, folder), f"{key}.environment_dir_path", folder, context)
    return Environment()


def merged_variables(environment: Environment, own: Node | None) -> Node | None:
    """The variables of an environment, overridden by those of the configuration that names it."""
    if environment.variables is not None and isinstance(own, Mapping):
        return mapping({**environment.variables.entries, **own.entries}, own.place)
    return environment.variables if own is None else own


def _inline_or_file(node: Node, key: str, folder: str, context: Context) -> Environment:
    if isinstance(node, Mapping):
        return _translated(node, folder)
    if not isinstance(node, Scalar):
        context.problems.error(node, key, f"is {shown(node)}; it must be an environment, or the path of its file.")
        return Environment()
    if node.text.startswith("azureml:"):
        return Environment(node)
    node = found_from(node, folder)
    return _file(node, absolute(node.text.strip(), node.place.source.folder), key, folder, context)


def _file(node: Scalar, path: str, key: str, folder: str, context: Context) -> Environment:
    if not os.path.isfile(path):
        what = "is a folder" if os.path.isdir(path) else "does not exist"
        context.problems.error(
            node, key, f"{shown(node)} {what} ({path}); name the file of an environment, relative to this file."
        )
        return Environment()
    root = read_yaml(path, "job", context.problems)
    if root is not None and not isinstance(root, Mapping):
        context.problems.error(root, "", f"is {shown(root)}; an environment is a mapping.")
        return Environment()
    return _translated(root, folder) if root is not None else Environment()


def _folder(node: Scalar, key: str, folder: str, context: Context) -> Environment:
    """Reads a folder that `Environment.save_to_directory` wrote."""
    saved = absolute(node.text.strip(), node.place.source.folder)
    environment = _file(node, os.path.join(saved, "azureml_environment.json"), key, folder, context)
    conda = os.path.join(saved, "conda_dependencies.yml")
    if isinstance(environment.node, Mapping) and "conda_file" not in environment.node.entries and os.path.isfile(conda):
        entries = {**environment.node.entries, "conda_file": scalar(conda, node.place)}
        return environment._replace(node=mapping(entries, environment.node.place))
    return environment


def _translated(written: Mapping, folder: str) -> Environment:
    """Turns v1's object into v2's; an object in the form of v2 stays as it is. Accepts keys in camel case and snake
    case.
    """
    variables = _part(written, "environmentVariables")
    if variables is not None and not variables.entries:
        variables = None
    if "image" in written.entries or "conda_file" in written.entries:
        return Environment(written, variables)
    python, docker = _part(written, "python"), _part(written, "docker")
    managed = _scalar(python, "userManagedDependencies")
    conda = None if managed is not None and managed.value is True else _value(python, "condaDependencies")
    file = _scalar(python, "condaDependenciesFile")
    dockerfile = _value(docker, "baseDockerfile")
    entries: dict[str, Node | None] = {
        "name": _value(written, "name"),
        "version": _value(written, "version"),
        "image": _value(docker, "baseImage"),
        # v2's key for the making of an image; reading that key warns that it has no effect.
        "build": mapping({"dockerfile": dockerfile}, dockerfile.place) if dockerfile is not None else None,
        "conda_file": conda if isinstance(conda, Mapping) and conda.entries else file and found_from(file, folder),
    }
    return Environment(mapping(entries, written.place), variables)


def _value(owner: Mapping | None, name: str) -> Node | None:
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    for key in (name, snake) if owner else ():
        node = owner.entries.get(key) if owner else None
        if not is_null(node):
            return node
    return None


def _part(owner: Mapping, name: str) -> Mapping | None:
    node = _value(owner, name)
    return node if isinstance(node, Mapping) else None


def _scalar(owner: Mapping | None, name: str) -> Scalar | None:
    node = _value(owner, name)
    return node if isinstance(node, Scalar) else None
