"""How a step's rows are written: the settings file in the root of its code folder, the format and the file's name.

The settings file holds keyword arguments of `DataFrame.to_csv`; values that fail for every DataFrame are refused here,
before anything runs. Reference: docs/reference/azure-ml/parallel-job.md#dataframe-settings.
`--append_row_format csv|jsonl|parquet` is Windrow's own; without it, rows are written as Azure ML writes them
(docs/reference/azure-ml/parallel-job.md#rows).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from windrow.spec.effective.job import DEFAULT_ROWS_FILE, Rows, StepOutput
from windrow.spec.effective.to_csv import TO_CSV_KNOWN, TO_CSV_REFUSED
from windrow.spec.reading.context import Context, Origin, origin_of
from windrow.spec.reading.nodes import Place, Source, source_label
from windrow.spec.reading.problems import did_you_mean

SETTINGS_FILE = "parallel_run_step.settings.json"
CSV_KEYWORDS = ("columns", "date_format", "float_format", "header", "na_rep")
"""Keyword arguments of `DataFrame.to_csv` that leave a file what RFC 4180 calls CSV."""

_SETTINGS_BYTES_MAX = 1024 * 1024
_QUOTINGS = 5
"""The largest of the constants of Python's `csv` that say which fields are quoted."""


def _is_letter(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 1


def _is_number(value: Any, most: int | None = None) -> bool:
    return type(value) is int and value >= 0 and (most is None or value <= most)


_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    # With a negative value, pandas writes no rows, and does not say so.
    "chunksize": (lambda value: value is None or _is_number(value), "a whole number from 1"),
    "escapechar": (lambda value: value is None or _is_letter(value), "one character"),
    "line_terminator": (lambda value: value is None or isinstance(value, str), "text"),
    "lineterminator": (lambda value: value is None or isinstance(value, str), "text"),
    "quotechar": (lambda value: value is None or _is_letter(value), "one character"),
    "quoting": (
        lambda value: value is None or _is_number(value, _QUOTINGS),
        "a number of Python's csv module: 0 quotes where necessary, 1 everything, 2 everything but numbers, 3 nothing",
    ),
    "sep": (_is_letter, "one character"),
}
"""Arguments that can fail, or lose rows, for every DataFrame: the check of a value, and what is allowed, in words."""


