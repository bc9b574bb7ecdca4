"""A job's tree as YAML that loads again to the same job, wherever it is written: its paths are absolute."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import yaml

from windrow.spec.environments.environment import is_path
from windrow.spec.naming.expressions import has_expression, whole_reference
from windrow.spec.naming.locations import absolute, parse_location
from windrow.spec.reading.nodes import Mapping, Node, Scalar, to_plain
from windrow.spec.settings.schema import DATA_TYPES, MODEL_TYPES

_STEP_PATHS = ("code", "component")


def to_yaml(root: Mapping) -> str:
    """The YAML text of a pipeline's tree."""
    plain = _pipeline(root)
    return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120))


def _pipeline(root: Mapping) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, node in root.entries.items():
        if name in ("inputs", "outputs") and isinstance(node, Mapping):
            ports = _ports(node, _read_as_data(root) if name == "inputs" else ())
            if ports:
                plain[name] = ports
        elif name == "jobs" and isinstance(node, Mapping):
            plain[name] = {key: _step(step) for key, step in node.entries.items()}
        else:
            plain[name] = to_plain(node)
    return plain


def _step(node: Node) -> Any:
    if not isinstance(node, Mapping):
        return to_plain(node)
    plain: dict[str, Any] = {}
    for name, entry in node.entries.items():
        if name in ("inputs", "outputs") and isinstance(entry, Mapping):
            if entry.entries:
                plain[name] = _ports(entry)
        elif name in ("component", "task") and isinstance(entry, Mapping):
            plain[name] = _step(entry)
        elif name == "jobs" and isinstance(entry, Mapping):  # in a component that is a pipeline
            plain[name] = {key: _step(step) for key, step in entry.entries.items()}
        elif name in _STEP_PATHS and isinstance(entry, Scalar):
            plain[name] = _path(entry)
        elif name == "environment":
            plain[name] = _environment(entry)
        else:
            plain[name] = to_plain(entry)
    return plain


def _ports(node: Mapping, data: Collection[str] = ()) -> dict[str, Any]:
    """`data`: the names of those that are paths where they are bare."""
    ports: dict[str, Any] = {}
    for name, entry in node.entries.items():
        plain: Any = to_plain(entry)
        if isinstance(entry, Mapping) and isinstance(entry.entries.get("path"), Scalar):
            plain["path"] = _path(entry.entries["path"])
        ports[name] = _path(entry) if name in data else plain
    return ports


def _read_as_data(root: Mapping) -> set[str]:
    """The pipeline's bare inputs that a step reads as data: of themselves they could be any text."""
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


def _environment(node: Node) -> Any:
    plain: Any = to_plain(node)
    if isinstance(node, Scalar) and is_path(node.text, node.place.source.folder):
        return _path(node)
    if isinstance(node, Mapping) and isinstance(node.entries.get("conda_file"), Scalar):
        plain["conda_file"] = _path(node.entries["conda_file"])
    return plain


def _path(node: Node) -> Any:
    """A local path as an absolute one; anything else as it is."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str) or has_expression(node.text):
        return to_plain(node)
    location = parse_location(node.text)
    if location.kind != "local" or not location.value:
        return node.text
    path = absolute(location.value, node.place.source.folder)
    return path + "/" if location.value.endswith("/") and path != "/" else path
