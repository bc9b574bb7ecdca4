"""YAML files as trees of nodes, each with its line and column."""

from __future__ import annotations

import os

import yaml

from windrow.spec.reading.nodes import (
    DEPTH_MAX,
    Mapping,
    Node,
    Place,
    Scalar,
    ScalarValue,
    Sequence,
    Source,
    is_null,
    shown,
    source_label,
)
from windrow.spec.reading.problems import Problems

FILE_BYTES_MAX = 4 * 1024 * 1024
"""The largest job or component file. The document made from it has to fit the same limit of the protocol."""

WRITTEN_OUT_MAX = 4 * FILE_BYTES_MAX
"""The largest file where its aliases are written out: in characters, with each value in every place where an alias or a
merge puts it. Whoever walks the tree meets that many, so a small file of aliases could otherwise take all memory.
"""

_NUMBER_CHARACTERS_MAX = 400
"""The longest text of a number; those with many colons (`1:59:59`) take more than linear time to read."""

_HARMLESS_DEPTH = 1000
"""A depth that the parser's recursion survives on any stack."""

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(
    file_path: str | os.PathLike[str],
    kind: str,
    problems: Problems,
    content: bytes | None = None,
    folder: str | None = None,
) -> Node | None:
    """Reads a YAML file. `content`: its bytes, if it is not on this machine; `folder`: where relative paths in it
    start, if not in its own folder.

    If the file as a whole is wrong (missing, not YAML, duplicate keys), `problems` says so and the result is None.
    """
    path = os.fspath(file_path)
    source = Source(kind, source_label(path) if content is None else path, folder or os.path.dirname(path))
    start = Place(source)
    try:
        if content is None:
            with open(path, "rb") as file:
                content = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        problems.error(start, "", "there is no such file; check the path.")
        return None
    except IsADirectoryError:
        problems.error(start, "", "is a folder; give the path of a YAML file in it.")
        return None
    except OSError as error:
        problems.error(start, "", f"cannot be read: {error.strerror}.")
        return None
    if len(content) > FILE_BYTES_MAX:
        problems.error(
            start,
            "",
            f"is larger than {FILE_BYTES_MAX // 1024**2} MiB, too large for a file of settings; is it the right file?",
        )
        return None
    try:
        text = content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problems.error(Place(source, line, 1), "", "is not UTF-8 text here; save the file as UTF-8.")
        return None
    before = len(problems.errors)
    node = parse_yaml(text, source, problems)
    if len(problems.errors) == before and is_null(node):
        problems.error(start, "", "is empty.")
        return None
    return node


def parse_yaml(text: str, source: Source, problems: Problems) -> Node | None:
    """The one document in `text`; None if there is none, or if it is not YAML (then `problems` says why)."""
    before = len(problems.errors)
    try:
        deep = _too_deep_at(text)
        if deep:
            problems.error(_place(source, *deep), "", f"is nested deeper than {DEPTH_MAX} levels; write it flatter.")
            return None
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            node = None if root is None else _Converter(source, loader, problems).convert(root, 0)
        finally:
            loader.dispose()
    except _TooManyAliases as error:
        problems.error(
            error.place,
            "",
            f"comes to more than {WRITTEN_OUT_MAX // 1024**2} MiB by its aliases (*name) and merges (<<); use fewer.",
        )
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = _place(source, mark.line, mark.column) if mark else Place(source)
        context = f" {error.context}" if error.context else ""
        hint = " YAML is indented with spaces, never with tabs." if mark and _is_at_tab(text, mark) else ""
        problems.error(place, "", f"is not valid YAML{context}: {error.problem}.{hint}")
    except yaml.YAMLError as error:
        problems.error(Place(source), "", f"is not valid YAML: {' '.join(str(error).split())}.")
    return node if len(problems.errors) == before else None


def _is_at_tab(text: str, mark: yaml.Mark) -> bool:
    """Whether the parser stopped at a tab, or in a line indented with one."""
    line = next(iter(text.split("\n")[mark.line : mark.line + 1]), "")
    indent = line[: len(line) - len(line.lstrip())]
    return "\t" in indent or line[mark.column : mark.column + 1] == "\t"


def _place(source: Source, line: int, column: int) -> Place:
    """The place for a line and column of the parser, which counts from 0."""
    return Place(source) if source.kind == "--set" else Place(source, line + 1, column + 1)


def _too_deep_at(text: str) -> tuple[int, int] | None:
    """Line and column (from 0) at which a text is nested too deep, if it is.

    The parser composes by recursion in C, and would overflow the stack.
    """
    if text.count("[") + text.count("{") + max(map(len, text.splitlines()), default=0) < _HARMLESS_DEPTH:
        return None  # brackets and indentation limit the depth, so hardly any file is parsed twice
    try:
        return _first_too_deep(text)
    except yaml.MarkedYAMLError as error:
        # The scanner reads ahead of the events. From libyaml 0.2.6 on it has a limit of its own, which it meets first.
        end = error.problem_mark.index if error.problem_mark else 0
    try:
        return _first_too_deep(text[:end])
    except yaml.YAMLError:
        return None  # the depth is not what is wrong: the caller meets the first error again


