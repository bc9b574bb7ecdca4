"""Mini-batches of JSON lines files, as DataFrames or as lists of dicts.

Reference: docs/reference/azure-ml/mltable.md#json-lines, #plain-files: columns are the union of keys; a column's first
kind of value wins, another kind is null; text is never parsed; nested values stay dict and list; text after the object
is ignored.
"""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from windrow_worker.loaded import Loaded
from windrow_worker.tables.columns import INT_MAX, INT_MIN
from windrow_worker.tables.encodings import to_text
from windrow_worker.tables.files import PATH, check_records, printable, read_slice

Shape = Any
"""None, a dict of names and shapes, or a list of one shape."""

DEPTH_MAX = 20
KEYS_MAX = 500
"""Objects of a column that have more different keys are mappings: their keys are data, and none is missing."""


INVALID_LINES_MAX = 5_000
"""With more lines in a mini-batch that are not objects, it cannot be read at all."""


class InvalidLine(ValueError):
    """A line is not a JSON object. `number`: of the line in its text, from 1."""

    def __init__(self, number: int, line: str, why: Exception, advice: str = "") -> None:
        super().__init__("the line is not a JSON object (%s): %.100r; correct it%s" % (why, line, advice))
        self.number = number


def _refuse(constant: str) -> Any:
    raise ValueError("%s is not valid JSON" % constant)


_OF_TABLES = json.JSONDecoder(parse_constant=_refuse)
_OF_PYTHON = json.JSONDecoder()
_DROP = ", or set `invalid_lines: drop` in an MLTable file"


def table_lines(data: str, plain: bool = False) -> Iterator[Any]:
    """Of each line of a text that is not empty, its object, or the InvalidLine that says why it is none. `plain`:
    nothing may follow an object in its line; else it is ignored.
    """
    return _lines(data, _OF_TABLES, _DROP, alone=plain)


def record_lines(data: str) -> Iterator[Any]:
    """The same, but read as Python's own reader does: NaN and Infinity are floats, since Python's writer writes
    them.
    """
    return _lines(data, _OF_PYTHON, "", alone=False)


def _lines(data: str, decoder: json.JSONDecoder, advice: str, alone: bool) -> Iterator[Any]:
    for number, line in enumerate(data.split("\n"), 1):
        if not line:
            continue
        value: Any
        try:
            value, end = decoder.raw_decode(line, len(line) - len(line.lstrip(" \t")))
            if not isinstance(value, dict):
                raise ValueError("it is not an object")
            if alone and line[end:].strip():
                raise ValueError("text follows the object")
        except (ValueError, RecursionError) as error:
            value = InvalidLine(number, line, error, advice)
        yield value


class _Slice:
    """The lines of a slice. `rows`: objects, in `lines` of those that are not empty; `unreadable`: as `Loaded` has the
    others.
    """

    def __init__(self, values: Iterable[Any], where: Dict[str, Any]) -> None:
        from windrow_worker.tables.places import line_places

        self.rows: List[Dict[str, Any]] = []
        self.lines: List[int] = []
        invalid: List[Tuple[int, InvalidLine]] = []
        for number, value in enumerate(values):
            if isinstance(value, InvalidLine):
                invalid.append((number, value))
            else:
                self.rows.append(value)
                self.lines.append(number)
        places = line_places(where, [(number, line.number) for number, line in invalid])
        self.unreadable = [(place, str(line)) for place, (_, line) in zip(places, invalid)]

    def refuse(self, most: int) -> None:
        """Raises ValueError if more than so many lines are no objects."""
        if len(self.unreadable) > most:
            place, message = self.unreadable[0]
            others = len(self.unreadable) - 1
            raise ValueError("%s: %s%s" % (place, message, " (%d others as well)" % others if others else ""))


def kind_of(value: Any) -> Optional[str]:
    """The kind of a JSON value: bool, int, float, text, object or array; None for null."""
    return None if value is None else _KINDS[type(value)]


_KINDS = {bool: "bool", int: "int", float: "float", str: "text", dict: "object", list: "array"}


def merged(shape: Shape, value: Any, depth: int = DEPTH_MAX) -> Shape:
    """The shape of what had a shape, and of one more value: of an object its keys, each with a shape; of an array a
    list of one, the shape of its items; None at the beginning, of what is neither, and `depth` levels below.
    """
    if not depth:
        return shape
    if type(value) is dict and not isinstance(shape, list):
        keys = {} if shape is None else shape
        for key, item in value.items():
            keys[key] = merged(keys.get(key), item, depth - 1)
        return keys
    if type(value) is list and not isinstance(shape, dict):
        inner = None if shape is None else shape[0]
        for item in value:
            inner = merged(inner, item, depth - 1)
        return [inner]
    return shape


def key_count(shape: Shape) -> int:
    """How many keys there are in a shape."""
    if isinstance(shape, dict):
        return sum(1 + key_count(inner) for inner in shape.values())
    return key_count(shape[0]) if isinstance(shape, list) else 0


