"""The MLTable file: where the data is and how it is read and typed; every error names its line.

The client checks the file before a job is submitted; the planner reads the input by it. Features that are legal but not
supported are refused by name. Reference: docs/reference/azure-ml/mltable.md#the-mltable-file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from windrow.spec.naming.locations import Location, datastore_path, host_of_file_url, why_unreachable
from windrow.spec.reading.nodes import Mapping, Node, Place, Scalar, Sequence, is_null, shown
from windrow.spec.reading.problems import Problems, listed
from windrow.spec.reading.yaml_files import read_yaml
from windrow.spec.tables.columns import Override, read_overrides
from windrow.spec.tables.delta import DELTA_KEYS, ReadDelta, read_delta
from windrow.spec.tables.steps import STEPS, Step, check_file_steps, check_partition_steps, read_step, unknown_step
from windrow.spec.tables.value_checks import ValueChecks
from windrow.storage.urls import BadUrl, is_remote, parse_url

FILE_NAME = "MLTable"
PLAIN_KEY, PLAIN_VALUE = "windrow", "plain_files"
"""In `metadata`: the files are read as they would be without an MLTable file. `windrow run` writes it where a command
line names plain files that need one."""
V1_VALUE = "version_1"
"""In its place: only the words true and false make a column boolean, as in Azure ML's version 1, where a column of 0
and 1 has numbers. `windrow.ml.v1` writes it."""

ENCODINGS = {
    "utf8": "utf-8",
    "utf-8": "utf-8",
    "ascii": "utf-8",
    "utf8bom": "utf-8",
    "utf8 bom": "utf-8",
    "utf-8 bom": "utf-8",
    "iso88591": "windows-1252",
    "iso-8859-1": "windows-1252",
    "latin1": "windows-1252",
    "latin-1": "windows-1252",
    "windows1252": "windows-1252",
    "windows-1252": "windows-1252",
    "utf16": "utf-16-le",
    "utf-16": "utf-16-le",
    "utf32": "utf-32-le",
}
"""Accepted spellings and what they mean: latin1 is read as windows-1252, ascii as UTF-8.

