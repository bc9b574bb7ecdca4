"""The folders and places in storage that jobs of a served master may read and write."""

from __future__ import annotations

import os
from collections.abc import Iterable

from windrow.storage.urls import BadUrl, is_remote, parse_url


class Roots:
    """Folders and addresses of storage. Links in a path are followed before it is judged."""

    def __init__(self, folders: Iterable[str | bytes | os.PathLike[str]]) -> None:
        texts = [os.fsdecode(folder) for folder in folders]
        self._folders = [os.path.realpath(os.fsencode(text)) for text in texts if not is_remote(text)]
        self._stores = [parse_url(text) for text in texts if is_remote(text)]

    @property
    def folders(self) -> list[str]:
        """The paths of the folders, without links, and the addresses."""
        return [*map(os.fsdecode, self._folders), *map(str, self._stores)]

    def hold(self, path: str | bytes | os.PathLike[str]) -> bool:
        """Whether a path or address leads into one of these places, or is one; it need not exist."""
        text = os.fsdecode(path)
        if is_remote(text):
            try:
                url = parse_url(text)
            except BadUrl:
                return False
            return any(
                url.root == store.root and (not store.key or f"{url.key}/".startswith(f"{store.key}/"))
                for store in self._stores
            )
        try:
            return self.hold_real(os.path.realpath(text))
        except OSError:
            return False  # somebody is changing the links of this path just now

    def hold_real(self, path: str) -> bool:
        """Whether a path that leads through no link, as the kernel names an open folder, is in one of the folders."""
        real = os.fsencode(path)
        return any(real == folder or real.startswith(folder.rstrip(b"/") + b"/") for folder in self._folders)

    def __str__(self) -> str:
        """List the places, for messages."""
        return ", ".join(self.folders) or "(none)"
