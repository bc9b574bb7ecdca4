"""Columns in an MLTable file: which ones a step means, and the types that they are given.

Reference: docs/reference/azure-ml/mltable.md#columns, #types, #conversion, #the-mltable-file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from windrow.spec.reading.nodes import Mapping, Node, Place, Scalar, shown
from windrow.spec.reading.nodes import Sequence as ListNode
from windrow.spec.reading.problems import did_you_mean, listed
from windrow.spec.tables import linear_patterns
from windrow.spec.tables.value_checks import ValueChecks

COLUMN_TYPES = ("int", "float", "string", "boolean", "datetime")

DATE_DIRECTIVES = "YymbBdHIMSfpz"
DIRECTIVES_MAX = 14
"""The most directives of a date format."""


class ColumnChoice(NamedTuple):
    """Columns by name, or, if `pattern` is not None, those whose name contains a match (with `invert`: no match)."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    invert: bool = False

    def chosen(self, columns: Iterable[str]) -> list[str]:
        """The chosen ones of `columns`, in their order. Unknown names are ignored."""
        if self.pattern is None:
            wanted = set(self.names)
            return [name for name in columns if name in wanted]
        names = list(columns)
        found = linear_patterns.found_in(self.pattern, names)
        return [name for name, contains in zip(names, found, strict=True) if contains != self.invert]


def read_columns(checks: ValueChecks, node: Node, key: str) -> ColumnChoice | None:
    """Reads a name, a list of names, or a mapping with a pattern; None after an error."""
    if not isinstance(node, Mapping):
        names = checks.texts(node, key)
        checks.repeats_do_nothing(node, key, names)
        return ColumnChoice(names) if names else None
    values = checks.mapping(node, key, ("pattern", "ignore_case", "invert"), "takes names or a pattern")
    if "pattern" not in values:
        checks.error(node, key, f"needs names or a `pattern`, not {shown(node)}.")
        return None
    if checks.flag(values, key, "ignore_case"):
        text = "has no effect, as in Azure ML's reader; write (?i) at the beginning of the pattern."
        checks.warn(values["ignore_case"], f"{key}.ignore_case", text)
    invert = checks.flag(values, key, "invert")
    pattern = checks.text(values["pattern"], f"{key}.pattern")
    if pattern is None:
        return None
    try:
        linear_patterns.check(pattern)
    except linear_patterns.BadPattern as error:
        text = f"{shown(values['pattern'])} is not a valid pattern: {error}. {linear_patterns.SYNTAX}."
        checks.error(values["pattern"], f"{key}.pattern", text)
        return None
    return ColumnChoice((), pattern, invert)


class ColumnType(NamedTuple):
    """A type given by the user: one of `COLUMN_TYPES`.

    For datetime: `formats`, and `date_constant`, which precedes each text. For boolean: `true_values` and
    `false_values` (the usual words if None), and `mismatch_as` (error, true or false), which says what other values
    become; error makes them null.
    """

    type: str
    formats: tuple[str, ...] = ()
    true_values: tuple[str, ...] | None = None
    false_values: tuple[str, ...] | None = None
    mismatch_as: str = "error"
    date_constant: str = ""


class Override(NamedTuple):
    """The type of some columns, which replaces the inferred one."""

    columns: tuple[str, ...]
    type: ColumnType
    place: Place


class Conversion(NamedTuple):
    """One entry of `convert_column_types`."""

    columns: ColumnChoice
    type: ColumnType
    place: Place


def read_conversions(checks: ValueChecks, node: Node, key: str) -> tuple[Conversion, ...]:
    """Reads the list of `convert_column_types`."""
    found = []
    for index, item in enumerate(_entries(checks, node, key)):
        read = _columns_and_type(checks, item, f"{key}[{index}]")
        if read is None:
            continue
        if isinstance(read[0], ListNode) and not read[0].items:
            continue  # as in Azure ML's reader, it converts none
        columns, kind = read_columns(checks, read[0], f"{key}[{index}].columns"), read[1]
        if columns is not None and kind is not None:
            found.append(Conversion(columns, kind, read[0].place))
    return tuple(found)


def read_overrides(checks: ValueChecks, node: Node, key: str) -> tuple[Override, ...]:
    """Reads the list `column_type_overrides`."""
    found = []
    for index, item in enumerate(_entries(checks, node, key)):
        read = _columns_and_type(checks, item, f"{key}[{index}]")
        if read is None:
            continue
        names, kind = checks.texts(read[0], f"{key}[{index}].columns"), read[1]
        if names and kind is not None:
            found.append(Override(names, kind, read[0].place))
    return tuple(found)


