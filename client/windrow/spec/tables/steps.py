"""The steps of an MLTable file other than `read_*`: what each does, and how it is read and checked.

Reference: docs/reference/azure-ml/mltable.md#the-mltable-file, #paths, #partitions, #columns, #samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from windrow.spec.reading.nodes import Node, Place, Sequence, is_null, shown
from windrow.spec.reading.problems import did_you_mean
from windrow.spec.tables.columns import ColumnChoice, Conversion, read_columns, read_conversions
from windrow.spec.tables.filter_expression import Expression, FilterSyntaxError, parse_filter
from windrow.spec.tables.partition_format import ExtractColumns, read_extract_columns
from windrow.spec.tables.value_checks import ValueChecks

SEED_DEFAULT = 0
"""The seed of a sample without one, so that every run takes the same rows.

Reference: docs/reference/azure-ml/mltable.md#samples.
"""


PATH = "Path"
"""The only column of a list of files: the absolute path, as text."""


class Take(NamedTuple):
    """`take`: the first `number` rows (or files), no more."""

    number: int
    place: Place


class Skip(NamedTuple):
    """`skip`: all but the first `number` rows (or files)."""

    number: int
    place: Place


class Sample(NamedTuple):
    """`take_random_sample` and `sample`: each row (or file) gets a random number from 0 to 1; those with at least
    `lower` and less than `upper` are taken.
    """

    lower: float
    upper: float
    seed: int
    place: Place


class Filter(NamedTuple):
    """`filter`: the rows (or files) for which the expression is true."""

    expression: Expression
    place: Place


class KeepColumns(NamedTuple):
    """`keep_columns`: only these columns, in the order of the table."""

    columns: ColumnChoice
    place: Place


class DropColumns(NamedTuple):
    """`drop_columns`: all columns but these."""

    columns: ColumnChoice
    place: Place


class ConvertColumnTypes(NamedTuple):
    """`convert_column_types`: of several conversions of a column the last one counts."""

    conversions: tuple[Conversion, ...]
    place: Place


class SelectPartitions(NamedTuple):
    """`select_partitions`: only these, ascending, numbered from 0 as the vendor's reader cuts the data."""

    numbers: tuple[int, ...]
    place: Place


Step: TypeAlias = (
    Take | Skip | Sample | Filter | KeepColumns | DropColumns | ConvertColumnTypes | SelectPartitions | ExtractColumns
)
"""A table step: an entry of `transformations`. Not a step of a job (`windrow.spec.job`)."""


def read_step(name: str, value: Node | None, item: Node, key: str, checks: ValueChecks) -> Step | None:
    """Reads a step, one of `STEPS`; None after an error."""
    if value is None or is_null(value):
        checks.error(item, key, "has no value.")
        return None
    return _STEPS[name](checks, value, key)


def unknown_step(name: str, others: tuple[str, ...]) -> str:
    """The message for an unknown step; `others`: steps that exist besides those of this module."""
    known = (*others, *STEPS)
    return f'there is no step "{name}".{did_you_mean(name, known)} Known steps: {", ".join(known)}.'


def _take(checks: ValueChecks, value: Node, key: str) -> Take | None:
    count = checks.whole(value, key, 0, "a number of rows")
    return None if count is None else Take(count, value.place)


def _skip(checks: ValueChecks, value: Node, key: str) -> Skip | None:
    count = checks.whole(value, key, 0, "a number of rows")
    return None if count is None else Skip(count, value.place)


def _take_random_sample(checks: ValueChecks, value: Node, key: str) -> Sample | None:
    return _sample_of(checks, value, key, ("probability", "seed"))


def _sample(checks: ValueChecks, value: Node, key: str) -> Sample | None:
    values = checks.mapping(value, key, ("sampler", "sampler_arguments"), "takes a mapping of settings")
    if not values:
        return None
    checks.choice(values, key, "sampler", ("random_percent", "randomPercent"))
    for name in ("sampler", "sampler_arguments"):
        if name not in values:
            checks.error(value, key, f"needs `{name}`.")
    if "sampler_arguments" not in values:
        return None
    known = ("probability", "probability_lower_bound", "seed")
    return _sample_of(checks, values["sampler_arguments"], f"{key}.sampler_arguments", known)