def shape_to_json(shape: Shape) -> Any:
    """As it stands in a reader document, whose mappings have no order: `{"keys": [[name, shape]…]}`, `{"items": …}`."""
    if isinstance(shape, dict):
        return {"keys": [[name, shape_to_json(inner)] for name, inner in shape.items()]}
    return {"items": shape_to_json(shape[0])} if isinstance(shape, list) else None


def _shape(document: Any) -> Shape:
    if document is None:
        return None
    if "keys" in document:
        return {name: _shape(inner) for name, inner in document["keys"]}
    return [_shape(document["items"])]


def filled(value: Any, shape: Shape) -> Any:
    """The value with null for every key of its shape that it does not have: all objects of a column have the same keys,
    in the order in which they were first seen. Keys that the shape does not have come last.
    """
    if type(value) is dict and isinstance(shape, dict):
        there = {key: filled(value.get(key), inner) for key, inner in shape.items()}
        return there if len(there) == len(value) else {**there, **{k: v for k, v in value.items() if k not in there}}
    if type(value) is list and isinstance(shape, list) and shape[0] is not None:
        return [filled(item, shape[0]) for item in value]
    return value


class JsonLinesLoader:
    """Reads slices of JSON lines files by the columns and kinds that the planner pinned.

    `reader`: `columns` (name and type: a kind, or `any`; `shape` of objects and arrays, as `shape_to_json` makes it),
    `encoding`, `drop_invalid`, `path_column`;
    `mixed_types`: a value of a different kind than its column's is kept, and makes the column one of objects there (not
    with `exact_integers`: steps on rows, and their sorting, need the kinds that were pinned). `plain`: the same, and
    whole numbers in a column of floats are floats, if these are the same numbers; `as_floats`, of a column of whole
    numbers, as in `windrow_worker.tables.columns.Column`.
    """

    def __init__(self, reader: Dict[str, Any], exact_integers: bool = False) -> None:
        self._exact_integers = exact_integers
        self._columns: List[Tuple[str, str]] = [(column["name"], column["type"]) for column in reader["columns"]]
        self._shapes: Dict[str, Shape] = {
            column["name"]: _shape(column["shape"]) for column in reader["columns"] if "shape" in column
        }
        self._encoding: str = reader["encoding"]
        self._drop_invalid: bool = reader["drop_invalid"]
        self._path_column: bool = reader["path_column"]
        self._plain: bool = reader.get("plain", False)
        self.whole: Dict[str, bool] = {
            column["name"]: column.get("as_floats", False)
            for column in reader["columns"]
            if self._plain and column["type"] == "int"
        }
        """The columns that hold integers of plain files, and of each whether it holds floats."""
        self._mixed_types: bool = (self._plain or reader.get("mixed_types", False)) and not exact_integers
        seen = _seen_by_steps(reader.get("steps") or ())
        self.as_they_stand: Dict[str, str] = {name: kind for name, kind in self._columns if name in seen}
        """The columns whose values steps see as they stand in the file, and the kind of each."""
        self.times: List[str] = []

    @property
    def types_without_nulls(self) -> Dict[str, str]:
        """The types that integer and boolean columns have without nulls, as `windrow_worker.tables.frames.settled`
        takes them.
        """
        from windrow_worker.tables.frames import TYPES_WITHOUT_NULLS as KNOWN

        return {name: KNOWN[kind] for name, kind in self._columns if kind in KNOWN}

    def load(self, recipe: bytes) -> Loaded:
        """Loads one mini-batch. Raises InputChanged, InputMisread, OSError, and ValueError for invalid text or JSON."""
        from windrow_worker.tables.frames import WHOLE, WHOLE_AS_FLOATS, frame
        from windrow_worker.tables.positions import line_positions

        where = json.loads(recipe)
        data = read_slice(where, self._encoding)
        try:
            found = _Slice(table_lines(to_text(data, self._encoding, where["begin"]), self._plain), where)
        except ValueError as error:
            raise ValueError("%s cannot be read: %s." % (where["file"], error)) from error
        rows = found.rows
        if self._drop_invalid:
            found.unreadable = []
        # Steps on rows, and their sorting, need all rows.
        found.refuse(0 if self._exact_integers else INVALID_LINES_MAX)
        check_records(where, len(rows) + len(found.unreadable))
        place = "%s, record %%d after byte %d" % (printable(where["file"]).replace("%", "%%"), where["begin"])
        made: List[Tuple[str, str, List[Any]]] = []
        misfits: List[Tuple[str, int, str]] = []
        if self._path_column:
            made.append((PATH, "text", [printable(where["file"])] * len(rows)))
        for name, pinned in self._columns:
            given = [row.get(name) for row in rows]
            if name in self._shapes:
                given = [filled(value, self._shapes[name]) for value in given]
            if self._plain and pinned == "float":
                given = [_as_float(value) for value in given]
            may_be_mixed = self._mixed_types or name in self.as_they_stand
            kind = pinned if not may_be_mixed or all(map(_fits(pinned), given)) else "any"
            values, count, first = pinned_values(given, kind, wraps=not self._plain)
            if kind == "int" and name in self.whole and not self._exact_integers:
                kind = WHOLE_AS_FLOATS if self.whole[name] else WHOLE
            made.append((name, kind, values))
            if count:
                example = "%s: %.200r is not of type %s" % (place % (first + 1), rows[first][name], kind)
                if values[first] is not None:
                    example += " of 64 bits, and became %r" % values[first]
                misfits.append((name, count, example))
        misfits += _new_keys(rows, {name for name, _ in self._columns}, place)

        def places() -> Any:
            return line_positions(data, where["begin"], self._encoding)[found.lines]

        value = frame(made, len(rows), self._exact_integers)
        items = len(value) + len(found.unreadable)
        # If no line of a slice is an object, no row is left.
        return Loaded(value, items, misfits, None, places, is_void=not rows, unreadable=found.unreadable)


