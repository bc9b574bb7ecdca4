"""Every change that this package makes to the disk, in one place, so that tests can cut the power in the middle."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from windrow.common.beneath import Folder
from windrow.common.durable import sync_folder

IOV_MAX = 1024
COPY_BYTES = 1 << 20

# EXDEV: another file system (before Linux 5.3, or of different types); the others: the file system cannot.
NO_KERNEL_COPY = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)

NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS)


class FileOperations:
    """Plain system calls. All methods raise OSError.

    `folder`: the open folder of the paths, where scripts can write; then no link is followed there, and only the names
    of the paths count. None in the state folder.
    """

    def create(self, path: Path, mode: int = 0o600, folder: Folder | None = None) -> int:
        """Make a new file, which must not exist; return its descriptor, open for writing."""
        if folder is not None:
            return folder.create(path.name, mode)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)

    def write(self, descriptor: int, buffers: Sequence[bytes | memoryview]) -> int:
        """Write all buffers, in as few calls as possible; return the number of bytes."""
        total = 0
        for at in range(0, len(buffers), IOV_MAX):
            part = list(buffers[at : at + IOV_MAX])
            left = sum(map(len, part))
            total += left
            while left:
                written = os.writev(descriptor, part)
                left -= written
                if left:
                    part = _after(part, written)
        return total

    def copy(self, source: int, offset: int, length: int, target: int) -> None:
        """Append `length` bytes of `source` from `offset` at the target's position, inside the kernel if it can.

        Raises EOFError if the source is shorter.
        """
        while length:
            try:
                copied = os.copy_file_range(source, target, length, offset)
            except OSError as error:
                if error.errno not in NO_KERNEL_COPY:
                    raise
                self._copy_plainly(source, offset, length, target)
                return
            if not copied:
                # The source has ended, or the file system cannot copy: reading shows which.
                self._copy_plainly(source, offset, length, target)
                return
            offset += copied
            length -= copied

    def link(self, source: Path, target: Path) -> int:
        """Give a synced file that nobody changes a second name; without hard links, copy and sync it.

        Returns its length. Raises FileExistsError if the name is taken.
        """
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in NO_LINK:
                raise
            self._copy_whole(source, target)
        return target.stat().st_size

    def sync(self, descriptor: int) -> None:
        """Bring a file's content and length to the disk."""
        os.fdatasync(descriptor)

    def sync_folder(self, path: Path, folder: Folder | None = None) -> None:
        """Bring a folder's names to the disk. `folder`: that folder, open."""
        if folder is not None:
            folder.sync()
        else:
            sync_folder(path)

    def truncate(self, descriptor: int, length: int) -> None:
        """Cut a file."""
        os.ftruncate(descriptor, length)

    def rename(self, source: Path, target: Path, folder: Folder | None = None) -> None:
        """Replace `target` atomically."""
        if folder is not None:
            folder.rename(source.name, target.name)
        else:
            source.replace(target)

    def unlink(self, path: Path, folder: Folder | None = None) -> None:
        """Remove a file, if it exists."""
        if folder is not None:
            folder.remove(path.name)
        else:
            path.unlink(missing_ok=True)

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        os.close(descriptor)

    def _copy_whole(self, source: Path, target: Path) -> None:
        read = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            written = self.create(target)
            try:
                self.copy(read, 0, os.fstat(read).st_size, written)
                self.sync(written)
            finally:
                os.close(written)
        finally:
            os.close(read)

    def _copy_plainly(self, source: int, offset: int, length: int, target: int) -> None:
        while length:
            chunk = os.pread(source, min(length, COPY_BYTES), offset)
            if not chunk:
                raise EOFError(f"the source ends at {offset}")
            self.write(target, [chunk])
            offset += len(chunk)
            length -= len(chunk)


def _after(buffers: list[bytes | memoryview], written: int) -> list[bytes | memoryview]:
    """What is left of buffers when the first `written` bytes are gone."""
    for number, buffer in enumerate(buffers):
        if written < len(buffer):
            return [memoryview(buffer)[written:], *buffers[number + 1 :]]
        written -= len(buffer)
    return []