def _entries(checks: ValueChecks, node: Node, key: str) -> tuple[Node, ...]:
    if isinstance(node, ListNode):
        return node.items
    checks.error(node, key, f"must be a list of `columns` with a `column_type`, not {shown(node)}.")
    return ()


def _columns_and_type(checks: ValueChecks, node: Node, key: str) -> tuple[Node, ColumnType | None] | None:
    values = checks.mapping(node, key, ("columns", "column_type"), "needs `columns` and `column_type`")
    if set(values) != {"columns", "column_type"}:
        if values:
            checks.error(node, key, "needs both `columns` and `column_type`.")
        return None
    return values["columns"], _read_type(checks, values["column_type"], f"{key}.column_type")


def _read_type(checks: ValueChecks, node: Node, key: str) -> ColumnType | None:
    if isinstance(node, Scalar):
        return _read_type_name(checks, node, key)
    if isinstance(node, Mapping) and len(node.entries) == 1:
        ((kind, value),) = node.entries.items()
        if kind == "datetime":
            return _read_datetime(checks, value, f"{key}.datetime")
        if kind == "boolean":
            return _read_boolean(checks, value, f"{key}.boolean")
        if kind == "stream_info":
            checks.error(node, key, "stream_info columns are not supported; leave the column as text.")
            return None
    names = ", ".join(COLUMN_TYPES)
    checks.error(node, key, f"must be one of {names}, or `datetime:` or `boolean:` with settings, not {shown(node)}.")
    return None


def _read_type_name(checks: ValueChecks, node: Scalar, key: str) -> ColumnType | None:
    if node.text == "stream_info":
        checks.error(node, key, "stream_info columns are not supported; leave the column as text.")
    elif node.text == "datetime":
        checks.error(node, key, "datetime needs its formats, such as `datetime: {formats: ['%Y-%m-%d']}`.")
    elif node.text in COLUMN_TYPES:
        return ColumnType(node.text)
    else:
        hint = did_you_mean(node.text, COLUMN_TYPES)
        checks.error(node, key, f"{shown(node)} is not a column type.{hint} Allowed values: {', '.join(COLUMN_TYPES)}.")
    return None


def _read_datetime(checks: ValueChecks, node: Node, key: str) -> ColumnType | None:
    values = checks.mapping(node, key, ("formats", "date_constant"), "needs `formats`")
    formats = checks.texts(values["formats"], f"{key}.formats") if "formats" in values else ()
    if not formats:
        checks.error(node, key, "needs `formats`, such as ['%Y-%m-%d'].")
        return None
    constant = checks.text(values["date_constant"], f"{key}.date_constant") if "date_constant" in values else ""
    for text in formats:
        directives = [part[:1] for part in text.replace("%%", "").split("%")[1:]]
        unknown = sorted({f"%{letter}" for letter in directives if not letter or letter not in DATE_DIRECTIVES})
        known = ", ".join(f"%{letter}" for letter in DATE_DIRECTIVES)
        if unknown:
            checks.error(
                values["formats"], f"{key}.formats", f'{listed(unknown)} in "{text}" is not known. Supported: {known}.'
            )
        elif len(directives) > DIRECTIVES_MAX or any(directives.count(one) > 2 for one in directives):
            checks.error(
                values["formats"],
                f"{key}.formats",
                f'"{text}" has a directive more than twice, or more than {DIRECTIVES_MAX}: each text could be read in '
                "more ways than there is time for.",
            )
        elif not {"Y", "y"} & set(directives):
            checks.error(values["formats"], f"{key}.formats", f'"{text}" has no year; it needs %Y or %y.')
    return ColumnType("datetime", formats, date_constant=constant or "")


def _read_boolean(checks: ValueChecks, node: Node, key: str) -> ColumnType | None:
    known = ("true_values", "false_values", "mismatch_as")
    values = checks.settings(node, key, known)
    yes = checks.texts(values["true_values"], f"{key}.true_values") if "true_values" in values else None
    no = checks.texts(values["false_values"], f"{key}.false_values") if "false_values" in values else None
    mismatch = checks.choice(values, key, "mismatch_as", ("error", "true", "false")) or "error"
    if (yes is None) != (no is None):
        checks.error(node, key, "needs both true_values and false_values, or neither.")
        return None
    both = sorted(set(yes or ()) & set(no or ()))
    if both:
        checks.error(node, key, f"{listed(both)} cannot be both true and false.")
        return None
    return ColumnType("boolean", (), yes, no, mismatch)
