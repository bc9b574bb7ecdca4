"""The local files that a dataset means: looked at, and copied."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from windrow.errors import UsageError


class LocalFile(NamedTuple):
    """A file, and the folder that its dataset's path begins with."""

    root: str
    path: str


def local_files(paths: Sequence[str], steps: Sequence[Mapping[str, Any]] = ()) -> list[LocalFile]:
    """The files of local paths and patterns, by path. `steps`: `take` and `skip` are carried out. Raises UsageError for
    those that only a job carries out."""
    found: list[LocalFile] = []
    for path in paths:
        inside = os.path.join(path, "**") if os.path.isdir(path) else path
        fixed = path if os.path.isdir(path) else os.path.dirname(path)
        while glob.has_magic(fixed):
            fixed = os.path.dirname(fixed)
        files = sorted(file for file in glob.glob(inside, recursive=True) if os.path.isfile(file))
        found += [LocalFile(fixed, file) for file in files]
    for step in steps:
        for name, value in step.items():
            if name == "take":
                found = found[:value]
            elif name == "skip":
                found = found[value:]
            elif name != "extract_columns_from_partition_format":
                raise UsageError(f"{name} of a dataset is carried out by jobs only: give the dataset to a step.")
    return found


def copy_files(files: Sequence[LocalFile], target: str | None, *, overwrite: bool) -> list[str]:
    """Copy files into a folder, under their paths below their roots; return where they are. `target`: None for a new
    temporary folder. Raises UsageError for a file that is there already, but with `overwrite`."""
    folder = os.path.abspath(target) if target is not None else tempfile.mkdtemp(prefix="windrow-")
    places = [os.path.join(folder, os.path.relpath(file.path, file.root)) for file in files]
    taken = [place for place in places if os.path.lexists(place)]
    if taken and not overwrite:
        raise UsageError(
            f"download: {len(taken)} files are there already, such as {taken[0]}; overwrite=True replaces them, or "
            "name another folder."
        )
    for file, place in zip(files, places, strict=True):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        shutil.copy2(file.path, place)
    return places
