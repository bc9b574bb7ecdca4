"""A disk that forgets: file operations that are real, and can be taken back as far as they were not synced.

`lose_power` leaves each file with what was synced and an arbitrary, damaged part of what was not, and takes back
arbitrary changes of names in folders that were not synced since: what a machine may find after it lost power.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from windrow.common.beneath import Folder
from windrow_master.output.file_operations import FileOperations


class VolatileFiles(FileOperations):
    """Records what is not on the disk yet."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._paths: dict[int, Path] = {}
        self._synced: dict[Path, int] = {}
        self._names: list[tuple[Path, Callable[[], None]]] = []
        """(folder, how to take the change back), oldest first."""

    def create(self, path: Path, mode: int = 0o600, folder: Folder | None = None) -> int:
        descriptor = super().create(path, mode, folder)
        self._paths[descriptor] = path
        self._synced[path] = 0
        self._names.append((path.parent, lambda: path.unlink(missing_ok=True)))
        return descriptor

    def sync(self, descriptor: int) -> None:
        super().sync(descriptor)
        self._synced[self._paths[descriptor]] = os.fstat(descriptor).st_size

    def sync_folder(self, path: Path, folder: Folder | None = None) -> None:
        super().sync_folder(path, folder)
        self._names = [change for change in self._names if change[0] != path]

    def rename(self, source: Path, target: Path, folder: Folder | None = None) -> None:
        before = target.read_bytes() if target.exists() else None

        def take_back() -> None:
            if target.exists():
                target.rename(source)
            if before is not None:
                target.write_bytes(before)

        super().rename(source, target, folder)
        self._synced[target] = self._synced.pop(source, 0)
        self._names.append((target.parent, take_back))

    def unlink(self, path: Path, folder: Folder | None = None) -> None:
        with contextlib.suppress(FileNotFoundError):
            content = path.read_bytes()
            self._names.append((path.parent, lambda: None if path.exists() else _restore(path, content)))
        super().unlink(path, folder)
        self._synced.pop(path, None)

    def close(self, descriptor: int) -> None:
        super().close(descriptor)
        self._paths.pop(descriptor, None)

    def lose_power(self) -> None:
        for path, synced in self._synced.items():
            if path.exists():
                self._damage(path, synced)
        for _, take_back in reversed(self._names):
            if self._random.random() < 0.5:
                take_back()

    def _damage(self, path: Path, synced: int) -> None:
        content = path.read_bytes()
        tail = bytearray(content[synced:])
        del tail[self._random.randint(0, len(tail)) :]
        for _ in range(len(tail) // 3):
            tail[self._random.randrange(len(tail))] = 0
        if content[synced:] != tail:
            path.write_bytes(content[:synced] + tail)


class FailingFiles(VolatileFiles):
    """Fails where it is told to: `errors` maps an operation to the errors of its next calls (None: it works)."""

    def __init__(self, seed: int = 0, **errors: Sequence[int | None]) -> None:
        super().__init__(seed)
        self.errors = {name: list(numbers) for name, numbers in errors.items()}
        self.calls: list[tuple[str, str]] = []
        """(operation, file or folder name) of all calls."""

    def create(self, path: Path, mode: int = 0o600, folder: Folder | None = None) -> int:
        self._called("create", path)
        return super().create(path, mode, folder)

    def write(self, descriptor: int, buffers: Sequence[bytes | memoryview]) -> int:
        try:
            self._called("write", self._paths[descriptor])
        except OSError:
            # As a disk that fills up: some of it is written.
            data = b"".join(buffers)
            super().write(descriptor, [data[: len(data) // 2]])
            raise
        return super().write(descriptor, buffers)

    def sync(self, descriptor: int) -> None:
        self._called("sync", self._paths[descriptor])
        super().sync(descriptor)

    def sync_folder(self, path: Path, folder: Folder | None = None) -> None:
        self._called("sync_folder", path)
        super().sync_folder(path, folder)

    def rename(self, source: Path, target: Path, folder: Folder | None = None) -> None:
        self._called("rename", target)
        super().rename(source, target, folder)

    def unlink(self, path: Path, folder: Folder | None = None) -> None:
        self._called("unlink", path)
        super().unlink(path, folder)

    def close(self, descriptor: int) -> None:
        super().close(descriptor)
        self._called("close", Path())

    def _called(self, operation: str, path: Path) -> None:
        self.calls.append((operation, path.name))
        errors = self.errors.get(operation)
        number = errors.pop(0) if errors else None
        if number is not None:
            raise OSError(number, os.strerror(number), str(path))


def _restore(path: Path, content: bytes) -> None:
    path.write_bytes(content)
