"""A worker's captured output: files that the worker appends to by itself, kept within a bound by the agent.

A script that prints a gigabyte must neither fill the disk nor be slowed down. So nobody stands between the worker and
the
file; instead the agent looks at the size now and then and gives the middle of a large file back to the file system
(a punched hole): beginning and end stay, offsets stay, the worker notices nothing.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

LIMIT_BYTES = 64 << 20
"""Most disk space for one file; passed only by what a worker writes between two looks."""

TAIL_PUSH_BYTES = 1 << 20
"""Of a file that was cut, the end that goes to the master."""

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_BLOCK = 4096


def _punch(fd: int, offset: int, length: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if libc.fallocate(fd, _KEEP_SIZE | _PUNCH_HOLE, offset, length) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


class CapturedFile:
    """One log file: bounded on disk, and read in increments for the master.

    The master's copy is a stream of its own: the file as far as it was sent when it was cut, at least up to there, a
    notice, then the end of the file. Without a notice where nothing is left out.
    `sent` counts that stream's bytes which the master has.

    `follows`: an earlier file of which the master has a copy under the same name. This one's stream goes on behind
    it, from `begin` on, as soon as all of that is there.
    """

    def __init__(self, path: Path, limit: int = LIMIT_BYTES, follows: CapturedFile | None = None) -> None:
        self.path = path
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
        """A descriptor for the worker's stdout or stderr; appends. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, text: bytes) -> None:
        """Appends something of the agent's own, as far as the bound allows."""
        if self._size() + len(text) > self._limit:
            return
        fd = self.open_for_writing()
        try:
            os.write(fd, text)
        finally:
            os.close(fd)

    def bound(self) -> None:
        """Gives back the middle of a file that has grown too large. Cheap when there is nothing to do."""
        size = self._size()
        if size - max(0, self._hole_end - self._head) <= self._limit:
            return
        end = (size - self._limit // 4) // _BLOCK * _BLOCK
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
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
            with open(self.path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self._hole_end, size - length, 0))
                return file.read(length)
        except OSError:
            return b""

    def end(self) -> None:
        """No one writes any more: what was cut is settled."""
        self._ended = True

    def increment(self, limit: int) -> bytes:
        """The next piece of the master's copy, beginning at `sent`; empty when there is nothing for now."""
        if self._waits:
            return b""
        if self._ending is None:
            size = self._size()
            whole = not self._hole_end and not self._cut
            stop = size if whole else self._head
            if self.sent < stop:
                return self._read(self.sent, min(limit, stop - self.sent))
            if whole or not self._ended:
                return b""
            # From here on the copy differs from the file: a notice, where something is left out, then the end.
            had = min(size, self.sent - self._cut)
            begin = max(self._hole_end, size - TAIL_PUSH_BYTES, min(size, self._head), had)
            left_out = begin - had
            self._ending = (self._notice(left_out) if left_out else b"") + self._read(begin, size - begin)
            self._ending_at = self.sent
        at = self.sent - self._ending_at
        return self._ending[at : at + limit]

    @property
    def empty(self) -> bool:
        """Whether nothing was ever written, nor to what it follows."""
        return not (self.begin or self.sent or self._size()) and (self._follows is None or self._follows.empty)

    @property
    def pushed(self) -> bool:
        """Whether the master has all that there is."""
        return not self._waits and not self.increment(1)

    @property
    def settled(self) -> bool:
        """Whether the master has all that it will get."""
        return self._ended and self.pushed

    @property
    def _waits(self) -> bool:
        if self._follows is not None and self._follows.settled:
            self.begin = self._follows.begin + self._follows.sent
            self._follows = None
        return self._follows is not None

    def _size(self) -> int:
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def _read(self, offset: int, length: int) -> bytes:
        try:
            with open(self.path, "rb", buffering=0) as file:
                file.seek(offset)
                return file.read(length) or b""
        except OSError:
            return b""

    def _notice(self, count: int) -> bytes:
        return f"\n[windrow: {count} bytes of output are left out here; a file keeps {self._limit >> 20} MB]\n".encode()
