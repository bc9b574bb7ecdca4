"""Inputs as typed: what each one is, and which of them a step divides together."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby, islice
from typing import NamedTuple

from windrow.common.state_mark import STATE_MARK
from windrow.common.trees import paths_named
from windrow.errors import UsageError
from windrow.spec.naming.locations import absolute, parse_location, why_missing, why_unreachable
from windrow.spec.one_line.request import KINDS
from windrow.spec.one_line.text_tables import has_rows
from windrow.spec.tables.mltable import FILE_NAME, ReadDelimited, ReadJsonLines, ReadParquet
from windrow.spec.tables.table_files import PLAIN_FORMATS, is_compressed, plain_read

FILES, DEFINED, PLAIN, ASSET = "files", "defined", "plain", "asset"
"""What an input holds, beside the formats of `READS`: a list of files; a folder with an MLTable file; a folder of table
files; a registered asset, which says itself what it is."""

READS = {"csv": "read_delimited", "tsv": "read_delimited", "parquet": "read_parquet", "jsonl": "read_json_lines"}
"""By format: the step of an MLTable file that reads it."""
DELIMITERS = {"csv": ",", "tsv": "\t"}
"""Of delimited formats."""

_DELIMITERS_BY_SUFFIX = {f".{name}": delimiter for name, delimiter in DELIMITERS.items()}

OWN_INPUTS_MAX = 8
"""Up to this many folders are separate inputs; more of them are one input."""

FILES_LOOKED_AT = 1_000
"""So many files of a folder show what it holds."""

_MAGIC = "*?["
_NO_TABLE_BY_ITSELF = (".json",)
"""Suffixes that lists of files have as well: JSON documents, one to a file. `--as table` reads JSON lines."""


class Given(NamedTuple):
    """An input. `entry`: folder, file or pattern, as an MLTable file calls it. `place`: absolute, or an address.

    `holds`: `FILES`, `DEFINED`, `PLAIN`, `ASSET`, or a key of `READS`. `matches`: the files of a pattern on this
    machine.
    """

    typed: str
    entry: str
    place: str
    holds: str
    is_address: bool = False
    matches: tuple[str, ...] = ()

    @property
    def is_list(self) -> bool:
        """Whether it seems to be a list of files."""
        return self.holds == FILES


def read_inputs(typed: Sequence[str], kind: str, folder: str) -> list[Given]:
    """What each input is. `kind`: one of `KINDS`. `folder`: where relative paths begin.

    Raises UsageError with everything that is wrong.
    """
    if kind not in KINDS:
        raise UsageError(f"--as {kind}: it must be one of {', '.join(KINDS)}.")
    if not typed:
        raise UsageError(
            "No input is given. Give one or more after the script: folders, files, patterns in quotes "
            "('photos/*.jpg'), tables, or addresses in a store."
        )
    found: list[Given] = []
    wrong: list[str] = []
    for text in typed:
        try:
            found += _read(text, kind, folder)
        except UsageError as error:
            wrong.append(str(error))
    if wrong:
        raise UsageError("\n".join(wrong))
    lists = [given.typed for given in found if given.is_list]
    tables = [given.typed for given in found if not given.is_list and given.holds != ASSET]
    if lists and tables:
        raise UsageError(
            f"{lists[0]} is read as files and {tables[0]} as a table, but all inputs of a run must be of one "
            "kind. Run them separately, or use --as files to get the paths of all."
        )
    places: dict[str, str] = {}
    for given in found:
        if given.place in places:
            raise UsageError(f"{given.typed} is given twice. Give each input once.")
        places[given.place] = given.typed
    _refuse_overlaps([given for given in found if not given.is_address and given.holds != DEFINED])
    return found


def groups_of(given: Sequence[Given]) -> list[list[Given]]:
    """Inputs in their order, neighbours of one kind together: each group is one input of the step."""
    found: list[list[Given]] = []
    for holds, neighbours in groupby(given, key=lambda one: one.holds):
        group = list(neighbours)
        alone = holds in (DEFINED, PLAIN, ASSET) or (
            len(group) <= OWN_INPUTS_MAX and all(one.entry == "folder" for one in group)
        )
        found += [[one] for one in group] if alone else [group]
    return found


def local_files(given: Given) -> Iterator[str]:
    """The files of an input on this machine, as far as they can be listed: those that the planner lists."""
    match given.entry:
        case "file":
            yield given.place
        case "pattern":
            yield from given.matches
        case _ if not given.is_address:
            yield from _files_below(given.place)


def is_empty(given: Given) -> bool:
    """Whether an input on this machine holds nothing to work on: no file, or of a table no byte."""
    if given.is_address or given.holds == DEFINED:
        return False
    return not any(given.is_list or os.path.getsize(file) for file in local_files(given))


def has_only_headers(given: Given) -> bool:
    """Whether an input on this machine is a delimited table without a row: it has headers, or is empty."""
    if given.is_list or given.is_address or given.holds in (DEFINED, ASSET):
        return False
    for file in local_files(given):
        delimiter = _DELIMITERS_BY_SUFFIX.get(os.path.splitext(file)[1].lower())
        if delimiter is None or has_rows(file, delimiter):
            return False
    return True


def tables_in(given: Given) -> str:
    """The suffix of the files of a folder on this machine that holds nothing but tables of one kind; "" of any other
    input. What a writer of tables leaves beside them (`_SUCCESS`) does not count.
    """
    if given.is_address or given.entry != "folder":
        return ""
    names = (os.path.basename(file) for file in islice(local_files(given), FILES_LOOKED_AT))
    suffixes = {os.path.splitext(name)[1].lower() for name in names if not name.startswith(("_", "."))}
    suffix = suffixes.pop() if len(suffixes) == 1 else ""
    return "" if suffix in _NO_TABLE_BY_ITSELF or plain_read(f"x{suffix}") is None else suffix


def is_parquet(given: Given) -> bool:
    """Whether an input on this machine is a table of Parquet files."""
    if given.holds != PLAIN:
        return given.holds == "parquet"
    return isinstance(plain_read(f"x{tables_in(given)}"), ReadParquet)


def is_named(path: str, pattern: str) -> bool:
    """Whether a pattern names a file. A wildcard stays in one component; `**` is any number of folders."""
    return _are_named(path.split("/"), pattern.split("/"))


def _are_named(path: Sequence[str], pattern: Sequence[str]) -> bool:
    # How many of the first parts of the path the first parts of the pattern may stand for.
    reached = {0}
    for part in pattern:
        if part == "**":
            reached = set(range(min(reached), len(path) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(path) and fnmatch.fnmatchcase(path[at], part)}
        if not reached:
            return False
    return len(path) in reached


def _files_below(folder: str) -> Iterator[str]:
    """Links are followed, but not to a folder that contains them."""
    # With each folder, the real paths of those through which it was reached, itself last.
    waiting: list[tuple[str, tuple[str, ...]]] = [(folder, (os.path.realpath(folder),))]
    while waiting:
        folder, way = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_file():
                        yield entry.path
                    elif entry.is_dir() and not os.path.exists(os.path.join(entry.path, STATE_MARK)):
                        place = (
                            os.path.realpath(entry.path) if entry.is_symlink() else os.path.join(way[-1], entry.name)
                        )
                        if place not in way and os.path.commonpath((place, way[-1])) != place:
                            waiting.append((entry.path, (*way, place)))
        except OSError:
            continue  # the planner says why it cannot be read


def _refuse_overlaps(found: Sequence[Given]) -> None:
    """Raises UsageError if two inputs have files in common. Nothing is listed again."""
    if len(found) < 2:
        return
    real_folder = cache(os.path.realpath)
    folders: dict[str, Given] = {}
    files: dict[str, Given] = {}

    @cache
    def holder(folder: str) -> Given | None:
        """The input that is this folder, or one above it."""
        above = os.path.dirname(folder)
        return folders.get(folder) or (holder(above) if above != folder else None)

    for given in (one for one in found if one.entry == "folder"):
        place = real_folder(given.place)
        if place in folders:
            raise _in_common(folders[place], given, place)
        folders[place] = given
    for place, given in folders.items():
        if (other := holder(os.path.dirname(place))) is not None:
            raise _in_common(other, given, place)
    for given in (one for one in found if one.entry != "folder"):
        for path in given.matches or (given.place,):
            folder, name = os.path.split(path)
            place = os.path.join(real_folder(folder), name)
            if (other := files.get(place) or holder(real_folder(folder))) is not None:
                raise _in_common(other, given, place)
            files[place] = given


def _in_common(one: Given, other: Given, place: str) -> UsageError:
    return UsageError(
        f"The inputs {one.typed} and {other.typed} have {place} in common, which would be processed twice. Leave "
        "one of them out, or give narrower ones."
    )


def _read(text: str, kind: str, folder: str) -> list[Given]:
    location = parse_location(text)
    match location.kind:
        case "local":
            return _local(text, location.value, kind, folder)
        case "remote" | "datastore":
            return [_address(text, kind)]
        case "asset":
            return [Given(text, "folder", text, ASSET, is_address=True)]
    raise UsageError(why_unreachable(location, text))


def _local(text: str, value: str, kind: str, folder: str) -> list[Given]:
    if not value or "\0" in value:
        raise UsageError(f'"{text}" is not a path. Give a folder or a file.')
    path = absolute(value, folder)
    if os.path.isdir(path):
        defined = os.path.isfile(os.path.join(path, FILE_NAME))
        if kind == "files" or (kind == "auto" and not defined):
            return [Given(text, "folder", path, FILES)]
        return [Given(text, "folder", path, DEFINED if defined else PLAIN)]
    if os.path.isfile(path):
        if os.path.basename(path) == FILE_NAME and kind != "files":
            return [Given(text, "folder", os.path.dirname(path), DEFINED)]
        return [Given(text, "file", path, _holds(path, text, kind))]
    if not any(sign in value for sign in _MAGIC):
        raise UsageError(f'"{text}" {why_missing(path)} ({path}). Inputs are folders, files, patterns or addresses.')
    return _pattern(text, path, kind)


def _pattern(text: str, path: str, kind: str) -> list[Given]:
    files: list[str] = []
    folders: list[str] = []
    for match in sorted(paths_named(path)):
        (files if os.path.isfile(match) else folders).append(match)
    if files:
        holds = {_holds(file, text, kind) for file in files if kind != "auto" or not is_compressed(file)}
        if not holds or (kind == "auto" and any(map(is_compressed, files))):
            holds = {_holds(files[0], text, kind)} if all(map(is_compressed, files)) else {FILES}
        if len(holds) > 1 and kind == "table":
            raise UsageError(f'"{text}" matches tables of several formats; run those of each format separately.')
        kept = holds.pop() if len(holds) == 1 else FILES
        return [Given(text, "pattern", path, kept, matches=tuple(files))]
    if not folders:
        raise UsageError(f'No file matches "{text}" ({path}). Check the pattern, and the folder that it begins with.')
    return [one for match in folders for one in _local(match, match, kind, "/")]


def _address(text: str, kind: str) -> Given:
    last = text.rstrip("/").rpartition("/")[2]
    if any(sign in text for sign in _MAGIC):
        return Given(text, "pattern", text, _holds(text, text, kind), is_address=True)
    web = text.startswith(("http:", "https:"))
    if not web and (text.endswith("/") or "." not in last):
        return Given(text, "folder", text, PLAIN if kind == "table" else FILES, is_address=True)
    return Given(text, "file", text, _holds(text, text, kind), is_address=True)


def _holds(name: str, typed: str, kind: str) -> str:
    """What a file is, by its name."""
    if kind == "files":
        return FILES
    if is_compressed(name):
        stem = os.path.splitext(name)[0]
        if kind == "table" or plain_read(stem) is not None:
            raise UsageError(
                f'"{typed}" is compressed, which cannot be cut into mini-batches: decompress it, or use --as files to '
                "get the paths of whole files."
            )
        return FILES
    read = plain_read(name)
    if read is None:
        if kind == "table":
            raise UsageError(
                f'"{typed}" does not have the suffix of a table. Tables are {PLAIN_FORMATS}; for anything '
                "else, give a folder with an MLTable file, or leave out --as table to get the paths of files."
            )
        return FILES
    if kind == "auto" and name.lower().endswith(_NO_TABLE_BY_ITSELF):
        return FILES
    match read:
        case ReadParquet():
            return "parquet"
        case ReadJsonLines():
            return "jsonl"
        case ReadDelimited(delimiter="\t"):
            return "tsv"
    return "csv"
