"""The local files of a dataset: listed, copied, and read as a DataFrame."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TextIO

from windrow.common.quantities import counted
from windrow.common.removal import temporary_tree
from windrow.common.trees import copy_tree, paths_named, walk
from windrow.errors import UsageError
from windrow.spec.tables.mltable import ENCODINGS


class LocalFile(NamedTuple):
    """A file, and the folder that its dataset's path begins with."""

    root: str
    path: str


def local_files(paths: Sequence[str], steps: Sequence[Mapping[str, Any]] = ()) -> list[LocalFile]:
    """The files of local paths and patterns, by path, after the `take` and `skip` of `steps`.

    Raises UsageError for steps that only a job supports.
    """
    found: list[LocalFile] = []
    for path in paths:
        inside = os.path.join(path, "**") if os.path.isdir(path) else path
        fixed = path if os.path.isdir(path) else os.path.dirname(path)
        while glob.has_magic(fixed):
            fixed = os.path.dirname(fixed)
        files = sorted(file for file in paths_named(inside) if os.path.isfile(file))
        found += [LocalFile(fixed, file) for file in files]
    for step in steps:
        for name, value in step.items():
            if name == "take":
                found = found[:value]
            elif name == "skip":
                found = found[value:]
            elif name != "extract_columns_from_partition_format":
                raise UsageError(f"{name} of a dataset works only in jobs: give the dataset to a step.")
    return found


def copy_files(files: Sequence[LocalFile], target: str | None, *, overwrite: bool) -> list[str]:
    """Copy files into a folder, under their paths below their roots; return their places. `target`: None for a new
    temporary folder. Raises UsageError for files that exist already, unless `overwrite`."""
    folder = os.path.abspath(target) if target is not None else tempfile.mkdtemp(prefix="windrow-")
    places = [os.path.join(folder, os.path.relpath(file.path, file.root)) for file in files]
    taken = [place for place in places if os.path.lexists(place)]
    if taken and not overwrite:
        raise UsageError(
            f"download: {counted(len(taken), 'file')} already in place, such as {taken[0]}; overwrite=True replaces "
            "them, or name another folder."
        )
    for file, place in zip(files, places, strict=True):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        shutil.copy2(file.path, place)
    return places


def kept_copy(path: str, folder: str) -> str:
    """Copy a file or folder into a place of its own below `folder`, unless it is there; return the copy's path."""
    digest = hashlib.sha256()
    found = [path]
    if os.path.isdir(path):
        found = sorted(os.path.join(top, name) for top, _, names in walk(path) for name in names)
    for file in found:
        with open(file, "rb") as content:
            inner = hashlib.file_digest(content, "sha256").digest()
        digest.update(os.fsencode(os.path.relpath(file, path)) + b"\0" + inner)
    place = os.path.join(folder, digest.hexdigest()[:24], os.path.basename(os.path.abspath(path)))
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if os.path.exists(place):
        return place
    with temporary_tree(".partial-", os.path.dirname(place)) as partial:
        copy = os.path.join(partial, "copy")
        (copy_tree if os.path.isdir(path) else shutil.copy2)(path, copy)
        try:
            os.rename(copy, place)
        except OSError:
            if not os.path.exists(place):  # another notebook may have been faster
                raise
    return place


def read_frame(files: Sequence[str], steps: Sequence[Mapping[str, Any]]) -> Any:
    """The rows of files. `steps`: as in an MLTable file. Raises UsageError for steps that only a job supports."""
    import pandas as pd

    read, *further = [next(iter(step.items())) for step in steps]
    undone = [name for name, _ in further if name not in ("take", "skip", "keep_columns", "drop_columns")]
    if undone:
        raise UsageError(
            "to_pandas_dataframe supports the steps take, skip, keep_columns and drop_columns; this table has others: "
            f"{', '.join(undone)}. Read it in a step of a pipeline."
        )
    name, options = read[0], read[1] or {}
    frames: list[Any] = []
    for file in files:
        if name == "read_parquet":
            frame = pd.read_parquet(file)
        elif name == "read_json_lines":
            frame = pd.DataFrame(_json_lines(file, options))
        else:
            frame = _delimited(file, options, frames[0].columns if frames else None)
        frames.append(frame)
    if options.get("include_path_column"):
        for file, frame in zip(files, frames, strict=True):
            frame.insert(0, "Path", file)
    rows = pd.concat(frames, ignore_index=True)
    for step, value in further:
        columns = [value] if isinstance(value, str) else value
        if step == "take":
            rows = rows.head(value)
        elif step == "skip":
            rows = rows.iloc[value:].reset_index(drop=True)
        else:
            rows = rows[columns] if step == "keep_columns" else rows.drop(columns=columns)
    return rows


def _delimited(file: str, options: Mapping[str, Any], first: Any) -> Any:
    """Read a delimited file. `first`: the columns of the first file; None while reading that file."""
    import pandas as pd

    header = options.get("header")
    bare = header == "no_header" or (header == "from_first_file" and first is not None)
    text = {} if options.get("infer_column_types", True) else {"dtype": str, "keep_default_na": False}
    if text and not options.get("empty_as_string"):
        text["na_values"] = [""]
    with _opened(file, options) as lines:
        frame = pd.read_csv(lines, sep=options.get("delimiter", ","), header=None if bare else 0, **text)
    if header == "no_header":
        frame.columns = [f"Column{number}" for number in range(1, len(frame.columns) + 1)]
    elif bare:
        # As jobs do: further columns of a file are named by their numbers.
        names = [*first][: len(frame.columns)]
        frame.columns = [*names, *(f"Column{n}" for n in range(len(names) + 1, len(frame.columns) + 1))]
    elif header == "all_files_same_headers" and first is not None and len(first) == len(frame.columns):
        frame.columns = first
    return frame


def _json_lines(file: str, options: Mapping[str, Any]) -> list[Any]:
    """Read a file of JSON lines. Raises UsageError for a line that is not a JSON object, unless such lines are
    dropped.
    """
    rows = []
    with _opened(file, options) as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line) if line.strip() else None
            except ValueError:
                row = line
            if isinstance(row, dict):
                rows.append(row)
            elif row is not None and options.get("invalid_lines") != "drop":
                raise UsageError(
                    f"{file}: line {number} is not a JSON object; invalid_lines='drop' leaves such lines out."
                )
    return rows


@contextmanager
def _opened(file: str, options: Mapping[str, Any]) -> Iterator[TextIO]:
    """Open a file as text, without the byte order mark. Encodings mean the same as in a job: `latin1` is
    windows-1252, for instance. Raises UsageError for an encoding that a job does not read.
    """
    written = str(options.get("encoding") or "utf8")
    encoding = ENCODINGS.get(written)
    if encoding is None:
        raise UsageError(f"encoding={written!r} is not supported; it must be one of {', '.join(ENCODINGS)}.")
    with open(file, encoding=encoding, newline="") as text:
        if text.read(1) != "\ufeff":
            text.seek(0)
        yield text
