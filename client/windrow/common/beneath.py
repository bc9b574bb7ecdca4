"""Files where scripts can write, reached by descriptors: a link that a script lays there leads nowhere.

A script may replace a folder by a link at any moment, also between a check of a path and its use. So nothing here uses
a path twice: a folder is opened once, without following any link on the way, and what is below it is reached from its
descriptor. The kernel does this in one step (openat2, since Linux 5.6); elsewhere it is done part by part.

A script can still move a real folder to this place, or make a hard link to a file. Both need the right to write the
folder that it takes from, and the kernel refuses hard links to files that the script's user may not read and write
(fs.protected_hardlinks).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from windrow.common.durable import NO_FOLDER_SYNC
from windrow.common.trees import entries_below

_SYS_OPENAT2 = 437
"""The same on every architecture that Python has wheels for."""
_AT_FDCWD = -100
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_FOLDER = os.O_DIRECTORY | os.O_CLOEXEC

NAMES_BYTES_MAX = 512 << 20
"""Of all files that `Folder.files` lists."""


class Refused(OSError):
    """What is there is not used. `strerror` says why, and what to do."""

    def __str__(self) -> str:
        """Without the number."""
        return str(self.strerror)


class LinkRefused(Refused):
    """A link is where a folder or file is expected."""

    def __init__(self, link: str) -> None:
        super().__init__(
            errno.ELOOP,
            f"{link} is a link, and Windrow follows no link where scripts can write. Put what it leads to in its place",
        )


class NotAFile(Refused):
    """Something that is not a regular file, such as a named pipe, is where a file is expected."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EINVAL, f"{path} is not a plain file. Put a file in its place, or remove it")


