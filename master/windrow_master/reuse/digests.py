"""The digest of what is at a place: of the names of its files, and of their contents.

In a store, the version that the store gives each object (its ETag or generation) stands for the content.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from windrow.storage.urls import is_remote

from windrow_master.planning.errors import PlanningError, shown
from windrow_master.planning.listing.opening import open_within, read_within
from windrow_master.planning.listing.outside import outside
from windrow_master.planning.listing.walk import Guard, walk
from windrow_master.planning.table_paths import definition_of, places_in
from windrow_master.reuse.digest_cache import NO_MARKS, DigestCache, Marks
from windrow_master.roots import Roots

THREADS = 4
"""Threads help: reading waits for disks, and hashing releases the interpreter's lock."""
_READ_BYTES = 1 << 20
_TOGETHER = 64


class NoDigest(Exception):
    """A place has no digest; the text says why, as in "<place> <why>"."""


class Place(NamedTuple):
    """`type`: uri_file, uri_folder or mltable; `path`: absolute, or the address of a store.

    Not a place in a job file (`windrow.spec.reading`), which is a line.
    """

    type: str
    path: str


class Digests:
    """Makes digests; a file that has not changed since it was read last is not read again."""

    def __init__(self, cache: Path, resolve: Callable[[str], str], roots: Roots | None = None) -> None:
        """`cache`: the folder of the digest cache; `resolve`: gives the place that an address of a datastore means;
        `roots`: the folders in which everything that is read must be (anywhere if None)."""
        self._cache = cache
        self._resolve = resolve
        self._roots = roots
        self._pool = ThreadPoolExecutor(THREADS)
        self._read_all = partial(_read_all, roots=roots)

    def of(self, place: Place) -> str:
        """Return the sha256 (hexadecimal) of a place. Raises NoDigest."""
        try:
            return self._table(place.path) if place.type == "mltable" else self._one(place.path)
        except PlanningError as error:
            raise NoDigest(str(error)) from error
        except OSError as error:
            what = shown(error.filename) if isinstance(error.filename, bytes) else place.path
            raise NoDigest(f"{what} cannot be read: {error.strerror}") from error

    def _table(self, path: str) -> str:
        """The digest of an MLTable file and the folders and files that it names. It may cover more than a job
        reads, never less.
        """
        if is_remote(path):
            raise NoDigest(f"{path} is a table in a store, whose parts are not compared")
        definition = definition_of(os.fsencode(path))
        if definition is None:
            return self._one(path)
        whole = hashlib.sha256(self._one(os.fsdecode(definition)).encode())
        # Imported here: most inputs are not tables, and need no YAML.
        from windrow.spec.reading.yaml_files import FILE_BYTES_MAX

        content = read_within(definition, self._roots, FILE_BYTES_MAX + 1)
        for key, named in places_in(definition, content):
            whole.update(f"\0{key}\0{self._one(self._resolve(os.fsdecode(named)))}".encode())
        return whole.hexdigest()

    def _one(self, path: str) -> str:
        place = os.fsencode(path)
        if self._roots is not None and not self._roots.hold(path):
            raise outside(place, self._roots)
        if is_remote(path):
            return _remote(path)
        if os.path.isdir(place):
            return self._folder(place)
        folder, name = os.path.split(place)
        return self._local(place, folder, iter([[name]])).hexdigest()

    def _folder(self, place: bytes) -> str:
        # A folder without files holds no items, but a script may look for it.
        folders = hashlib.sha256()

        def note(name: bytes) -> bool:
            folders.update(b"%d\0%b" % (len(name), name))
            return True

        guard = None if self._roots is None else Guard(self._roots)
        chunks = walk(place, lambda warning: None, descend=note, guard=guard)
        whole = self._local(place, place, chunks if guard is None else _guarded(place, chunks, guard))
        whole.update(folders.digest())
        return whole.hexdigest()

    def _local(self, place: bytes, folder: bytes, chunks: Iterator[list[bytes]]) -> hashlib._Hash:
        whole = hashlib.sha256()
        with DigestCache(self._cache / hashlib.sha256(place).hexdigest()) as cache:
            for names in chunks:
                for name, marks, digest in self._files(folder, names, cache):
                    cache.add(name, marks, digest)
                    whole.update(b"%d\0%b%b" % (len(name), name, digest))
        return whole

    def _files(self, folder: bytes, names: list[bytes], cache: DigestCache) -> Iterator[tuple[bytes, Marks, bytes]]:
        """Yield each file with its marks (NO_MARKS if it must be read next time) and its digest; files that the
        cache knows are not read.
        """
        paths = [os.path.join(folder, name) for name in names]
        marks = [Marks.of(os.stat(path)) for path in paths]
        known = [cache.find(name, mark) for name, mark in zip(names, marks, strict=True)]
        unknown = [path for path, digest in zip(paths, known, strict=True) if digest is None]
        parts = [unknown[at : at + _TOGETHER] for at in range(0, len(unknown), _TOGETHER)]
        read = chain.from_iterable(self._pool.map(self._read_all, parts))
        for name, mark, digest in zip(names, marks, known, strict=True):
            if digest is not None:
                yield name, mark, digest
                continue
            found, seen = next(read)
            yield name, seen, found


def _guarded(folder: bytes, chunks: Iterator[list[bytes]], guard: Guard) -> Iterator[list[bytes]]:
    for names in chunks:
        guard.check_names(folder, names)
        yield names


def _read_all(paths: list[bytes], roots: Roots | None) -> list[tuple[bytes, Marks]]:
    return [_read(path, roots) for path in paths]


def _read(path: bytes, roots: Roots | None) -> tuple[bytes, Marks]:
    """The digest of a file, and its marks; NO_MARKS if it had changed shortly before it was read.

    Raises OSError, NoDigest, PlanningError.
    """
    file = open_within(path, roots)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise NoDigest(f"{shown(path)} is not a file")
        before = Marks.of(status)
        at_rest = before.at_rest
        content = hashlib.sha256(os.read(file, _READ_BYTES))
        while part := os.read(file, _READ_BYTES):
            content.update(part)
        after = Marks.of(os.fstat(file))
    finally:
        os.close(file)
    if before != after:
        raise NoDigest(f"{shown(path)} is being written")
    return content.digest(), before if at_rest else NO_MARKS


def _remote(address: str) -> str:
    # Most places are not stores, and do not need their libraries.
    from windrow.storage.errors import StorageError
    from windrow.storage.listing import walk_objects
    from windrow.storage.objects import Found, stat_object
    from windrow.storage.urls import BadUrl, parse_url

    whole = hashlib.sha256()

    def add(found: Found) -> None:
        if not found.version:
            raise NoDigest(
                f"{address}: its store does not report a version of {found.name}, so a change would not be noticed"
            )
        whole.update(f"{found.name}\0{found.size}\0{found.version}\0".encode())

    try:
        url = parse_url(address)
        one = stat_object(url)
        if one is not None:
            add(one)
        elif url.is_web:
            raise NoDigest(f"{address} does not exist")
        if not url.is_web:
            # Also if there is an object of that name: stores keep such objects for folders, and some allow both.
            for chunk in walk_objects(url):
                for found in chunk:
                    add(found)
    except (BadUrl, StorageError) as error:
        raise NoDigest(str(error)) from error
    return whole.hexdigest()