def read_rows_settings(code_folder: str, context: Context) -> Rows:
    """Reads the settings file of a code folder; the defaults if there is none."""
    path = os.path.join(code_folder, SETTINGS_FILE)
    place = _place(path)
    try:
        with open(path, "rb") as file:
            content = file.read(_SETTINGS_BYTES_MAX + 1)
    except FileNotFoundError:
        return Rows()
    except OSError as error:
        context.problems.error(place, "", f"cannot be read: {error.strerror}.")
        return Rows()
    if len(content) > _SETTINGS_BYTES_MAX:
        context.problems.error(place, "", f"is larger than {_SETTINGS_BYTES_MAX // 1024**2} MiB; is it the right file?")
        return Rows()
    try:
        settings = json.loads(content.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        context.problems.error(Place(place.source, error.lineno, error.colno), "", f"is not valid JSON: {error.msg}.")
        return Rows()
    except (ValueError, RecursionError):
        context.problems.error(place, "", "is not a JSON file in UTF-8.")
        return Rows()
    try:
        json.dumps(settings, allow_nan=False)
    except (ValueError, RecursionError):
        context.problems.error(place, "", "is not valid JSON: it contains NaN or an infinite number; remove it.")
        return Rows()
    return _rows_of(settings, place, context)


def rows_origin(code_folder: str) -> Origin:
    """Where the rows settings of a code folder come from."""
    path = os.path.join(code_folder, SETTINGS_FILE)
    return origin_of(_place(path)) if os.path.isfile(path) else Origin("default")


def _place(path: str) -> Place:
    return Place(Source("settings file", source_label(path), os.path.dirname(path)))


def _rows_of(settings: object, place: Place, context: Context) -> Rows:
    keywords: Any = settings
    key = ""
    for name in ("append_row", "pandas.DataFrame.to_csv"):
        if not isinstance(keywords, dict):
            break
        for other in keywords:
            if other != name:
                context.problems.warn(
                    place, f"{key}{other}", f"is unknown here and has no effect.{did_you_mean(other, [name])}"
                )
        keywords = keywords.get(name, {})
        key += f"{name}."
    if not isinstance(keywords, dict):
        example = '{"append_row": {"pandas.DataFrame.to_csv": {"sep": ","}}}'
        context.problems.error(place, key.rstrip("."), f"has to be a mapping, as in {example}.")
        return Rows()
    keywords = dict(keywords)
    for name in TO_CSV_REFUSED:
        value = keywords.pop(name, None)
        if value is not None and value != "infer":
            context.problems.error(place, key + name, "cannot be set: Windrow writes the file itself; remove it.")
    for name, value in keywords.items():
        if name not in TO_CSV_KNOWN:
            context.problems.error(
                place,
                key + name,
                f"is not an argument of DataFrame.to_csv.{did_you_mean(name, TO_CSV_KNOWN)} Known arguments: "
                f"{', '.join(TO_CSV_KNOWN)}.",
            )
        allowed, words = _CHECKS.get(name, (None, ""))
        if allowed is not None and not allowed(value):
            context.problems.error(place, key + name, f"is {json.dumps(value)[:80]}; it must be {words}.")
    if keywords.get("chunksize") == 0:
        del keywords["chunksize"]  # unset, to pandas before 1.2; later ones divide by it
    encoding = keywords.get("encoding")
    if encoding is not None and not _is_encoding(encoding):
        context.problems.error(
            place, key + "encoding", f"{encoding!r} is not a text encoding; use one such as utf-8 or latin-1."
        )
    # The file has one header, whatever the number of mini-batches. A list of names also renames the columns.
    header = keywords.get("header", False)
    if not isinstance(header, list):
        keywords.pop("header", None)
    return Rows(keywords, bool(header))


def _is_encoding(name: Any) -> bool:
    try:
        "".encode(name)
    except (LookupError, TypeError, ValueError):
        return False
    return True


def make_rows(
    written: Rows, header: bool | None, row_format: str | None, place: Place | None, key: str, context: Context
) -> Rows:
    """The settings for the rows of a step, from its settings file (`written`) and its arguments, which are at
    `place`. `header` and `row_format`: from the arguments; None if they do not set them.
    """
    keywords = written.dataframe_to_csv
    if row_format in (None, "text") or place is None:
        if header is None:
            return written
        return Rows(keywords if header else {k: v for k, v in keywords.items() if k != "header"}, header)
    kept = {name: value for name, value in keywords.items() if row_format == "csv" and name in CSV_KEYWORDS}
    idle = sorted(set(keywords) - set(kept))
    if idle:
        context.problems.warn(
            place,
            key,
            f"--append_row_format {row_format} decides how rows are written: {', '.join(idle)} of "
            "parallel_run_step.settings.json has no effect.",
        )
    if header is False and row_format == "csv":
        context.problems.warn(
            place,
            key,
            "--append_row_dataframe_header False has no effect: a file of format csv begins with its header.",
        )
    return Rows(kept, False, str(row_format))


def name_rows_file(
    output: StepOutput,
    file_name: str | None,
    row_format: str,
    place: Place,
    key: str,
    context: Context,
    *,
    is_placed: bool = False,
) -> StepOutput:
    """Returns the output of a step's rows with the name of its file.

    `file_name` is `--append_row_file_name`, for files in a folder: an output that is a file itself keeps its name, and
    a warning says so. `is_placed`: nobody chose the output's path, so it is the default. Notes an error if the name's
    ending contradicts the format.
    """
    if is_placed and output.type == "uri_file" and output.path is not None:
        folder = output._replace(type="uri_folder", path=output.path.rpartition("/")[0])
        named = name_rows_file(folder, file_name, row_format, place, key, context)
        return output._replace(path=f"{folder.path}/{named.file_name or DEFAULT_ROWS_FILE}")
    is_file = output.type == "uri_file" and (output.path is not None or output.file_name is not None)
    if file_name and not is_file:
        output = output._replace(file_name=file_name)
    name = output.path if is_file and output.path is not None else output.file_name
    if file_name and name and os.path.basename(name) != file_name:
        context.problems.warn(
            place,
            key,
            f'--append_row_file_name {file_name} has no effect: the output is the file "{os.path.basename(name)}"; '
            "change its path, or make the output a uri_folder.",
        )
    if row_format == "text":
        return output
    if name is None:
        stem, _ = os.path.splitext(DEFAULT_ROWS_FILE)
        return output._replace(file_name=f"{stem}.{row_format}")
    if not name.endswith(f".{row_format}"):
        context.problems.error(
            place,
            key,
            f'--append_row_format is {row_format}, but the file of rows is "{os.path.basename(name)}"; give it a name '
            f"that ends in .{row_format}, or take --append_row_format out to get lines of text.",
        )
    return output