class RecordsLoader:
    """Reads slices of JSON lines files as they are: a list of dicts
    (docs/reference/azure-ml/parallel-job.md#mini-batches). `reader`: `encoding`."""

    def __init__(self, reader: Dict[str, Any]) -> None:
        self._encoding: str = reader["encoding"]

    def load(self, recipe: bytes) -> Loaded:
        """Loads one mini-batch. Raises InputChanged, InputMisread, OSError, and ValueError for invalid text or JSON."""
        where = json.loads(recipe)
        data = read_slice(where, self._encoding)
        try:
            found = _Slice(record_lines(to_text(data, self._encoding, where["begin"])), where)
        except ValueError as error:
            raise ValueError("%s cannot be read: %s." % (where["file"], error)) from error
        found.refuse(INVALID_LINES_MAX)
        items = len(found.rows) + len(found.unreadable)
        check_records(where, items)

        def places() -> Any:
            from windrow_worker.tables.positions import line_positions

            return line_positions(data, where["begin"], self._encoding)[found.lines]

        return Loaded(found.rows, items, positions=places, is_void=not found.rows, unreadable=found.unreadable)


def _seen_by_steps(steps: Sequence[Dict[str, Any]]) -> Set[str]:
    """The columns whose values a step converts or compares as they stand in the file: each value by its own kind, as in
    Azure ML's reader.
    """
    found: Set[str] = set()
    for step in steps:
        if step["step"] == "filter":
            found.update(_named(step["tree"]))
        if step["step"] == "convert_column_types":
            found.update(column["name"] for column in step["columns"])
    return found


def _named(tree: Any) -> Iterator[str]:
    """The columns of a filter's tree."""
    if isinstance(tree, list) and tree[:1] == ["column"]:
        yield tree[1]
    elif isinstance(tree, list):
        for part in tree:
            yield from _named(part)


def fits_int(value: int) -> bool:
    """Whether a whole number has 64 bits."""
    return INT_MIN <= value <= INT_MAX


def _as_float(value: Any) -> Any:
    """A whole number as a float, if that is the same number."""
    if type(value) is not int:
        return value
    try:
        number = float(value)
    except OverflowError:
        return value
    return number if number == value else value


def _fits(kind: str) -> Callable[[Any], bool]:
    """Returns a test whether a value is of this kind, or null."""
    if kind == "int":
        return lambda value: value is None or (type(value) is int and fits_int(value))
    return lambda value: value is None or kind in ("any", kind_of(value))


def pinned_values(values: List[Any], kind: str, wraps: bool) -> Tuple[List[Any], int, int]:
    """Replaces values that are not of the pinned kind, as (values, misfits, first misfit). `wraps`: a whole number too
    large for 64 bits wraps around, as seen; any other misfit becomes null: also a whole number in a column whose first
    number has a decimal point.
    """
    if kind == "any":
        return values, 0, -1
    misfits, first = 0, -1
    for at, value in enumerate(values):
        found = kind_of(value)
        if found is None:
            continue
        if found == kind and (kind != "int" or fits_int(value)):
            continue
        values[at] = (value - INT_MIN) % 2**64 + INT_MIN if wraps and found == "int" and kind == "int" else None
        if not misfits:
            first = at
        misfits += 1
    return values, misfits, first


def _new_keys(rows: List[Dict[str, Any]], known: Any, place: str) -> List[Tuple[str, int, str]]:
    """Keys that the sample did not have. They are left out, like the extra fields of a wide delimited record."""
    new: Dict[str, List[int]] = {}
    for at, row in enumerate(rows):
        if not row.keys() <= known:
            for key in row.keys() - known:
                new.setdefault(key, []).append(at)
    return [
        (key, len(found), "%s: the key is not among the sampled records; it was left out" % (place % (found[0] + 1)))
        for key, found in sorted(new.items())
    ]
