"""Data that clients uploaded to the default datastore: which files are unchanged, and which two uploads share.

Each upload has its own folder, so ctimes and places say nothing about an earlier upload. The lists that the master made
when it unpacked them do (`files.upload_lists`): if a file's ctime is still the one in the list, nobody has written to
the file, and the list knows its content.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from windrow_master.files.artifacts import DIGEST
from windrow_master.files.upload_lists import UploadedFile, list_path, read_list


class Uploads:
    """The uploads named in the request, under the key `uploads` of its `earlier` (docs/contracts.md, section 3)."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._folder: str = given["folder"]
        self._lists: str = given["lists"]
        self._changes: dict[str, dict[bytes, int]] = {}
        """ctimes of files, by upload."""

    def split(self, path: str) -> tuple[str, str] | None:
        """The digest of the upload that holds a path, and the path below it; None if it is in no upload."""
        if not path.startswith(f"{self._folder}/"):
            return None
        digest, _, below = path[len(self._folder) + 1 :].partition("/")
        return (digest, below) if DIGEST.fullmatch(digest) else None

    def is_intact(self, path: bytes) -> bool:
        """Whether a file is unchanged since it was unpacked."""
        found = self.split(os.fsdecode(path))
        if found is None:
            return False
        digest, below = found
        if digest not in self._changes:
            self._changes[digest] = {one.name: one.changed_ns for one in self._list(digest)}
        return _has_ctime(path, self._changes[digest].get(os.fsencode(below)))

    def unchanged_names(self, before: str, now: str) -> Iterator[bytes] | None:
        """Names, below both folders, of files that have the same content in both; None if they are not of two uploads,
        or not the same folder in them.
        """
        old, new = self.split(before), self.split(now)
        if old is None or new is None or old[0] == new[0] or old[1] != new[1]:
            return None
        return self._in_common(old[0], new[0], os.fsencode(f"{new[1]}/" if new[1] else ""))

    def _in_common(self, old: str, new: str, below: bytes) -> Iterator[bytes]:
        for before, now in self._pairs(old, new):
            if before.sha256 != now.sha256 or not now.name.startswith(below):
                continue
            if self._as_listed(old, before) and self._as_listed(new, now):
                yield now.name[len(below) :]

    def _pairs(self, old: str, new: str) -> Iterator[tuple[UploadedFile, UploadedFile]]:
        """The pairs of files with equal names. Both lists should be sorted by name; otherwise fewer pairs are found."""
        befores = self._list(old)
        before = next(befores, None)
        for now in self._list(new):
            while before is not None and before.name < now.name:
                before = next(befores, None)
            if before is None:
                return
            if before.name == now.name:
                yield before, now

    def _as_listed(self, digest: str, file: UploadedFile) -> bool:
        return _has_ctime(os.fsencode(Path(self._folder, digest)) + b"/" + file.name, file.changed_ns)

    def _list(self, digest: str) -> Iterator[UploadedFile]:
        return read_list(list_path(self._lists, digest))


def _has_ctime(path: bytes, changed_ns: int | None) -> bool:
    try:
        return changed_ns is not None and os.lstat(path).st_ctime_ns == changed_ns
    except OSError:
        return False
