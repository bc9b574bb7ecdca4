"""Trees of nodes made from Python values, so that v1 files and the Python API are read by the same rules as YAML."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping as MappingType
from typing import Any

from windrow.spec.reading.nodes import Mapping, Node, Place, Scalar, Sequence

_NODES = (Scalar, Sequence, Mapping)


def scalar(value: str | int | float | bool | None, place: Place) -> Scalar:
    """A single value, with the text that YAML would write for it."""
    if isinstance(value, str):
        return Scalar(place, str(value), str(value))
    text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return Scalar(place, value, text)


def sequence(items: Iterable[Node], place: Place) -> Sequence:
    """A list of nodes."""
    return Sequence(place, tuple(items))


def mapping(entries: MappingType[str, Node | None], place: Place) -> Mapping:
    """A mapping of nodes, without those that are None; each key takes the place of its value."""
    there = {key: node for key, node in entries.items() if node is not None}
    return Mapping(place, there, {key: node.place for key, node in there.items()})


def from_plain(value: Any, place: Place) -> Node:
    """The tree of a plain value: mappings, lists, tuples and scalars. Nodes among them stay as they are.

    Raises TypeError, naming the type, for anything else.
    """
    if isinstance(value, _NODES):
        return value
    if isinstance(value, MappingType):
        return mapping({str(key): from_plain(entry, place) for key, entry in value.items()}, place)
    if isinstance(value, (list, tuple)):
        return sequence((from_plain(entry, place) for entry in value), place)
    if value is None or isinstance(value, (str, int, float, bool)):
        return scalar(value, place)
    raise TypeError(f"{value!r} is {type(value).__name__}; a job holds text, numbers, true/false, lists and mappings")
