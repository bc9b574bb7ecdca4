"""A job's tree as YAML that loads again to the same job, wherever it is written: its paths are absolute."""

from __future__ import annotations

from typing import Any

import yaml

from windrow.spec.expressions import has_expression
from windrow.spec.locations import absolute, parse_location
from windrow.spec.nodes import Mapping, Node, Scalar, Sequence, to_plain

_TASK_PATHS = ("code",)
_STEP_PATHS = ("code", "component")


def to_yaml(root: Mapping) -> str:
    """The YAML text of a pipeline's tree."""
    plain = _pipeline(root)
    return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120))


def _pipeline(root: Mapping) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, node in root.entries.items():
        if name in ("inputs", "outputs") and isinstance(node, Mapping):
            ports = _ports(node)
            if ports:
                plain[name] = ports
        elif name == "jobs" and isinstance(node, Mapping):
            plain[name] = {key: _step(step) for key, step in node.entries.items()}
        else:
            plain[name] = _plain(node)
    return plain


def _step(node: Node) -> Any:
    if not isinstance(node, Mapping):
        return _plain(node)
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
            plain[name] = _plain(entry)
    return plain


def _ports(node: Mapping) -> dict[str, Any]:
    ports: dict[str, Any] = {}
    for name, entry in node.entries.items():
        plain = _plain(entry)
        if isinstance(entry, Mapping) and isinstance(entry.entries.get("path"), Scalar):
            plain["path"] = _path(entry.entries["path"])
        ports[name] = plain
    return ports


def _environment(node: Node) -> Any:
    plain = _plain(node)
    if isinstance(node, Scalar) and node.text.endswith((".yml", ".yaml")):
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


def _plain(node: Node) -> Any:
    """Plain values; text that YAML read as something else stays what it was read as."""
    match node:
        case Mapping():
            return {key: _plain(entry) for key, entry in node.entries.items()}
        case Sequence():
            return [_plain(item) for item in node.items]
    return to_plain(node)
