"""Reads mappings of a v1 file by the tables of keys."""

from __future__ import annotations

import os

from windrow.spec.naming.locations import absolute, parse_location
from windrow.spec.reading.context import Context
from windrow.spec.reading.from_python import scalar
from windrow.spec.reading.keys import as_mapping, read_scalar, warn_of_no_effect, warn_of_unknown
from windrow.spec.reading.nodes import Mapping, Node, Place, Scalar, Source, is_null, shown
from windrow.spec.settings.fields import Field


def read_mapping(node: Node | None, table: dict[str, Field], key: str, context: Context) -> Mapping | None:
    """Reads a mapping, and warns of keys that are unknown or without effect. None, with an error, if it is not a
    mapping.
    """
    mapping = as_mapping(node, key, context)
    if mapping is not None:
        warn_of_unknown(mapping, table, key, context)
        warn_of_no_effect(mapping, table, key, context)
    return mapping


def entry(mapping: Mapping, name: str) -> Node | None:
    """The value of a key; None if it is empty."""
    node = mapping.entries.get(name)
    return None if is_null(node) else node


def checked(mapping: Mapping, table: dict[str, Field], name: str, key: str, context: Context) -> Node | None:
    """Returns the value of a key as a scalar of its own type, if it is given and allowed; otherwise None, with an
    error.
    """
    node = entry(mapping, name)
    if node is None:
        return None
    value = read_scalar(node, table[name], f"{key}.{name}", context)
    return None if value is None else scalar(value, node.place)


def text_of(mapping: Mapping, name: str, key: str, context: Context) -> Scalar | None:
    """The value of a key that is text, as written."""
    node = entry(mapping, name)
    if node is None or (isinstance(node, Scalar) and node.text.strip()):
        return node
    context.problems.error(node, f"{key}.{name}", f"is {shown(node)}; it must be text.")
    return None


def choose_mode(
    mapping: Mapping, modes: dict[str, str], key: str, context: Context, fallback: Scalar | None = None
) -> Scalar | None:
    """The v2 mode for a `bind_mode`; None if none is given. `fallback`: what to use if there is no `bind_mode`."""
    node = text_of(mapping, "bind_mode", key, context) or fallback
    if node is None:
        return None
    found = modes.get(node.text.strip().casefold())
    if found is None:
        context.problems.error(node, f"{key}.bind_mode", f"is {shown(node)}; it must be one of {', '.join(modes)}.")
        return None
    return scalar(found, node.place)


def found_from(path: Scalar, folder: str) -> Scalar:
    """The path, made relative to `folder` if it exists there but not relative to its own file."""
    location = parse_location(path.text.strip())
    if location.kind != "local" or os.path.exists(absolute(location.value, path.place.source.folder)):
        return path
    if not os.path.exists(absolute(location.value, folder)):
        return path
    source = path.place.source
    return path._replace(place=Place(Source(source.kind, source.label, folder), path.place.line, path.place.column))
