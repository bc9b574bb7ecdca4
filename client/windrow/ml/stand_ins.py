"""Stand-ins for the public names of the vendor's packages that Windrow has no counterpart for.

An import never fails for a name that the vendor's package has: notebooks import more than they use. What is imported
then raises `UsageError` where it is used, with what to do instead. Constants and enumerations have their values;
exceptions can be caught, and are never raised.

`mirrored/*.json` list the names. `tests/compatibility/vendor_names.py` makes them from the vendor's own packages.
"""

from __future__ import annotations

import enum
import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from windrow.errors import UsageError, WindrowError

PLAIN = (str, int, float, bool, type(None))
"""The types of constants."""


class AbsentAttribute(UsageError, AttributeError):
    """An attribute of a stand-in is asked for; `hasattr` is False."""


class _StandIn(type):
    """The type of stand-ins for classes and functions: whatever uses one is told what to do instead."""

    words: str

    def __new__(mcs, name: str, bases: tuple[Any, ...], space: dict[str, Any]) -> _StandIn:
        """Make a stand-in. Raises UsageError for a class that inherits from one."""
        for base in bases:
            raise UsageError(base.words)
        return super().__new__(mcs, name, bases, space)

    def __call__(cls, *arguments: object, **more: object) -> Any:
        """Raise UsageError."""
        raise UsageError(cls.words)

    def __getattr__(cls, name: str) -> Any:
        """Raise AbsentAttribute."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise AbsentAttribute(cls.words)

    def __getitem__(cls, key: object) -> Any:
        """Raise UsageError."""
        raise UsageError(cls.words)

    def __repr__(cls) -> str:
        return f"<{cls.__module__}.{cls.__name__}, which Windrow does not have>"


@functools.cache
def mirrored(root: str) -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """By module, the names that it has, by kind. `root`: `azure.ai.ml` or `azureml`.

    Of classes, functions and exceptions the names alone are known: their values are None.
    """
    text = resources.files("windrow.ml").joinpath("mirrored", f"{root}.json").read_text("utf-8")
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for module, kinds in json.loads(text).items():
        found[module] = {
            kind: dict.fromkeys(names.split()) if isinstance(names, str) else names for kind, names in kinds.items()
        }
    return found


def stand_in(root: str, module: str, name: str, words: str) -> Any:
    """What stands for a name of the vendor's module. `words`: what its use is told. Raises KeyError if the module has
    no such name.
    """
    for kind, names in mirrored(root).get(module, {}).items():
        if name in names:
            if kind == "values":
                return names[name]
            members: Mapping[str, Any] = names[name] or {}
            key = (root, name, kind, tuple(members.items()))
            if key not in _stand_ins:
                place = root.replace("azure.ai.ml", "windrow.ml").replace("azureml", "windrow.ml.v1")
                _stand_ins[key] = _made(place, name, kind, members, words)
            return _stand_ins[key]
    raise KeyError(name)


_stand_ins: dict[tuple[Any, ...], Any] = {}
"""Those that were made: the same one, from whichever module it is imported."""


def _made(place: str, name: str, kind: str, members: Mapping[str, Any], words: str) -> Any:
    space: dict[str, Any] = {"__module__": place, "__doc__": f"As the vendor's {name}."}
    if kind == "exceptions":
        return type(name, (WindrowError,), space)
    if kind == "members":
        return type(name, (), {**space, **members})
    if kind == "enums":
        texts = all(isinstance(value, str) for value in members.values())
        made: Any = enum.StrEnum if texts else enum.Enum
        return made(name, dict(members), module=place)
    more = {"__doc__": words, "words": words}
    return _StandIn(name, (), {**space, **more})