def _sample_of(checks: ValueChecks, value: Node, key: str, known: tuple[str, ...]) -> Sample | None:
    values = checks.mapping(value, key, known, "takes a mapping of settings")
    if values and "probability" not in values:
        checks.error(value, key, "needs a `probability` from 0 to 1.")
    bounds = {
        name: checks.number(values[name], f"{key}.{name}", 0, 1)
        for name in ("probability", "probability_lower_bound")
        if name in values
    }
    seed: int | None = SEED_DEFAULT
    if "seed" in values:
        seed = checks.whole(values["seed"], f"{key}.seed", 0, "a whole number")
    elif values:
        text = f"has no seed; {SEED_DEFAULT} is taken, so that every run takes the same sample."
        checks.warn(value, key, text)
    lower, upper = bounds.get("probability_lower_bound", 0.0), bounds.get("probability")
    return None if lower is None or upper is None or seed is None else Sample(lower, upper, seed, value.place)


def _filter(checks: ValueChecks, value: Node, key: str) -> Filter | None:
    text = checks.text(value, key)
    if text is None:
        return None
    try:
        return Filter(parse_filter(text), value.place)
    except FilterSyntaxError as error:
        checks.error(value, key, f"{shown(value)} cannot be understood: {error}")
        return None


def _keep_columns(checks: ValueChecks, value: Node, key: str) -> KeepColumns | None:
    columns = read_columns(checks, value, key)
    return None if columns is None else KeepColumns(columns, value.place)


def _drop_columns(checks: ValueChecks, value: Node, key: str) -> DropColumns | None:
    if isinstance(value, Sequence) and not value.items:
        return None  # as in Azure ML's reader, it drops none
    columns = read_columns(checks, value, key)
    return None if columns is None else DropColumns(columns, value.place)


def _convert_column_types(checks: ValueChecks, value: Node, key: str) -> ConvertColumnTypes:
    return ConvertColumnTypes(read_conversions(checks, value, key), value.place)


def _select_partitions(checks: ValueChecks, value: Node, key: str) -> SelectPartitions:
    nodes = value.items if isinstance(value, Sequence) else (value,)
    numbers = (checks.whole(node, key, 0, "a list of numbers of partitions, each") for node in nodes)
    return SelectPartitions(tuple(sorted({number for number in numbers if number is not None})), value.place)


_STEPS: dict[str, Callable[[ValueChecks, Node, str], Step | None]] = {
    "take": _take,
    "skip": _skip,
    "take_random_sample": _take_random_sample,
    "sample": _sample,
    "filter": _filter,
    "keep_columns": _keep_columns,
    "drop_columns": _drop_columns,
    "convert_column_types": _convert_column_types,
    "select_partitions": _select_partitions,
    "extract_columns_from_partition_format": read_extract_columns,
}
STEPS = tuple(_STEPS)


def check_file_steps(checks: ValueChecks, steps: Iterable[tuple[str, Step]]) -> None:
    """Notes errors for steps that do not make sense on a list of files."""
    extracted: list[str] = []
    for key, step in steps:
        if isinstance(step, ExtractColumns):
            extracted += step.format.names
        else:
            _check_file_step(checks, key, step, extracted)


def _check_file_step(checks: ValueChecks, key: str, step: Step, extracted: list[str]) -> None:
    only = f'a list of files has only the column "{PATH}"'
    match step:
        case Filter():
            for name in step.expression.columns:
                if name != PATH and name not in extracted:
                    more = f", and from its paths {', '.join(extracted)}" if extracted else ""
                    checks.error(step.place, key, f'names the column "{name}", but {only}{more}.')
        case KeepColumns() | DropColumns():
            if bool(step.columns.chosen([PATH])) == isinstance(step, DropColumns):
                checks.error(step.place, key, f"leaves no column: {only}.")
        case ConvertColumnTypes():
            for conversion in step.conversions:
                if conversion.columns.chosen([PATH]) and conversion.type.type != "string":
                    text = f'the column "{PATH}" of a list of files cannot become {conversion.type.type}.'
                    checks.error(conversion.place, key, text)
        case SelectPartitions():
            if step.numbers and step.numbers[-1] > 0:
                text = f"names partition {step.numbers[-1]}, but a list of files is one partition, 0."
                checks.error(step.place, key, text)


def check_partition_steps(checks: ValueChecks, steps: Iterable[tuple[str, Step]]) -> None:
    """Notes errors of `select_partitions` that can be seen without the data."""
    counted, left = "", None
    for key, step in steps:
        if isinstance(step, (Take, Skip)):
            counted = "take" if isinstance(step, Take) else "skip"
        elif isinstance(step, SelectPartitions):
            if counted:
                checks.error(
                    step.place, key, f"comes after {counted}, which is not supported; put it before {counted}."
                )
            if left is not None and step.numbers and step.numbers[-1] >= left:
                text = f"names partition {step.numbers[-1]}, but an earlier select_partitions leaves {left}, from 0 on."
                checks.error(step.place, key, text)
            left = len(step.numbers)
