"""Environments that were made known to an `MLClient`, put where a job names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from windrow.spec.reading.nodes import Mapping as MappingNode
from windrow.spec.reading.nodes import Node, Scalar

if TYPE_CHECKING:
    from windrow.ml.entities.environment import Environment


def resolve_environments(node: MappingNode, known: Mapping[str, Environment]) -> MappingNode:
    """The tree of a job with known environments in place of their names (`azureml:name:version`, `name@latest`)."""
    return _replaced(node, known) if known else node


def _replaced(node: MappingNode, known: Mapping[str, Environment]) -> MappingNode:
    entries: dict[str, Node] = {}
    for name, value in node.entries.items():
        if name == "environment" and isinstance(value, Scalar):
            found = find_environment(value.text, known)
            entries[name] = found.to_node(named=False) if found is not None else value
        else:
            entries[name] = _replaced(value, known) if isinstance(value, MappingNode) else value
    return node._replace(entries=entries)


def find_environment(text: str, known: Mapping[str, Environment]) -> Environment | None:
    """The environment that a text names; of `name` and `name@latest` the one made last."""
    name = text.strip().removeprefix("azureml:")
    if name in known:
        return known[name]
    name = name.removesuffix("@latest")
    return next(
        (environment for key, environment in reversed(list(known.items())) if key.rpartition(":")[0] == name), None
    )
