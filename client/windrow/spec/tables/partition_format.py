"""`extract_columns_from_partition_format` in an MLTable file.

Reference: docs/reference/azure-ml/mltable.md#partition-formats, #the-mltable-file.
"""

from __future__ import annotations

from typing import NamedTuple

from windrow_worker.tables.partition_format import FormatError, PartitionFormat
from windrow_worker.tables.partition_format import compile_format as compile_for_worker

from windrow.spec.reading.nodes import Mapping, Node, Place, Scalar, is_null, shown
from windrow.spec.reading.problems import did_you_mean
from windrow.spec.tables import linear_patterns
from windrow.spec.tables.value_checks import ValueChecks

PARTITION_FORMAT = "partition_format"


class ExtractColumns(NamedTuple):
    """`extract_columns_from_partition_format`: columns whose values are parts of the files' paths."""

    format: PartitionFormat
    place: Place


def compile_format(text: str) -> PartitionFormat:
    """Compiles a format for a client or master, where no format of a user may take for ever. Raises FormatError."""
    made = compile_for_worker(text)
    regex = made.pattern.pattern
    ways = linear_patterns.ways_of(regex)
    if ways is not None and ways < 2:
        return made
    try:
        return made._replace(pattern=linear_patterns.PathPattern(regex, made.pattern if ways == 2 else None))
    except linear_patterns.BadPattern as error:
        raise FormatError(
            f"text outside of braces is read as a regular expression, and this is not a valid one ({error}). "
            f"{linear_patterns.SYNTAX}"
        ) from None


def read_extract_columns(checks: ValueChecks, value: Node, key: str) -> ExtractColumns | None:
    """Reads the step, given as text, with `partition_format:`, or as in `{day: yyyy/MM/dd}`; None after an error."""
    text = _format_text(checks, value, key)
    if text is None:
        return None
    try:
        return ExtractColumns(compile_format(text), value.place)
    except FormatError as error:
        checks.error(value, key, f'"{text}" is not a valid partition format: {error}.')
        return None


def _format_text(checks: ValueChecks, value: Node, key: str) -> str | None:
    if isinstance(value, Scalar):
        return checks.text(value, key)
    if isinstance(value, Mapping) and len(value.entries) == 1:
        ((name, given),) = value.entries.items()
        if name == PARTITION_FORMAT:
            if not is_null(given):
                return checks.text(given, f"{key}.{name}")
        elif did_you_mean(name, (PARTITION_FORMAT,)):
            pass
        elif is_null(given):
            # {day:yyyy/MM/dd} and {store}, without quotes, are mappings for YAML.
            return f"{{{name}}}"
        elif isinstance(given, Scalar) and "yyyy" in given.text:
            return f"{{{name}:{given.text}}}"
    checks.error(
        value,
        key,
        f"takes a format such as `{PARTITION_FORMAT}: '/{{store}}/{{day:yyyy-MM-dd}}.csv'`, not {shown(value)}.",
    )
    return None


def columns_of(steps: tuple[object, ...]) -> tuple[str, ...]:
    """The columns that the steps take from paths, in order."""
    return tuple(name for step in steps if isinstance(step, ExtractColumns) for name in step.format.names)
