"""Data of a client as an archive that is never written to disk: its bytes are made when they are read.

The layout of a tar follows from the names and lengths of its files. So the archive of a folder, or of one file, needs
no disk space, is hashed by reading the data once, and can be read from any offset to continue an upload. A million
files are kept as one list of names and a few arrays of numbers. Format: docs/contracts.md, section 1a.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from array import array
from bisect import bisect_right
from collections.abc import Callable

from windrow.common.archives import BLOCK_BYTES, DATA_LIMITS, ArchiveError, ArchiveLimits, data_preamble
from windrow.common.state_mark import STATE_MARK

READ_BYTES = 1 << 20
_END = 2 * BLOCK_BYTES
_INSTEAD = "put the data into a datastore of the master, and give its absolute path there"


class DataArchive:
    """A folder, or one file, as an archive. Several threads may read it."""

    def __init__(self, path: str | os.PathLike[str], limits: ArchiveLimits = DATA_LIMITS) -> None:
        """Find all files.

        Links to files inside the folder are packed as those files; `path` itself may be a link. Raises
        ArchiveError for links that lead elsewhere, special files, and data beyond the limits; OSError for what cannot
        be read.
        """
        given = os.fsencode(path)
        self._limits = limits
        self._shown = os.fsdecode(given)
        if stat.S_ISDIR(os.stat(given).st_mode):
            self._root = given
            self._names = self._names_in(given)
        else:
            self._root, name = os.path.split(given)
            self._names = [name]
        self._sizes, self._starts, self._mtimes = array("Q"), array("Q"), array("q")
        self._executable = bytearray()
        self._preamble = data_preamble()
        content_bytes, at = 0, len(self._preamble)
        for index in range(len(self._names)):
            status = os.stat(self._place(index))
            if not stat.S_ISREG(status.st_mode):
                raise _special(self._place(index))
            self._starts.append(at)
            self._sizes.append(status.st_size)
            self._mtimes.append(status.st_mtime_ns)
            self._executable.append(bool(status.st_mode & stat.S_IXUSR))
            content_bytes += status.st_size
            at += self._header_bytes(index) + _padded(status.st_size)
            if at + _END + tarfile.RECORDSIZE > limits.bytes_max:
                raise ArchiveError(
                    f"{self._shown} holds more than {limits.bytes_max / 2**30:g} GiB, too much to be uploaded; "
                    f"{_INSTEAD}."
                )
        self.content_bytes = content_bytes
        """Of all files, without headers."""
        self._end = at
        self.length = -(-(at + _END) // tarfile.RECORDSIZE) * tarfile.RECORDSIZE
        """Bytes of the archive."""

    @property
    def file_count(self) -> int:
        """How many files it holds."""
        return len(self._names)

    def digest(self, on_bytes: Callable[[int], None] = lambda done: None) -> str:
        """The archive's sha256, hexadecimal; reads all files once. `on_bytes`: called with the number of bytes read.

        Raises as `read_at` does.
        """
        hasher = hashlib.sha256()
        for offset in range(0, self.length, READ_BYTES):
            hasher.update(self.read_at(offset, READ_BYTES))
            on_bytes(min(offset + READ_BYTES, self.length))
        return hasher.hexdigest()

    def read_at(self, offset: int, size: int) -> bytes:
        """Bytes of the archive from `offset` on: `size` of them, or fewer where it ends.

        Raises ArchiveError if a file has changed since the archive was made, OSError.
        """
        end = min(offset + size, self.length)
        out = bytearray(self._preamble[offset:end])
        index = max(0, bisect_right(self._starts, offset) - 1)
        while (at := offset + len(out)) < min(end, self._end):
            begin = self._starts[index]
            header = self._header_bytes(index)
            within = at - begin
            if within < header:
                out += self._header(index)[within : within + end - at]
            elif within < header + self._sizes[index]:
                out += self._content(index, within - header, min(end - at, self._sizes[index] - within + header))
            else:
                following = begin + header + _padded(self._sizes[index])
                out += bytes(min(end, following) - at)
            if offset + len(out) >= begin + header + _padded(self._sizes[index]):
                index += 1
        out += bytes(max(0, end - offset - len(out)))
        return bytes(out)

    def _content(self, index: int, offset: int, size: int) -> bytes:
        place = self._place(index)
        try:
            # Do not block if the file has become a pipe.
            descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            raise _changed(place) from None
        try:
            regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            data = _read(descriptor, offset, size) if regular else b""
            # Checked after reading, to see writes that happened meanwhile.
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if len(data) != size or (status.st_size, status.st_mtime_ns) != (self._sizes[index], self._mtimes[index]):
            raise _changed(place)
        return data

    def _header(self, index: int) -> bytes:
        info = tarfile.TarInfo(self._names[index].decode("utf-8", "surrogateescape"))
        info.size = self._sizes[index]
        info.mode = 0o755 if self._executable[index] else 0o644
        return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")

    def _header_bytes(self, index: int) -> int:
        name = self._names[index]
        if len(name) <= tarfile.LENGTH_NAME and name.isascii() and self._sizes[index] < 8**11:
            return BLOCK_BYTES
        return len(self._header(index))

    def _place(self, index: int) -> bytes:
        return self._root + b"/" + self._names[index]

    def _names_in(self, root: bytes) -> list[bytes]:
        """Relative names of all files below a folder, in byte order, without state folders."""
        real_root = os.path.realpath(root)
        names: list[bytes] = []
        folders = [b""]
        while folders:
            prefix = folders.pop()
            with os.scandir(root + b"/" + prefix) as entries:
                for entry in entries:
                    name = prefix + entry.name
                    if entry.is_dir(follow_symlinks=False):
                        if not os.path.exists(os.path.join(entry.path, os.fsencode(STATE_MARK))):
                            folders.append(name + b"/")
                        continue
                    if entry.is_symlink():
                        _check_link(entry.path, real_root)
                    elif not entry.is_file(follow_symlinks=False):
                        raise _special(entry.path)
                    names.append(name)
            if len(names) > self._limits.files_max:
                raise ArchiveError(
                    f"{self._shown} holds more than {self._limits.files_max:,} files, too many to be uploaded; "
                    f"{_INSTEAD}."
                )
        names.sort()
        return names


def _read(descriptor: int, offset: int, size: int) -> bytes:
    """Read `size` bytes, or fewer at the end of the file. Raises OSError."""
    data = os.pread(descriptor, size, offset)
    while len(data) < size and (more := os.pread(descriptor, size - len(data), offset + len(data))):
        data += more
    return data


def _padded(size: int) -> int:
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


def _check_link(path: bytes, root: bytes) -> None:
    """Raise ArchiveError unless a link leads to a file inside the folder."""
    shown = os.fsdecode(path)
    try:
        target = os.path.realpath(path, strict=True)
    except OSError:
        raise ArchiveError(f"the link {shown} is broken; remove it, and submit again.") from None
    if not target.startswith(root.rstrip(b"/") + b"/"):
        raise ArchiveError(
            f"the link {shown} points outside the folder, to {os.fsdecode(target)}, and is not uploaded; "
            f"copy the file in, or {_INSTEAD}."
        )
    if not os.path.isfile(target):
        raise ArchiveError(
            f"the link {shown} points to {os.fsdecode(target)}, which is not a file; only links to files are followed. "
            f"Replace it with its target, or {_INSTEAD}."
        )


def _special(path: bytes) -> ArchiveError:
    return ArchiveError(
        f"{os.fsdecode(path)} is neither a file nor a folder (a socket, pipe or device), and cannot be uploaded; "
        "remove it, and submit again."
    )


def _changed(path: bytes) -> ArchiveError:
    return ArchiveError(
        f"{os.fsdecode(path)} was changed while it was read for an upload. "
        "Submit the job again when nothing writes to the data."
    )
