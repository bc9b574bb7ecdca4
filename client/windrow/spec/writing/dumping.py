"""A job's tree as YAML, which loads to the same job from another folder."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple, Protocol

import yaml

from windrow.spec.environments.environment import is_path
from windrow.spec.naming.expressions import whole_reference
from windrow.spec.naming.locations import absolute, parse_location
from windrow.spec.reading.nodes import Mapping, Node, Scalar
from windrow.spec.settings.schema import DATA_TYPES, MODEL_TYPES

EXPRESSION = "${{"
"""A path that begins so has its place from what stands there."""


class Files(Protocol):
    """How a dumped tree names what is outside it. All values are plain, for YAML."""

    def step(self, node: Mapping) -> tuple[Mapping, dict[str, Any]]:
        """What is to be written of a step as it is, and the other values of its keys, which are plain."""

    def code(self, node: Scalar) -> Any:
        """A code folder."""

    def component(self, node: Scalar) -> Any:
        """The file of a component."""

    def environment(self, node: Node) -> Any:
        """An environment: its name, its file, or itself."""

    def data(self, node: Node) -> Any:
        """The path of an input."""

    def output(self, node: Node) -> Any:
        """The path of an output; None leaves it out."""


class InPlace:
    """Names everything by its absolute path."""

    def step(self, node: Mapping) -> tuple[Mapping, dict[str, Any]]:
        """Return the step."""
        return node, {}

    def code(self, node: Scalar) -> Any:
        """Return the absolute path."""
        return absolute_path(node)

    def component(self, node: Scalar) -> Any:
        """Return the absolute path."""
        return absolute_path(node)

    def environment(self, node: Node) -> Any:
        """Return the environment with the absolute paths of its files."""
        plain: Any = plain_of(node)
        if isinstance(node, Scalar) and is_path(node.text, node.place.source.folder):
            return absolute_path(node)
        if isinstance(node, Mapping) and isinstance(node.entries.get("conda_file"), Scalar):
            plain = {**plain, "conda_file": absolute_path(node.entries["conda_file"])}
        return plain

    def data(self, node: Node) -> Any:
        """Return the absolute path."""
        return absolute_path(node)

    def output(self, node: Node) -> Any:
        """Return the absolute path."""
        return absolute_path(node)


class _AsWritten(NamedTuple):
    """A value that is no text, with its text: `1.10` is another argument of a script than `1.1`."""

    value: bool | int | float | None
    text: str


class _Dumper(yaml.SafeDumper):
    pass


def _represent_as_written(dumper: _Dumper, data: _AsWritten) -> yaml.Node:
    kinds = {bool: "bool", int: "int", float: "float", type(None): "null"}
    return dumper.represent_scalar(f"tag:yaml.org,2002:{kinds[type(data.value)]}", data.text)


_Dumper.add_representer(_AsWritten, _represent_as_written)


def plain_of(node: Node, known: dict[int, Any] | None = None) -> Any:
    """A tree as plain values for `yaml_text`, with the texts of numbers as they are written. What stands in the tree
    several times (aliases) becomes one object, so that it is written once.
    """
    known = {} if known is None else known
    if isinstance(node, Scalar):
        return node.value if isinstance(node.value, str) else _AsWritten(node.value, node.text)
    if id(node) not in known:
        known[id(node)] = (
            {key: plain_of(value, known) for key, value in node.entries.items()}
            if isinstance(node, Mapping)
            else [plain_of(item, known) for item in node.items]
        )
    return known[id(node)]


def to_yaml(root: Mapping) -> str:
    """The YAML text of a pipeline's tree, with absolute paths."""
    return yaml_text(pipeline_plain(root, InPlace()))


def yaml_text(plain: Any) -> str:
    """Plain values as YAML, their keys in order."""
    return str(yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))


def pipeline_plain(root: Mapping, files: Files) -> dict[str, Any]:
    """A pipeline's tree as plain values."""
    plain: dict[str, Any] = {}
    for name, node in root.entries.items():
        if name == "inputs" and isinstance(node, Mapping):
            if node.entries:
                plain[name] = _inputs(node, files, _read_as_data(root))
        elif name == "outputs" and isinstance(node, Mapping):
            if node.entries:
                plain[name] = _outputs(node, files)
        elif name == "jobs" and isinstance(node, Mapping):
            plain[name] = _steps(node, files)
        else:
            plain[name] = plain_of(node)
    return plain


