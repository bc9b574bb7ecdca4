"""Settings as attributes: what notebooks read and write on steps, jobs, inputs and outputs."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from collections.abc import Mapping as MappingType
from enum import Enum
from typing import Any

from windrow.ml.places import calling_place
from windrow.spec.reading.from_python import from_plain, mapping, sequence
from windrow.spec.reading.nodes import Mapping, Node, Place, Scalar, Sequence, to_plain

_NODES = (Scalar, Sequence, Mapping)
NESTED = ("resources", "retry_settings", "settings", "environment_variables", "tags", "properties", "limits")
"""Settings that have keys of their own: reading one that is not set gives an empty one, to write to."""


class Attributes:
    """A mapping of settings whose keys are also attributes. Setting one to None removes it.

    Keys are not checked here: the reader of job files checks them when the job is made, and suggests the nearest key.
    """

    def __init__(self, written: Mapping | None = None, /, **values: Any) -> None:
        """Take the keys from a file's mapping, or from values. A value of None leaves its key unset."""
        self._values: dict[str, Any] = dict(written.entries) if written else {}
        self._places: dict[str, Place] = dict(written.key_places) if written else {}
        self._place = written.place if written else calling_place()
        for name, value in values.items():
            self[name] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or isinstance(getattr(type(self), name, None), property):
            object.__setattr__(self, name, value)
        else:
            self[name] = value

    def __delattr__(self, name: str) -> None:
        self._values.pop(name, None)

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            raise KeyError(name)
        value = self._values[name]
        if isinstance(value, Mapping):
            value = self._values[name] = Attributes(value)
        return to_plain(value) if isinstance(value, (Scalar, Sequence)) else value

    def __setitem__(self, name: str, value: Any) -> None:
        if value is None:
            self._values.pop(name, None)
            return
        if isinstance(value, MappingType):
            value = Attributes(**{str(key): entry for key, entry in value.items()})
        self._values[name] = value
        self._places[name] = calling_place()

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Attributes):
            return type(self) is type(other) and self.to_dict() == other.to_dict()
        return isinstance(other, MappingType) and self.to_dict() == dict(other)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.to_dict()!r})"

    def get(self, name: str, default: Any = None) -> Any:
        """A value, or `default`; for settings with keys of their own an empty one, to write to."""
        if name in self._values:
            return self[name]
        if name in NESTED and default is None:
            self._values[name] = Attributes()
            return self._values[name]
        return default

    def keys(self) -> list[str]:
        """The keys that are set."""
        return list(self._values)

    def items(self) -> list[tuple[str, Any]]:
        """The keys and their values."""
        return [(name, self[name]) for name in self._values]

    def values(self) -> list[Any]:
        """The values."""
        return [self[name] for name in self._values]

    def pop(self, name: str, default: Any = None) -> Any:
        """Remove a key, and return its value."""
        value = self.get(name, default)
        self._values.pop(name, None)
        return value

    def update(self, *others: MappingType[str, Any], **values: Any) -> None:
        """Set several keys."""
        for other in (*others, values):
            for name, value in other.items():
                self[name] = value

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        plain = to_plain(Attributes.to_node(self))
        assert isinstance(plain, dict)
        return plain

    def to_node(self) -> Mapping:
        """Return the settings as a tree, without nested settings that are empty."""
        entries = {
            name: to_node(value, self._places.get(name, self._place))
            for name, value in self._values.items()
            if not (isinstance(value, Attributes) and type(value) is Attributes and not value)
        }
        there = {name: node for name, node in entries.items() if not _is_empty(name, node)}
        return mapping(there, self._place)

    def __deepcopy__(self, memo: dict[int, Any]) -> Attributes:
        made = object.__new__(type(self))
        memo[id(self)] = made
        for name, value in self.__dict__.items():
            object.__setattr__(made, name, value if isinstance(value, Place) else _copied(value, memo))
        return made


def to_node(value: Any, place: Place) -> Node:
    """The tree of a value: a node, settings, anything with a `to_node()`, or plain values that hold such.

    Raises TypeError for a value that no job can hold.
    """
    if isinstance(value, _NODES):
        return value
    if hasattr(type(value), "to_node"):
        node: Node = value.to_node()
        return node
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, MappingType):
        return mapping({str(key): to_node(entry, place) for key, entry in value.items()}, place)
    if isinstance(value, (list, tuple)):
        return sequence((to_node(entry, place) for entry in value), place)
    return from_plain(value, place)


def _is_empty(name: str, node: Node) -> bool:
    return name in NESTED and isinstance(node, Mapping) and not node.entries


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    """A copy of settings. Nodes are immutable, and objects that stand for a binding are shared."""
    if isinstance(value, dict):
        return {key: _copied(entry, memo) for key, entry in value.items()}
    if isinstance(value, list):
        return [_copied(entry, memo) for entry in value]
    return copy.deepcopy(value, memo) if type(value) is Attributes or getattr(value, "_is_copied", False) else value