Reference: docs/reference/azure-ml/mltable.md#encodings.
"""

HEADERS = ("all_files_same_headers", "from_first_file", "all_files_different_headers", "no_header")


class PathEntry(NamedTuple):
    """One entry of `paths`. `kind`: file, folder or pattern. `text`: as written, relative to the MLTable file's
    folder; or a canonical address in a store or datastore.
    """

    kind: str
    text: str
    place: Place


class ReadDelimited(NamedTuple):
    """`read_delimited`. `encoding` is a value of `ENCODINGS`; `sample_rows` rows decide the types (None: as many as the
    reader finds right), unless `infer` is False."""

    delimiter: str = ","
    header: str = "all_files_same_headers"
    encoding: str = "utf-8"
    support_multi_line: bool = False
    empty_as_string: bool = False
    include_path_column: bool = False
    infer: bool = True
    sample_rows: int | None = None
    overrides: tuple[Override, ...] = ()
    partition_size: int | None = None


class ReadJsonLines(NamedTuple):
    """`read_json_lines`. `drop_invalid`: lines that are not JSON objects are left out instead of failing the read."""

    encoding: str = "utf-8"
    drop_invalid: bool = False
    include_path_column: bool = False
    partition_size: int | None = None


class ReadParquet(NamedTuple):
    """`read_parquet`."""

    include_path_column: bool = False


Read: TypeAlias = ReadDelimited | ReadJsonLines | ReadParquet | ReadDelta


class MLTable(NamedTuple):
    """A checked MLTable file.

    `read` is None for a list of files. The steps `before` it (all steps, if there is no `read`) apply to the list of
    files, those `after` it to rows. `plain`: types and headers are those of plain files. `only_words`: only the words
    true and false make a column boolean.
    """

    file: str
    paths: tuple[PathEntry, ...]
    read: Read | None
    before: tuple[Step, ...] = ()
    after: tuple[Step, ...] = ()
    plain: bool = False
    only_words: bool = False


def read_mltable(file: str | os.PathLike[str], problems: Problems, content: bytes | None = None) -> MLTable | None:
    """Read and check an MLTable file; None if it has errors, all of which are then in `problems`.

    `content`: the file's bytes, if it is in a store.
    """
    before = len(problems.errors)
    node = read_yaml(file, "mltable", problems, content)
    if node is None:
        return None
    checks = ValueChecks(problems)
    values = checks.mapping(node, "", _KEYS, "an MLTable file holds a mapping with `paths` and `transformations`")
    kind = values.get("type")
    if kind is not None and (not isinstance(kind, Scalar) or kind.text != FILE_NAME.lower()):
        checks.error(kind, "type", f"must be mltable, not {shown(kind)}.")
    _check_traits(checks, values)
    read_like = _read_like(checks, values.get("metadata"))
    paths: tuple[PathEntry, ...] = ()
    if "query_source" in values:
        both = " (and are not allowed beside `paths`)" if "paths" in values else ""
        text = f"databases are not supported{both}; export the data to files and name them in `paths`."
        checks.error(values["query_source"], "query_source", text)
    else:
        paths = _read_paths(checks, node, values.get("paths"))
    read, steps_before, steps_after = _read_transformations(checks, values.get("transformations"))
    table = MLTable(
        os.fspath(file), paths, read, steps_before, steps_after, read_like == PLAIN_VALUE, read_like == V1_VALUE
    )
    return table if len(problems.errors) == before else None


def _read_like(checks: ValueChecks, node: Node | None) -> str:
    """What `metadata`, which is free otherwise, says of how the files are read; "" for nothing."""
    if node is None:
        return ""
    if not isinstance(node, Mapping):
        checks.error(node, "metadata", f"must be a mapping, not {shown(node)}.")
        return ""
    value = node.entries.get(PLAIN_KEY)
    if value is None:
        return ""
    if not isinstance(value, Scalar) or value.text not in (PLAIN_VALUE, V1_VALUE):
        checks.error(value, f"metadata.{PLAIN_KEY}", f"must be {PLAIN_VALUE} or {V1_VALUE}, not {shown(value)}.")
        return ""
    return value.text


def _check_traits(checks: ValueChecks, values: dict[str, Node]) -> None:
    """Checks `traits`, which do not affect the rows."""
    traits = checks.settings(values.get("traits"), "traits", ("index_columns", "timestamp_column"))
    if "index_columns" in traits:
        names = checks.texts(traits["index_columns"], "traits.index_columns")
        checks.no_repeats(traits["index_columns"], "traits.index_columns", names)
    if "timestamp_column" in traits:
        checks.text(traits["timestamp_column"], "traits.timestamp_column")


_KEYS = ("$schema", "type", "paths", "transformations", "metadata", "traits", "query_source")


def _read_paths(checks: ValueChecks, root: Node, node: Node | None) -> tuple[PathEntry, ...]:
    if node is None:
        checks.error(root, "paths", "is missing; list the data, such as `- file: ./data.csv`.")
        return ()
    if not isinstance(node, Sequence):
        text = f"must be a list of `- file:`, `- folder:` or `- pattern:` entries, not {shown(node)}."
        checks.error(node, "paths", text)
        return ()
    entries = (_read_path(checks, item, f"paths[{index}]") for index, item in enumerate(node.items))
    return tuple(entry for entry in entries if entry is not None)


def _read_path(checks: ValueChecks, node: Node, key: str) -> PathEntry | None:
    known = ("file", "folder", "pattern")
    values = checks.mapping(node, key, known, "each entry is `file:`, `folder:` or `pattern:` with a path")
    if len(values) != 1:
        if isinstance(node, Mapping) and (values or not node.entries or set(node.entries) <= set(known)):
            checks.error(node, key, f"needs exactly one of file, folder and pattern with a path, not {listed(values)}.")
        return None
    ((kind, value),) = values.items()
    key = f"{key}.{kind}"
    text = checks.text(value, key)
    if text is None:
        return None
    if text[:7].lower() == "file://":
        if host_of_file_url(text):
            checks.error(value, key, why_unreachable(Location("other_host", text), text))
            return None
        text = "/" + text[7:].partition("/")[2]
    if is_remote(text) or text.startswith("azureml://"):
        return _path_elsewhere(checks, value, kind, text, key)
    scheme, colon, _ = text.partition(":")
    if colon and scheme.lower() in _UNREACHABLE:
        advice = "Copy the data to a local or shared folder, or to s3://, gs:// or abfss://."
        checks.error(value, key, f"{shown(value)} is remote, and cannot be reached. {advice}")
    elif not text or "\0" in text:
        checks.error(value, key, f"{shown(value)} is not a path.")
    elif kind != "pattern" and any(char in text for char in "*?"):
        checks.error(value, key, f"{shown(value)} contains a wildcard; write `pattern:` instead of `{kind}:`.")
    else:
        return PathEntry(kind, text, value.place)
    return None


_UNREACHABLE = ("azureml", "http", "https", "wasb", "wasbs", "abfs", "abfss", "adl", "s3", "gs", "hdfs", "dbfs", "ftp")


def _path_elsewhere(checks: ValueChecks, value: Scalar | Node, kind: str, text: str, key: str) -> PathEntry | None:
    """Reads an entry that is in a store or a datastore."""
    if text.startswith("azureml://"):
        found = datastore_path(text)
        if found is None:
            checks.error(
                value,
                key,
                f"{shown(value)} is not the address of a datastore; write azureml://datastores/<name>/paths/<path>.",
            )
            return None
        text = str(found)
    else:
        try:
            url = parse_url(text)
        except BadUrl as error:
            checks.error(value, key, f"is wrong: {error}.")
            return None
        if url.is_web and kind != "file":
            checks.error(value, key, f"{shown(value)} is on a web server, which cannot be listed; name each `file:`.")
            return None
        text = str(url)
    if kind != "pattern" and any(char in text for char in "*?"):
        checks.error(value, key, f"{shown(value)} contains a wildcard; write `pattern:` instead of `{kind}:`.")
        return None
    return PathEntry(kind, text, value.place)


def _read_transformations(
    checks: ValueChecks, node: Node | None
) -> tuple[Read | None, tuple[Step, ...], tuple[Step, ...]]:
    """Returns the step that reads, the steps before it, and the steps after it."""
    if node is None:
        return None, (), ()
    if not isinstance(node, Sequence):
        checks.error(
            node, "transformations", f"must be a list of steps such as `- read_delimited:`, not {shown(node)}."
        )
        return None, (), ()
    read: Read | None = None
    before, after = list[tuple[str, Step]](), list[tuple[str, Step]]()
    for index, item in enumerate(node.items):
        key = f"transformations[{index}]"
        name, value = _step(checks, item, key)
        if name in _READS:
            if read is not None:
                checks.error(item, key, f"{name}: the data is read by an earlier step already; keep one read_* step.")
            read = _READS[name](checks, value, f"{key}.{name}")
        elif name in STEPS:
            step = read_step(name, value, item, f"{key}.{name}", checks)
            if step is not None and read is None:
                before.append((f"{key}.{name}", step))
            elif step is not None:
                after.append((f"{key}.{name}", step))
        elif name:
            checks.error(item, key, unknown_step(name, tuple(_READS)))
    check_file_steps(checks, before)
    check_partition_steps(checks, after)
    return read, tuple(step for _, step in before), tuple(step for _, step in after)


def _step(checks: ValueChecks, item: Node, key: str) -> tuple[str, Node | None]:
    if isinstance(item, Scalar) and isinstance(item.value, str):
        return item.text, None
    if isinstance(item, Mapping) and len(item.entries) == 1:
        return next(iter(item.entries.items()))
    checks.error(item, key, f"each step is one name with its settings, such as `- read_delimited:`, not {shown(item)}.")
    return "", None


def _read_delimited(checks: ValueChecks, node: Node | None, key: str) -> ReadDelimited:
    values = checks.settings(node, key, _DELIMITED_KEYS)
    infer, sample_rows, overrides = _infer(checks, values.get("infer_column_types"), f"{key}.infer_column_types")
    _check_path_column(checks, values, key)
    return ReadDelimited(
        _delimiter(checks, values.get("delimiter"), f"{key}.delimiter"),
        checks.choice(values, key, "header", HEADERS) or HEADERS[0],
        ENCODINGS[checks.choice(values, key, "encoding", tuple(ENCODINGS)) or "utf8"],
        checks.flag(values, key, "support_multi_line"),
        checks.flag(values, key, "empty_as_string"),
        checks.flag(values, key, "include_path_column"),
        infer,
        sample_rows,
        overrides,
        _partition_size(checks, values, key),
    )


_DELIMITED_KEYS = (
    "delimiter",
    "header",
    "encoding",
    "support_multi_line",
    "empty_as_string",
    "include_path_column",
    "infer_column_types",
    "path_column",
    "partition_size",
)


def _read_json_lines(checks: ValueChecks, node: Node | None, key: str) -> ReadJsonLines:
    known = ("encoding", "invalid_lines", "include_path_column", "path_column", "partition_size")
    values = checks.settings(node, key, known)
    _check_path_column(checks, values, key)
    return ReadJsonLines(
        ENCODINGS[checks.choice(values, key, "encoding", tuple(ENCODINGS)) or "utf8"],
        checks.choice(values, key, "invalid_lines", ("error", "drop")) == "drop",
        checks.flag(values, key, "include_path_column"),
        _partition_size(checks, values, key),
    )


def _read_parquet(checks: ValueChecks, node: Node | None, key: str) -> ReadParquet:
    values = checks.settings(node, key, ("include_path_column", "path_column"))
    _check_path_column(checks, values, key)
    return ReadParquet(checks.flag(values, key, "include_path_column"))


def _read_delta_lake(checks: ValueChecks, node: Node | None, key: str) -> ReadDelta:
    values = checks.settings(node, key, DELTA_KEYS)
    _check_path_column(checks, values, key)
    return read_delta(checks, values, key)


_READS: dict[str, Callable[[ValueChecks, Node | None, str], Read]] = {
    "read_delimited": _read_delimited,
    "read_json_lines": _read_json_lines,
    "read_parquet": _read_parquet,
    "read_delta_lake": _read_delta_lake,
}


def _delimiter(checks: ValueChecks, node: Node | None, key: str) -> str:
    text = "," if node is None else checks.text(node, key)
    if node is None or text is None:
        return ","
    if not 1 <= len(text) <= 2 or text[0] in '"\r\n\0':
        checks.error(node, key, f"must be one character other than a quote or a line end, not {shown(node)}.")
        return ","
    if len(text) > 1:
        tab = ' For a tab, write "\\t" in double quotes.' if text == "\\t" else ""
        checks.warn(node, key, f"only the first character of {shown(node)} counts.{tab}")
    return text[0]


def _infer(checks: ValueChecks, node: Node | None, key: str) -> tuple[bool, int | None, tuple[Override, ...]]:
    if node is None or is_null(node):
        return True, None, ()
    if isinstance(node, Scalar):
        return checks.boolean(node, key), None, ()
    values = checks.mapping(node, key, ("sample_size", "column_type_overrides"), "must be true, false, or a mapping")
    rows, overrides = None, values.get("column_type_overrides")
    if "sample_size" in values:
        rows = checks.whole(values["sample_size"], f"{key}.sample_size", 1, "a number of rows")
    found = () if overrides is None else read_overrides(checks, overrides, f"{key}.column_type_overrides")
    return True, rows, found


def _partition_size(checks: ValueChecks, values: dict[str, Node], key: str) -> int | None:
    node = values.get("partition_size")
    return None if node is None else checks.whole(node, f"{key}.partition_size", 1, "a number of bytes")


def _check_path_column(checks: ValueChecks, values: dict[str, Node], key: str) -> None:
    node = values.get("path_column")
    if node is not None and checks.text(node, f"{key}.path_column") != "Path":
        text = f"must be Path, the column that holds the files, not {shown(node)}; it does not rename the path column."
        checks.error(node, f"{key}.path_column", text)
