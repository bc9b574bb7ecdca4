"""A power cut for code that writes files by the functions of `os`: what was not synced is gone or damaged.

Inside of `PowerCut.armed`, every sync and every change of a name is counted, and power is cut before the one that is
asked for. `damage` leaves what a machine may find then: files hold what was synced and an arbitrary part of the rest;
names that changed in folders that were not synced since may be the old ones.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


class PowerLost(BaseException):
    """Power is cut here. Not an Exception: nothing handles it."""


class PowerCut:
    """Watches what is written below a folder."""

    def __init__(self, root: Path, seed: int) -> None:
        self._root = root
        self._random = random.Random(seed)
        self._synced: dict[int, bytes] = {
            path.stat().st_ino: path.read_bytes() for path in root.rglob("*") if path.is_file()
        }
        self._names: list[tuple[int, Callable[[], None]]] = []
        """(inode of the folder, how to take the change back), oldest first."""
        self._left = -1

    @contextlib.contextmanager
    def armed(self, before: int) -> Iterator[None]:
        """Cut power before the sync or change of a name with this number; negative: never."""
        self._left = before
        kinds = {"fsync": self._sync, "fdatasync": self._sync, "rename": self._rename, "replace": self._rename}
        with pytest.MonkeyPatch.context() as patch:
            for name, wrapped in kinds.items():
                patch.setattr(os, name, self._counted(wrapped, getattr(os, name)))
            yield

    def damage(self) -> None:
        """Leave what a machine may find after the cut."""
        for path in [path for path in self._root.rglob("*") if path.is_file()]:
            content, synced = path.read_bytes(), self._synced.get(path.stat().st_ino)
            if content != synced:
                tail = bytearray(content)
                del tail[self._random.randint(0, len(tail)) :]
                for _ in range(len(tail) // 3):
                    tail[self._random.randrange(len(tail))] = 0
                path.chmod(0o600)
                path.write_bytes(tail)
        for _, take_back in reversed(self._names):
            if self._random.random() < 0.5:
                take_back()

    def _counted(self, wrapped: Callable[..., None], real: Any) -> Callable[..., None]:
        def called(*arguments: Any, **options: Any) -> None:
            if self._left == 0:
                raise PowerLost
            self._left -= 1
            wrapped(real, *arguments, **options)

        return called

    def _sync(self, real: Any, descriptor: int) -> None:
        real(descriptor)
        status = os.fstat(descriptor)
        place = Path(f"/proc/self/fd/{descriptor}")
        if place.is_dir():
            self._names = [change for change in self._names if change[0] != status.st_ino]
        else:
            self._synced[status.st_ino] = place.read_bytes()

    def _rename(self, real: Any, source: Any, target: Any, **options: Any) -> None:
        there = _folder_of(options.get("src_dir_fd")) / source
        here = _folder_of(options.get("dst_dir_fd")) / target
        before = here.read_bytes() if here.is_file() else None
        real(source, target, **options)

        def take_back() -> None:
            if here.exists():
                here.rename(there)
            if before is not None:
                here.write_bytes(before)

        self._names.append((here.parent.stat().st_ino, take_back))


def _folder_of(descriptor: int | None) -> Path:
    return Path() if descriptor is None else Path(f"/proc/self/fd/{descriptor}").readlink()
