"""A worker's captured output: log files that the worker appends to itself, and that the agent keeps within a bound.

A script that prints a gigabyte must neither fill the disk nor be slowed down. So nothing stands between the worker and
the file. Instead the agent checks the size now and then, and punches a hole into the middle of a large file: beginning,
end and offsets stay, and the worker notices nothing.
"""

from __future__ import annotations

import ctypes
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.common.beneath import NotAFile

if TYPE_CHECKING:
    from windrow.rpc.v1 import agent_service_pb2 as rpc

LIMIT_BYTES = 64 << 20
"""Most disk space for one file, exceeded only by what a worker writes between two checks."""

TAIL_PUSH_BYTES = 1 << 20
"""How much of the end of a cut file goes to the master."""

_ROW_BYTES_MAX = 64 << 10
"""The longest row of a file that a script appends rows to, as in the worker's `azureml.core.run`."""
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_BLOCK = 4096


def _punch(fd: int, offset: int, length: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if libc.fallocate(fd, _KEEP_SIZE | _PUNCH_HOLE, offset, length) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


class CapturedFile:
    """One log file: bounded on disk, and read in increments for the master.

    The master's copy is a stream of its own. For a file that was cut, it consists of the beginning (up to the cut, or
    as far as it was sent before), a notice, and the end of the file. There is no notice if nothing is left out. `sent`
    counts the bytes of that stream which the master has.

    `follows`: an earlier file, which the master has under the same name. This file's stream continues it from `begin`
    on, once the master has all of the earlier one.

    `of_rows`: it is a table, and the stream ends with a whole row at any time, so that the death of the worker or of
    this agent leaves no torn one.
    """

    def __init__(
        self, path: Path, limit: int = LIMIT_BYTES, follows: CapturedFile | None = None, *, of_rows: bool = False
    ) -> None:
        self.path = path
        self._of_rows = of_rows
        self.sent = 0
        self.begin = 0
        self._follows = follows
        self._limit = limit
        self._head = limit // 2 // _BLOCK * _BLOCK
        self._hole_end = 0
        self._cut = 0
        self._ending: bytes | None = None
        self._ended = False

    def open_for_writing(self) -> int:
        """Opens the file for appending, as stdout or stderr of the worker. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return self._open(os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, text: bytes) -> None:
        """Appends a text of the agent's, unless that would exceed the bound. If the disk is full or broken, or a script
        has put something else in the place of the file, only this text is lost, as a whole.
        """
        if self._size() + len(text) > self._limit:
            return
        try:
            fd = self.open_for_writing()
        except OSError:
            return
        try:
            size = os.fstat(fd).st_size
            if os.write(fd, text) < len(text):
                os.ftruncate(fd, size)
        except OSError:
            pass
        finally:
            os.close(fd)

    def bound(self) -> None:
        """Frees the middle of a file that has grown too large. Cheap if there is nothing to do."""
        size = self._size()
        if size - max(0, self._hole_end - self._head) <= self._limit:
            return
        end = (size - self._limit // 4) // _BLOCK * _BLOCK
        try:
            fd = self._open(os.O_WRONLY)
        except OSError:
            return
        try:
            _punch(fd, self._head, end - self._head)
            self._hole_end = end
            os.pwrite(fd, self._notice(end - self._head), self._head)
        except OSError:
            # A file system without holes: the end is lost, the bound holds.
            os.ftruncate(fd, self._head)
            self._cut += size - self._head
            self._hole_end = 0
        finally:
            os.close(fd)

    def tail(self, length: int) -> bytes:
        """The last bytes of the file."""
        try:
            with open(self._open(os.O_RDONLY), "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self._hole_end, size - length, 0))
                return file.read(length)
        except OSError:
            return b""

    def end(self) -> None:
        """The file is no longer written to, so the cut is final."""
        self._ended = True

    def increment(self, limit: int) -> bytes:
        """The next piece of the master's copy, from `sent` on; empty if there is nothing for now."""
        if self._waits:
            return b""
        if self._ending is None:
            size = self.written
            whole = not self._hole_end and not self._cut
            stop = size if whole else self._head
            if self.sent < stop:
                piece = self._read(self.sent, min(limit, stop - self.sent))
                return piece[: piece.rfind(b"\n") + 1] or piece if self._of_rows else piece
            if whole or not self._ended:
                return b""
            # From here on the copy differs from the file: a notice if something is left out, then the end.
            had = min(size, self.sent - self._cut)
            begin = max(self._hole_end, size - TAIL_PUSH_BYTES, min(size, self._head), had)
            left_out = begin - had
            self._ending = (self._notice(left_out) if left_out else b"") + self._read(begin, size - begin)
            self._ending_at = self.sent
        at = self.sent - self._ending_at
        return self._ending[at : at + limit]

    @property
    def empty(self) -> bool:
        """Whether nothing was ever written, to this file or the one that it follows."""
        return not (self.begin or self.sent or self._size()) and (self._follows is None or self._follows.empty)

    @property
    def length(self) -> int:
        """Bytes that the master has under this name, those of earlier files included."""
        return self.begin + self.sent

    @property
    def pushed(self) -> bool:
        """Whether the master has everything so far."""
        return not self._waits and not self.increment(1)

    @property
    def written(self) -> int:
        """Bytes of the file so far, without a row that is not whole."""
        return self._size_of_rows() if self._of_rows else self._size()

    def pushed_to(self, written: int) -> bool:
        """Whether the master has the file as far as it was written then, or as far as it ever gets it."""
        return not self._waits and (self.sent >= written or not self.increment(1))

    @property
    def settled(self) -> bool:
        """Whether the master has everything that it will ever get."""
        return self._ended and self.pushed

    @property
    def _waits(self) -> bool:
        if self._follows is not None and self._follows.settled:
            self.begin = self._follows.length
            self._follows = None
        return self._follows is not None

    def _size(self) -> int:
        try:
            found = self.path.lstat()
        except OSError:
            return 0
        return found.st_size if stat.S_ISREG(found.st_mode) else 0

    def _size_of_rows(self) -> int:
        """Without a row at the end that is not whole: it is being written, or its process was killed."""
        size = self._size()
        if size <= self.sent:
            return size
        begin = max(min(self.sent, size), size - 2 * _ROW_BYTES_MAX)
        return begin + self._read(begin, size - begin).rfind(b"\n") + 1

    def _read(self, offset: int, length: int) -> bytes:
        try:
            with open(self._open(os.O_RDONLY), "rb", buffering=0) as file:
                file.seek(offset)
                return file.read(length) or b""
        except OSError:
            return b""

    def _open(self, flags: int) -> int:
        """Open the file. A script can write its folder: what it puts in the place of the file, such as a link to a
        secret or a pipe that nobody writes to, is not opened. Raises OSError.
        """
        fd = os.open(self.path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise NotAFile(str(self.path))
        os.set_blocking(fd, True)
        return fd

    def _notice(self, count: int) -> bytes:
        return f"\n[windrow: {count} bytes of output are left out here; a file keeps {self._limit >> 20} MB]\n".encode()


@dataclass(slots=True)
class LogFile:
    """One log file of one worker, and its name for the master.

    Not the client's `LogFile`, which is a file that the master keeps.
    """

    kind: rpc.LogKind.ValueType
    process_number: int
    file: CapturedFile
