"""Steps of an MLTable file that are legal, checked, and not carried out yet: refused by name, so that no result is
silently wrong.

Source: reference/parallel-job.md, section 4.4; reference/mltable.md, sections 6 and 7.
"""

from __future__ import annotations

from windrow.spec.mltable_types import read_overrides
from windrow.spec.mltable_values import ValueChecks
from windrow.spec.nodes import Mapping, Node, Sequence, is_null, shown
from windrow.spec.problems import did_you_mean

STEPS_NOT_CARRIED_OUT = (
    "read_delta_lake",
    "extract_columns_from_partition_format",
    "take",
    "skip",
    "take_random_sample",
    "sample",
    "filter",
    "keep_columns",
    "drop_columns",
    "convert_column_types",
    "select_partitions",
)

_ADVICE = {
    "read_delta_lake": "Export the table as Parquet files and use read_parquet.",
    "filter": "Drop the rows in `run()` instead.",
    "keep_columns": "Select the columns in `run()` instead.",
    "drop_columns": "Drop the columns in `run()` instead.",
    "convert_column_types": "Use `column_type_overrides` of read_delimited, or convert in `run()`.",
}


def check_step_not_carried_out(name: str, value: Node | None, item: Node, key: str, checks: ValueChecks) -> None:
    """Note what is wrong with the settings of a step; else that it is not carried out yet."""
    before = checks.error_count
    if value is None or is_null(value):
        if name != "read_delta_lake":
            checks.error(item, key, "has no value.")
    elif name in ("take", "skip"):
        checks.whole(value, key, 0, "a number of rows")
    elif name == "filter":
        checks.text(value, key)
    elif name in ("keep_columns", "drop_columns"):
        _check_columns(checks, value, key)
    elif name == "convert_column_types":
        read_overrides(checks, value, key)
    elif name == "take_random_sample":
        _check_sample(checks, value, key)
    elif name == "select_partitions":
        for node in value.items if isinstance(value, Sequence) else (value,):
            checks.whole(node, key, 0, "a list of numbers of partitions, each")
    elif name == "sample":
        values = checks.settings(value, key, ("sampler", "sampler_arguments"))
        checks.choice(values, key, "sampler", ("random_percent",))
        if "sampler_arguments" in values:
            _check_sample(checks, values["sampler_arguments"], f"{key}.sampler_arguments")
    elif name == "extract_columns_from_partition_format":
        values = checks.settings(value, key, ("partition_format",))
        if "partition_format" in values:
            checks.text(values["partition_format"], f"{key}.partition_format")
    elif name == "read_delta_lake":
        known = ("timestamp_as_of", "version_as_of", "include_path_column", "path_column")
        checks.settings(value, key, known)
    if checks.error_count == before:
        checks.error(
            item, key, f"{name} is not carried out yet. {_ADVICE.get(name, 'Take it out of the MLTable file.')}"
        )


def _check_columns(checks: ValueChecks, value: Node, key: str) -> None:
    if isinstance(value, Mapping):
        values = checks.mapping(value, key, ("pattern", "ignore_case", "invert"), "takes names or a pattern")
        if "pattern" not in values:
            checks.error(value, key, f"needs names or a `pattern`, not {shown(value)}.")
        checks.flag(values, key, "ignore_case")
        checks.flag(values, key, "invert")
    else:
        checks.no_repeats(value, key, checks.texts(value, key))


def _check_sample(checks: ValueChecks, value: Node, key: str) -> None:
    values = checks.settings(value, key, ("probability", "probability_lower_bound", "seed"))
    for name in ("probability", "probability_lower_bound"):
        if name in values:
            checks.number(values[name], f"{key}.{name}", 0, 1)
    if "seed" in values:
        checks.whole(values["seed"], f"{key}.seed", 0, "a whole number")


def unknown_step(name: str, reads: tuple[str, ...]) -> str:
    """What to say about a step that does not exist."""
    known = (*reads, *STEPS_NOT_CARRIED_OUT)
    return f'there is no step "{name}".{did_you_mean(name, known)} Known are {", ".join(known)}.'