def _first_too_deep(text: str) -> tuple[int, int] | None:
    depth = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX and event.start_mark:
                return event.start_mark.line, event.start_mark.column
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return None


class _TooManyAliases(Exception):
    """What stands at a place comes to more than WRITTEN_OUT_MAX where its aliases are written out."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.place = place


class _Converter:
    """Converts composed YAML nodes into ours; an aliased node only once, so that aliases of aliases cost nothing here.

    What they come to where they are written out is counted: beyond WRITTEN_OUT_MAX, it raises _TooManyAliases.
    """

    def __init__(self, source: Source, loader: yaml.SafeLoader, problems: Problems) -> None:
        self._source = source
        self._loader = loader
        self._problems = problems
        self._done: dict[int, Node] = {}
        self._sizes: dict[int, int] = {}
        """Of the nodes of ours, by identity (`_done` and the tree keep them): characters, written out."""
        self._merged = 0
        """What merges have put into mappings so far, in characters."""
        self._open: set[int] = set()

    def convert(self, node: yaml.Node, depth: int) -> Node:
        known = self._done.get(id(node))
        if known is not None:
            return known
        self._done[id(node)] = converted = self._converted(node, depth)
        if self._size(converted) > WRITTEN_OUT_MAX:
            raise _TooManyAliases(converted.place)
        return converted

    def _size(self, node: Node) -> int:
        """Characters of a node, with all that its aliases and merges stand for."""
        if isinstance(node, Scalar):
            return len(node.text) + 1
        known = self._sizes.get(id(node))
        if known is None:
            if isinstance(node, Sequence):
                known = 1 + sum(map(self._size, node.items))
            else:
                known = 1 + sum(len(key) + self._size(value) for key, value in node.entries.items())
            self._sizes[id(node)] = known
        return known

    def _converted(self, node: yaml.Node, depth: int) -> Node:
        place = self._place(node)
        if isinstance(node, yaml.ScalarNode):
            converted: Node = self._scalar(node, place)
        elif id(node) in self._open or depth > DEPTH_MAX:
            circular = "an alias refers to the value that contains it; write the value out."
            deep = f"is nested deeper than {DEPTH_MAX} levels; write it flatter."
            self._problems.error(place, "", circular if id(node) in self._open else deep)
            return Scalar(place, None, "")
        else:
            self._open.add(id(node))
            if isinstance(node, yaml.SequenceNode):
                converted = Sequence(place, tuple(self.convert(item, depth + 1) for item in node.value))
            else:
                assert isinstance(node, yaml.MappingNode)
                converted = self._mapping(node, place, depth)
            self._open.remove(id(node))
        return converted

    def _place(self, node: yaml.Node) -> Place:
        return _place(self._source, node.start_mark.line, node.start_mark.column)

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> Scalar:
        text: str = node.value
        tag = node.tag.removeprefix("tag:yaml.org,2002:")
        value: ScalarValue
        if tag in ("int", "float") and len(text) > _NUMBER_CHARACTERS_MAX:
            self._problems.error(
                place,
                "",
                f'"{text[:40]}…" is a number of {len(text):,} characters; at most {_NUMBER_CHARACTERS_MAX} are read.',
            )
            return Scalar(place, text, text)
        try:
            match tag:
                case "str" | "timestamp" | "value" | "merge":
                    value = text
                case "null":
                    value = None
                case "bool":
                    value = bool(self._loader.construct_yaml_bool(node))
                case "int":
                    value = int(self._loader.construct_yaml_int(node))
                case "float":
                    value = float(self._loader.construct_yaml_float(node))
                case _:
                    self._problems.error(place, "", f"the YAML tag {node.tag} has no meaning in a job file; remove it.")
                    value = text
        except (ValueError, KeyError, IndexError):
            self._problems.error(
                place, "", f'"{text[:120]}" is not a valid {tag}, which its YAML tag requires; remove the tag.'
            )
            value = text
        return Scalar(place, value, text)

    def _mapping(self, node: yaml.MappingNode, place: Place, depth: int) -> Mapping:
        entries: dict[str, Node] = {}
        key_places: dict[str, Place] = {}
        merged: list[Node] = []
        for key_node, value_node in node.value:
            key_place = self._place(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                self._problems.error(key_place, "", "a key must be plain text, not a list or mapping.")
                continue
            value = self.convert(value_node, depth + 1)
            key: str = key_node.value
            if key_node.tag == "tag:yaml.org,2002:merge":
                merged.extend(value.items if isinstance(value, Sequence) else (value,))
            elif key in entries:
                first = key_places[key]
                self._problems.error(
                    key_place, key, f'the key "{key}" was already given in line {first.line}; keep one of the two.'
                )
            else:
                entries[key], key_places[key] = value, key_place
        for base in merged:
            if not isinstance(base, Mapping):
                self._problems.error(base, "<<", f"only a mapping can be merged, not {shown(base)}.")
                continue
            self._merged += self._size(base)
            if self._merged > WRITTEN_OUT_MAX:
                raise _TooManyAliases(place)
            for key, value in base.entries.items():
                if key not in entries:
                    entries[key], key_places[key] = value, base.key_places[key]
        return Mapping(place, entries, key_places)