def _steps(node: Mapping, files: Files) -> dict[str, Any]:
    steps: dict[str, Any] = {}
    for key, step in node.entries.items():
        own, more = files.step(step) if isinstance(step, Mapping) else (step, {})
        steps[key] = {**step_plain(own, files), **more} if more else step_plain(own, files)
    return steps


def step_plain(node: Node, files: Files) -> Any:
    """A step, a component, or the task of one as plain values."""
    if not isinstance(node, Mapping):
        return plain_of(node)
    plain: dict[str, Any] = {}
    for name, entry in node.entries.items():
        if name == "inputs" and isinstance(entry, Mapping):
            if entry.entries:
                plain[name] = _inputs(entry, files)
        elif name == "outputs" and isinstance(entry, Mapping):
            if entry.entries:
                plain[name] = _outputs(entry, files)
        elif name in ("component", "task") and isinstance(entry, Mapping):
            plain[name] = step_plain(entry, files)
        elif name == "jobs" and isinstance(entry, Mapping):  # in a component that is a pipeline
            plain[name] = _steps(entry, files)
        elif name == "code" and isinstance(entry, Scalar):
            plain[name] = files.code(entry)
        elif name == "component" and isinstance(entry, Scalar):
            plain[name] = files.component(entry)
        elif name == "environment":
            plain[name] = files.environment(entry)
        else:
            plain[name] = plain_of(entry)
    return plain


def _inputs(node: Mapping, files: Files, data: Collection[str] = ()) -> dict[str, Any]:
    """`data`: the names of entries that are paths if they are bare."""
    ports: dict[str, Any] = {}
    for name, entry in node.entries.items():
        plain: Any = plain_of(entry)
        if isinstance(entry, Mapping) and isinstance(path := entry.entries.get("path"), Scalar):
            plain = {**plain, "path": files.data(path)}
        ports[name] = files.data(entry) if name in data else plain
    return ports


def _outputs(node: Mapping, files: Files) -> dict[str, Any]:
    ports: dict[str, Any] = {}
    for name, entry in node.entries.items():
        plain: Any = files.output(entry) if isinstance(entry, Scalar) else plain_of(entry)
        if isinstance(entry, Mapping) and isinstance(path := entry.entries.get("path"), Scalar):
            plain = {**plain, "path": files.output(path)}
            if plain["path"] is None:
                del plain["path"]
        ports[name] = plain
    return ports


def _read_as_data(root: Mapping) -> set[str]:
    """The pipeline's bare inputs that a step reads as data; by themselves they could be any text."""
    found: set[str] = set()
    bare = {name for name, node in _entries(root.entries.get("inputs")).items() if isinstance(node, Scalar)}
    for step in _entries(root.entries.get("jobs")).values():
        declared = _entries(_entries(_entries(step).get("component")).get("inputs"))
        for name, entry in _entries(_entries(step).get("inputs")).items():
            bound = entry if isinstance(entry, Scalar) else _entries(entry).get("path")
            kind = _entries(entry).get("type", _entries(declared.get(name)).get("type"))
            if not isinstance(bound, Scalar) or not isinstance(kind, Scalar):
                continue
            reference = whole_reference(bound.text)
            if reference and reference.scope == "parent.inputs" and kind.text in (*DATA_TYPES, *MODEL_TYPES):
                found.add(reference.name)
    return found & bare


def _entries(node: Node | None) -> dict[str, Node]:
    return dict(node.entries) if isinstance(node, Mapping) else {}


def absolute_path(node: Node) -> Any:
    """A local path, made absolute; anything else unchanged."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str) or node.text.strip().startswith(EXPRESSION):
        return plain_of(node)
    location = parse_location(node.text)
    if location.kind != "local" or not location.value:
        return node.text
    path = absolute(location.value, node.place.source.folder)
    return path + "/" if location.value.endswith("/") and path != "/" else path
