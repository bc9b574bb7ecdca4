"""The folders in which everything lies that jobs of a served master may read and write."""

from __future__ import annotations

import os
from collections.abc import Iterable


class Roots:
    """Folders, looked at as they are: links in a path are followed before it is judged."""

    def __init__(self, folders: Iterable[str | bytes | os.PathLike[str]]) -> None:
        self._folders = [os.path.realpath(os.fsencode(folder)) for folder in folders]

    @property
    def folders(self) -> list[str]:
        """Their paths, without links."""
        return list(map(os.fsdecode, self._folders))

    def hold(self, path: str | bytes | os.PathLike[str]) -> bool:
        """Whether a path, there or not, leads into one of the folders (or is one)."""
        real = os.path.realpath(os.fsencode(path))
        return any(real == folder or real.startswith(folder.rstrip(b"/") + b"/") for folder in self._folders)

    def __str__(self) -> str:
        """For messages."""
        return ", ".join(self.folders) or "(none)"
