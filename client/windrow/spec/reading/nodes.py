"""A YAML document as a tree in which every value knows where it was written.

Errors with line and column, the origin of each setting, and paths relative to their file all need the place of a value,
which `yaml.safe_load` discards. Trees never change: `sets.apply_sets` builds new ones.
"""

from __future__ import annotations

import os
from typing import NamedTuple, TypeAlias

DEPTH_MAX = 64
"""The deepest nesting of mappings and lists; no setting needs more than ten levels."""


ScalarValue: TypeAlias = str | int | float | bool | None


class Source(NamedTuple):
    """Where values come from.

    Not the planner's `Source`, which is an input of a step.

    `kind` is `job`, `component`, `python` (an object made by `windrow.ml`) or `--set`; relative paths among them start
    at `folder`; `label` is shown.
    """

    kind: str
    label: str
    folder: str


class Place(NamedTuple):
    """A position in a source; `line` and `column` count from 1, 0 for `--set`.

    Not the place of data (`windrow_master.reuse`), which is a path.
    """

    source: Source
    line: int = 0
    column: int = 0

    @property
    def place(self) -> Place:
        """The node's own place, so that problems can be noted at nodes and places alike."""
        return self

    def __str__(self) -> str:
        return f"{self.source.label}:{self.line}" if self.line else self.source.label


class Scalar(NamedTuple):
    """A single value as YAML 1.1 reads it, and its `text` as written (quotes and folding resolved)."""

    place: Place
    value: ScalarValue
    text: str


class Sequence(NamedTuple):
    """A list."""

    place: Place
    items: tuple[Node, ...]


class Mapping(NamedTuple):
    """A mapping; `key_places` says where each key was written."""

    place: Place
    entries: dict[str, Node]
    key_places: dict[str, Place]


Node: TypeAlias = Scalar | Sequence | Mapping
"""A node of a YAML tree. Not `windrow.Node`, which describes a machine."""


def shown(node: Node) -> str:
    """A value for a message: text in quotes, other scalars as written; long text is shortened."""
    match node:
        case Scalar(value=None):
            return "nothing"
        case Scalar(value=str()):
            return '"' + (node.text if len(node.text) <= 120 else node.text[:117] + "…") + '"'
        case Scalar():
            return node.text
        case Sequence():
            return "a list"
        case Mapping():
            return "a mapping"


def is_null(node: Node | None) -> bool:
    """Whether there is no value: the key is absent, or nothing follows it."""
    return node is None or (isinstance(node, Scalar) and node.value is None)


def to_plain(node: Node) -> object:
    """The value without its places, as `yaml.safe_load` would give it (dates stay text)."""
    match node:
        case Scalar():
            return node.value
        case Sequence():
            return [to_plain(item) for item in node.items]
        case Mapping():
            return {key: to_plain(value) for key, value in node.entries.items()}


def source_label(path: str) -> str:
    """A file's name for messages: relative to the working folder if it is below it, else absolute."""
    try:
        here = os.path.join(os.getcwd(), "")
    except OSError:
        return path
    return path.removeprefix(here)
