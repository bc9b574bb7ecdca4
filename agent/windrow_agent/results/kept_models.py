"""The content of models that scripts have handed in: the folder in which a master keeps one is named by its digest."""

from __future__ import annotations

import hashlib
import os
import re
import threading

from windrow.common.beneath import Folder

_KEPT = re.compile(r"(?P<folder>.*/\.models/(?P<digest>[0-9a-f]{64}))(?:/.*)?", re.DOTALL)

_Seen = tuple[tuple[str, int, int, int, int], ...]
"""Of each file its name, number, size and times."""


class KeptModels:
    """Compares content with its digest, once for as long as its files stay what they are. Any thread may call it."""

    def __init__(self) -> None:
        self._known: dict[str, _Seen] = {}
        """What was compared, by folder."""
        self._lock = threading.Lock()

    def changed(self, path: str) -> str:
        """What is wrong with the model at a path, in words; "" if nothing is, or if the path is none of a kept model.
        Blocks: reads all of it, unless it has not changed since it was read.
        """
        found = _KEPT.fullmatch(path)
        if found is None:
            return ""
        folder, digest = found["folder"], found["digest"]
        # One at a time: several workers that ask for the same model wait for one reading of it.
        with self._lock:
            try:
                with Folder.open(os.path.realpath(folder)) as content:
                    seen = _seen(content)
                    if self._known.get(folder) == seen:
                        return ""
                    if _digest(content, seen) == digest:
                        self._known[folder] = seen
                        return ""
            except OSError as error:
                return f"it cannot be read: {error}"
        return (
            f"its files in {folder} have changed since: they no longer have the digest by which they are kept. Look "
            "who can write there, and check the disk; then remove that folder, and register the model again"
        )


def _seen(content: Folder) -> _Seen:
    found = []
    for name, size in content.files():
        status = content.status(name)
        found.append((name, status.st_ino, size, status.st_mtime_ns, status.st_ctime_ns))
    return tuple(found)


def _digest(content: Folder, seen: _Seen) -> str:
    """As the master makes it (`script_files.py`). Raises OSError."""
    whole = hashlib.sha256()
    for name, *_ in seen:
        with open(content.read(name), "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        whole.update(f"{digest} {name}\n".encode(errors="surrogateescape"))
    return whole.hexdigest()