class _How(ctypes.Structure):
    """The argument of openat2."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class Folder:
    """An open folder. Close it, or use it as a context manager.

    Names are relative to it, and may have several parts. No link is followed, and nothing above the folder is reached.
    All methods raise OSError: LinkRefused, where a link is on the way.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        """`path`: for messages."""
        self.path = path
        self.descriptor = descriptor

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Folder:
        """Open a folder by its absolute path, in which no part may be a link. (`os.path.realpath` gives such a path for
        a place that no script has touched yet.)
        """
        text = os.fspath(path)
        if not text.startswith("/"):
            raise ValueError(f"{text!r} is not an absolute path")
        return cls(Path(text), _open_folder(None, text, text))

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def folder(self, name: str) -> Folder:
        """Open a folder below this one."""
        return Folder(self.path / name, _open_folder(self.descriptor, _checked(name), str(self.path / name)))

    def read(self, name: str) -> int:
        """Open a regular file for reading; return its descriptor. Raises NotAFile for anything else, without waiting
        for it.
        """
        path = str(self.path / name)
        # Looked at first: merely opening a device may do something.
        self._need_file(self.status(name), path)
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        descriptor = _open(self.descriptor, _checked(name), flags, path)
        try:
            self._need_file(os.fstat(descriptor), path)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def create(self, name: str, mode: int = 0o600) -> int:
        """Make a new file, which must not exist; return its descriptor, open for writing."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with self._holder(name) as (holder, last):
            return os.open(last, flags, mode, dir_fd=holder)

    def status(self, name: str) -> os.stat_result:
        """What is at a name, a link itself. Raises FileNotFoundError."""
        with self._holder(name) as (holder, last):
            return os.stat(last, dir_fd=holder, follow_symlinks=False)

    def link_target(self, name: str) -> str:
        """Where the link leads that is at a name."""
        with self._holder(name) as (holder, last):
            return os.readlink(last, dir_fd=holder)

    def make_link(self, name: str, target: str) -> None:
        """Make a link, at a name that must not exist."""
        with self._holder(name) as (holder, last):
            os.symlink(target, last, dir_fd=holder)

    def has_file(self, name: str) -> bool:
        """Whether there is a regular file."""
        try:
            return stat.S_ISREG(self.status(name).st_mode)
        except FileNotFoundError:
            return False

    def names(self) -> list[str]:
        """The names in the folder, in no order."""
        with self._entries() as entries:
            return [entry.name for entry in entries]

    def files(self) -> list[tuple[str, int]]:
        """(name, bytes) of every regular file below, sorted. Folders that cannot be read are left out. Raises Refused
        if the names take more than NAMES_BYTES_MAX: of deep folders, few do.
        """
        found, size = [], 0
        for entry in entries_below(self.descriptor):
            if stat.S_ISREG(entry.status.st_mode):
                path = entry.path
                found.append((path, entry.status.st_size))
                size += len(path)
                if size > NAMES_BYTES_MAX:
                    raise Refused(
                        errno.E2BIG,
                        f"{self.path} holds more files than can be listed, or in folders that are nested too deep. "
                        "Move them into several folders",
                    )
        return sorted(found)

    def make(self, name: str) -> None:
        """Make a folder, unless there is one; its parent exists."""
        with self._holder(name) as (holder, last):
            try:
                os.mkdir(last, dir_fd=holder)
            except FileExistsError:
                os.close(_open_folder(holder, last, str(self.path / name)))

    def rename(self, source: str, target: str) -> None:
        """Replace `target` atomically. A link at its place is replaced, not followed."""
        with self._holder(source) as (here, old), self._holder(target) as (there, new):
            os.rename(old, new, src_dir_fd=here, dst_dir_fd=there)

    def remove(self, name: str) -> None:
        """Remove a file or link, if it exists."""
        with contextlib.suppress(FileNotFoundError), self._holder(name) as (holder, last):
            os.unlink(last, dir_fd=holder)

    def sync(self) -> None:
        """Bring the names in the folder to the disk, if its file system has a way to do it."""
        try:
            os.fsync(self.descriptor)
        except OSError as error:
            if error.errno not in NO_FOLDER_SYNC:
                raise

    def real_path(self) -> str:
        """Where the folder is now, as the kernel knows it."""
        return str(Path(f"/proc/self/fd/{self.descriptor}").readlink())

    def is_in_place(self) -> bool:
        """Whether the folder is still what its path leads to. Raises OSError if nothing can be opened there."""
        with Folder.open(self.path) as found:
            return os.path.samestat(os.fstat(found.descriptor), os.fstat(self.descriptor))

    @staticmethod
    def _need_file(status: os.stat_result, path: str) -> None:
        if stat.S_ISLNK(status.st_mode):
            raise LinkRefused(path)
        if not stat.S_ISREG(status.st_mode):
            raise NotAFile(path)

    @contextlib.contextmanager
    def _entries(self) -> Iterator[Iterator[os.DirEntry[str]]]:
        # A description of its own: two listings that share one would share its position, too.
        descriptor = os.open(".", os.O_RDONLY | _FOLDER, dir_fd=self.descriptor)
        try:
            with os.scandir(descriptor) as entries:
                yield entries
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _holder(self, name: str) -> Iterator[tuple[int, str]]:
        """The descriptor of the folder that holds a name, and the last part of that name."""
        above, _, last = _checked(name).rpartition("/")
        if not above:
            yield self.descriptor, last
            return
        holder = _open_folder(self.descriptor, above, str(self.path / above))
        try:
            yield holder, last
        finally:
            os.close(holder)


def make_folder(path: str | os.PathLike[str], user: int | None = None) -> None:
    """Make a folder, and those above it, unless it is there. No part of its path may be a link. `user`: who gets the
    folder itself, made or there already. Raises OSError: LinkRefused, where a link is on the way.
    """
    above, missing = os.fspath(path), list[str]()
    while True:
        try:
            folder = Folder.open(above)
            break
        except FileNotFoundError:
            above, _, name = above.rpartition("/")
            above = above or "/"
            missing.append(name)
    try:
        while missing:
            name = missing.pop()
            folder.make(name)
            outer, folder = folder, folder.folder(name)
            outer.close()
        if user is not None:
            os.chown(f"/proc/self/fd/{folder.descriptor}", user, user)
    finally:
        folder.close()


def first_link(path: str) -> str | None:
    """The first part of an absolute path that is a link, as a path; None if there is none."""
    above = ""
    for part in path.split("/")[1:]:
        above = f"{above}/{part}"
        try:
            if stat.S_ISLNK(os.lstat(above).st_mode):
                return above
        except OSError:
            return None
    return None


def _checked(name: str) -> str:
    """A relative name. Raises ValueError for one that is empty, absolute, or leads upwards."""
    if any(part in ("", ".", "..") for part in name.split("/")) or "\0" in name:
        raise ValueError(f"{name!r} is not a name below a folder")
    return name


def _open_folder(at: int | None, name: str, path: str) -> int:
    try:
        return _open(at, name, os.O_RDONLY | _FOLDER, path)
    except PermissionError:
        # Enough to reach what is in it: a folder may be written but not read.
        return _open(at, name, os.O_PATH | _FOLDER, path)


def _open(at: int | None, name: str, flags: int, path: str) -> int:
    """Open `name` below `at` (None: it is absolute) without following a link. `path`: for messages."""
    try:
        descriptor = _openat2(at, name, flags)
        return _walk(at, name, flags) if descriptor is None else descriptor
    except OSError as error:
        _explain(error, path)


def _openat2(at: int | None, name: str, flags: int) -> int | None:
    """None if the kernel cannot do it, or a filter of system calls does not let it."""
    how = _How(flags, 0, _NO_SYMLINKS | _NO_MAGICLINKS | (0 if at is None else _BENEATH))
    libc = ctypes.CDLL(None, use_errno=True)
    while True:
        given = (_AT_FDCWD if at is None else at, os.fsencode(name), ctypes.byref(how), ctypes.sizeof(how))
        descriptor = libc.syscall(_SYS_OPENAT2, *given)
        if descriptor >= 0:
            return int(descriptor)
        number = ctypes.get_errno()
        if number in (errno.ENOSYS, errno.EPERM, errno.ENAMETOOLONG):
            return None
        if number not in (errno.EINTR, errno.EAGAIN):
            raise OSError(number, os.strerror(number))


def _walk(at: int | None, name: str, flags: int) -> int:
    """The same, one part after the other."""
    *above, last = [part for part in name.split("/") if part] or ["."]
    holder = os.open("/", os.O_PATH | _FOLDER) if at is None else os.dup(at)
    try:
        for part in above:
            below = os.open(part, os.O_PATH | os.O_NOFOLLOW | _FOLDER, dir_fd=holder)
            os.close(holder)
            holder = below
        return os.open(last, flags | os.O_NOFOLLOW, dir_fd=holder)
    finally:
        os.close(holder)


def _explain(error: OSError, path: str) -> NoReturn:
    """Raise LinkRefused if a link is what is wrong, else the same error with the path in it."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        link = first_link(path)
        if link is not None or error.errno == errno.ELOOP:
            raise LinkRefused(link or path) from None
    raise OSError(error.errno, error.strerror, path) from None
