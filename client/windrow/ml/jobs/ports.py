"""Inputs and outputs of steps and pipelines, and how they are bound to each other."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import Any, Protocol

from windrow.ml.assets.data import Input
from windrow.ml.attributes import Attributes, to_node
from windrow.ml.places import calling_place
from windrow.spec.reading.from_python import mapping, scalar
from windrow.spec.reading.nodes import Mapping, Node, Place, Scalar, is_null
from windrow.spec.reading.problems import did_you_mean, listed
from windrow.spec.settings.schema import DATA_TYPES, MODEL_TYPES


class KeyedStep(Protocol):
    """What an output needs from its step; a `windrow.ml.jobs.step.Step` provides it."""

    @property
    def key(self) -> str:
        """The step's name in the pipeline."""


class PipelineInput(Attributes):
    """An input of a pipeline, as its function and its callers see it."""

    def __init__(self, name: str, given: Any, *, is_missing: bool = False) -> None:
        """`given`: an Input, a literal, a node of a file, or None for an optional input without a value. `is_missing`:
        whether it is not optional, and the caller gave nothing.
        """
        if isinstance(given, Mapping):
            super().__init__(given)
        else:
            super().__init__(**_entries_of(given))
        self._name = name
        self._is_missing = is_missing

    def __setitem__(self, name: str, value: Any) -> None:
        """Set a key; a new `path` replaces a bare value from a file."""
        if name == "path" and value is not None:
            self._values.pop("value", None)
        super().__setitem__(name, value)

    @property
    def is_missing(self) -> bool:
        """Whether the input needs a value, and has none so far."""
        return self._is_missing and self.is_optional_without_value and not self.get("optional")

    @property
    def is_optional_without_value(self) -> bool:
        """Whether the input is optional and was given as None."""
        return not any(key in self for key in ("path", "value", "default"))

    def __str__(self) -> str:
        """The expression that refers to the input."""
        return f"${{{{parent.inputs.{self._name}}}}}"

    def to_entry(self) -> Node:
        """The entry in the pipeline's inputs."""
        return entry_node(self)

    def to_node(self) -> Mapping:
        """The reference to the input, as a setting or input of a step."""
        return scalar(str(self), self._place)  # type: ignore[return-value]  # usable wherever a value is


class StepInput(Attributes):
    """An input of a step: its declaration, and the value or binding that it was given."""

    _is_copied = True

    def __init__(self, declared: Node | Attributes | None, given: Any = None) -> None:
        """`declared`: the declaration in the function or file that made the step."""
        if isinstance(declared, Attributes):
            super().__init__(Attributes.to_node(declared))
        else:
            super().__init__(declared if isinstance(declared, Mapping) else None)
        if given is not None:
            self._give(given)

    def _give(self, given: Any) -> None:
        data = self.get("type") in (*DATA_TYPES, *MODEL_TYPES)
        if is_binding(given):
            given = {"path": given}
        elif data and isinstance(given, (str, os.PathLike)):
            given = {"path": os.fspath(given)}
        entries = _entries_of(given)
        if isinstance(given, Input) and not given._typed and "type" in self:
            entries.pop("type", None)
        self.update(entries)
        self._place = calling_place()

    def to_node(self) -> Mapping:
        """The entry in the step's inputs."""
        return entry_node(self)  # type: ignore[return-value]  # a bare value if there is nothing else


class StepOutput(Attributes):
    """An output of a step; given to another step as an input, it binds that input.

    Not the `StepOutput` of the effective job, which is resolved.
    """

    def __init__(self, step: KeyedStep, name: str, written: Node | Attributes | None) -> None:
        """`written`: the output's settings."""
        node = written.to_node() if isinstance(written, Attributes) else written
        super().__init__(node if isinstance(node, Mapping) else None)
        if node is not None and not isinstance(node, Mapping) and not is_null(node):
            self.path = node
        if isinstance(node, Scalar):
            self._place = node.place  # errors name the line in the file
        self._step = step
        self._name = name

    @property
    def step(self) -> KeyedStep:
        """The step that writes it."""
        return self._step

    @property
    def port_name(self) -> str:
        """The output's name in the step."""
        return self._name

    def __str__(self) -> str:
        """The expression that refers to the output. The step has a name only after the pipeline's function has
        returned.
        """
        return f"${{{{parent.jobs.{self._step.key}.outputs.{self._name}}}}}"

    def to_node(self) -> Mapping:
        """The reference to the output, as an input of another step."""
        return scalar(str(self), self._place)  # type: ignore[return-value]  # usable wherever a value is

    def settings(self) -> dict[str, Node]:
        """The output's own settings, as nodes."""
        return {name: to_node(value, self._place) for name, value in self._values.items()}


class Ports:
    """The inputs or outputs of a step or job, by attribute or key, in order."""

    def __init__(
        self, what: str, owner: str, members: dict[str, Any], *, make: Any, declared: Collection[str] = ()
    ) -> None:
        """`make(name, value)` makes the member that an assignment sets; it raises AttributeError if none may be set.
        `declared`: members that are there as soon as they are named, without a value."""
        object.__setattr__(self, "_what", what)
        object.__setattr__(self, "_owner", owner)
        object.__setattr__(self, "_members", members)
        object.__setattr__(self, "_make", make)
        object.__setattr__(self, "_declared", declared)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._members and name in ("keys", "values", "items", "get"):
            # In Azure ML this is a dictionary; a member of that name comes first.
            return getattr(self._members, name)
        if name not in self._members and name in self._declared:
            self._members[name] = self._make(name, None)
        if name not in self._members:
            raise AttributeError(
                f"{self._owner} has no {self._what} {name!r}.{did_you_mean(name, self._members)} "
                f"Its {self._what}s: {listed(self._members)}."
            )
        return self._members[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self._members[name] = self._make(name, value)

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except AttributeError as error:
            raise KeyError(str(error)) from None

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def keys(self) -> list[str]:
        """The names."""
        return list(self._members)

    def values(self) -> list[Any]:
        """The members."""
        return list(self._members.values())

    def items(self) -> list[tuple[str, Any]]:
        """Names and members."""
        return list(self._members.items())

    def get(self, name: str, default: Any = None) -> Any:
        """A member, or `default`."""
        return self._members.get(name, default)


def is_binding(value: Any) -> bool:
    """Whether a value refers to an input of the pipeline or an output of a step."""
    return isinstance(value, (PipelineInput, StepOutput))


def is_data(value: Any) -> bool:
    """Whether a value is data with a path, and not a literal: an Input, a data asset, a model."""
    return isinstance(value, Input) or hasattr(type(value), "to_input")


def _entries_of(given: Any) -> dict[str, Any]:
    """The keys of an input's entry, from the object that was given for it."""
    if given is None:
        return {}
    if hasattr(type(given), "to_input"):
        given = given.to_input()
    if isinstance(given, Attributes) and not is_binding(given):
        # An Input without a type takes the type of the declaration.
        return dict(given._values)
    if isinstance(given, dict):
        return given
    return {"value": given}


def entry_node(port: Attributes) -> Node:
    """An entry of `inputs`; a bare value if there is nothing but a value or a binding."""
    place: Place = port._place
    entries = {name: to_node(value, port._places.get(name, place)) for name, value in port._values.items()}
    if list(entries) == ["value"]:
        return entries["value"]
    if list(entries) == ["path"] and is_binding(port._values["path"]):
        return entries["path"]
    return mapping(entries, place)
