"""Recipes of remote mini-batches: what has to be fetched, and the recipe that the worker gets instead
(docs/contracts.md, sections 3 and 4b). Pure, except that it reads the lengths of local files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from windrow.storage.urls import StorageUrl, is_remote, parse_url

from windrow_agent.fetch_process.messages import Part


class Fetch(NamedTuple):
    """What has to be fetched for a mini-batch. `local`: the recipe for the worker, once the parts are in the folder."""

    parts: list[Part]
    local: bytes

    @property
    def size(self) -> int:
        """Bytes to be fetched."""
        return sum(part.wanted for part in self.parts)


def read_recipe(reader: dict[str, Any], recipe: bytes, folder: Path) -> Fetch:
    """What a recipe needs in `folder`. Raises ValueError, KeyError or TypeError if it cannot be understood."""
    if reader.get("kind") == "files":
        return _files(reader, recipe, folder)
    if reader.get("kind") == "inputs":
        number, nul, rest = recipe.partition(b"\0")
        fetch = read_recipe(reader["inputs"][int(number)], rest, folder)
        return fetch._replace(local=number + nul + fetch.local)
    where = json.loads(recipe)
    slices = [one for one in where.get("parts", (where,)) if is_remote(one.get("file", ""))]
    if not slices:
        return Fetch([], recipe)
    return Fetch(_slices(slices, folder), json.dumps(where, separators=(",", ":")).encode())


def _slices(slices: Sequence[dict[str, Any]], folder: Path) -> list[Part]:
    """What slices of tables need; each gets the path of its local file. Row groups of one Parquet file share a file."""
    parts: list[Part] = []
    shared: dict[str, Part] = {}
    spans: dict[str, list[Sequence[int]]] = {}
    for number, where in enumerate(slices):
        file, size, version, place = where["file"], where["size"], where["etag"], str(number)
        if "spans" in where:
            place = shared.setdefault(file, Part(file, size, version, place, keep_offsets=True)).place
            spans.setdefault(file, []).extend(where.pop("spans"))
        else:
            parts.append(Part(file, size, version, place, [[where["begin"], where["end"]]]))
        where["local"] = str(folder / place)
    return [*parts, *(part._replace(ranges=_joined(spans[file])) for file, part in shared.items())]


def _joined(ranges: Sequence[Sequence[int]]) -> list[list[int]]:
    """The same bytes, as ascending ranges that do not touch."""
    found: list[list[int]] = []
    for begin, end in sorted((begin, end) for begin, end in ranges):
        if found and begin <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([begin, end])
    return found


def _files(reader: dict[str, Any], recipe: bytes, folder: Path) -> Fetch:
    root: str = reader["root"]
    base = parse_url(root) if is_remote(root) else None
    parts: list[Part] = []
    paths: list[str] = []
    first = ""
    places = _Places(alone=bool(reader.get("copy")))
    for item in os.fsdecode(recipe).split("\0"):
        if base is None and not is_remote(item):
            path = os.path.join(root, item)  # noqa: PTH118  # text, as it is listed
            first = first or path
            if reader.get("copy"):
                place, new = places.of(path, item.lstrip("/"))
                if new:
                    parts.append(Part(path, _length(path), "", place))
                path = str(folder / place)
            paths.append(path)
            continue
        name, _, stamp = item.partition("\n")
        size, _, version = stamp.partition(" ")
        url = parse_url(name) if base is None else base.below(name)
        first = first or str(url)
        place, new = places.of(str(url), _readable(url, url.key if base is None else name))
        if new:
            parts.append(Part(str(url), int(size), version, place))
        paths.append(str(folder / place))
    if "partition" in reader:
        paths.insert(0, first)
    return Fetch(parts, os.fsencode("\0".join(paths)))


def _readable(url: StorageUrl, name: str) -> str:
    """The readable name. Names on web servers are percent-encoded, and may hide what must not be part of a path."""
    if not url.is_web:
        return name
    parts = [(part, unquote(part)) for part in name.split("/")]
    return "/".join(part if "/" in plain or "\0" in plain or plain in (".", "..") else plain for part, plain in parts)


def _length(path: str) -> int:
    """The length, for the budget; 0 if it cannot be read, which the copy will report."""
    try:
        return os.stat(path).st_size  # noqa: PTH116  # may be no UTF-8
    except OSError:
        return 0


class _Places:
    """Gives each object a local file under its own name, in one of several numbered folders.

    In a store, both `a` and `a/b` may be objects. If a name would have to be both a file and a folder, the object goes
    to another numbered folder, and so does a second `a` from another store. With `alone`, so does an object that is
    named twice, since a script may change its files.
    """

    def __init__(self, *, alone: bool) -> None:
        self._alone = alone
        self._of: dict[str, str] = {}
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def of(self, url: str, name: str) -> tuple[str, bool]:
        """The place of an object, and whether it is new."""
        known = self._of.get(url)
        if known is not None and not self._alone:
            return known, False
        number = 0
        while True:
            place = f"{number}/{name}"
            above = _folders_above(place)
            if place not in self._files and place not in self._folders and self._files.isdisjoint(above):
                break
            number += 1
        self._files.add(place)
        self._folders.update(above)
        self._of[url] = place
        return place, True


def _folders_above(place: str) -> Sequence[str]:
    parts = place.split("/")
    return ["/".join(parts[:at]) for at in range(1, len(parts))]
