"""The host's two descriptors, kept safe from the script.

Scripts fork, close what they did not open, and move descriptors. So both channels are moved to high numbers, closed on
exec and in forked children, and checked before each use: what is no longer ours is not written to.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
from _socket import MSG_DONTWAIT, MSG_NOSIGNAL, MSG_TRUNC, socket
from select import POLLIN, POLLOUT, poll

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Tuple, Union

# Bound early: libraries such as gevent replace the attributes of these modules under a running script.
_close = os.close
_fstat = os.fstat

_HIGHEST_BASE = 8192
"""High, but not too high: the kernel's table of a process grows to its highest descriptor, and forks copy it."""


class ChannelClosed(Exception):
    """The descriptor is closed, or another file now has its number."""


class AgentGone(Exception):
    """The other end of the channel is closed."""


def move_away(fd: int) -> int:
    """Moves a descriptor to a high number, above the soft limit where that is allowed, so that loops which close
    "all" descriptors do not reach it; closes the old one. Returns the new number. Raises OSError.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _HIGHEST_BASE if soft == resource.RLIM_INFINITY else min(soft, _HIGHEST_BASE)
    room = 16
    raised = limit == soft and (hard == resource.RLIM_INFINITY or hard >= soft + room)
    if raised:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft + room, hard))
    try:
        moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, limit if raised or limit < soft else max(3, limit - room))
    finally:
        if raised:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    _close(fd)
    return int(moved)


def _identity(fd: int) -> Tuple[int, int]:
    """What distinguishes an open socket from any other file."""
    status = _fstat(fd)
    return status.st_dev, status.st_ino


class WaitInterrupted(Exception):
    """A signal handler of the script raised during the wait; no packet was taken. Its exception is the cause."""


class _Channel:
    """A socket whose descriptor has a high number."""

    def __init__(self, fd: int) -> None:
        self._fd = move_away(fd)
        self._is = _identity(self._fd)
        self._socket = socket(fileno=self._fd)

    def is_ours(self) -> bool:
        """Whether the number still belongs to our socket."""
        try:
            return _identity(self._fd) == self._is
        except OSError:
            return False

    def close_in_child(self) -> None:
        """Closes it in a process that the script forked, if it still is ours there."""
        if self.is_ours():
            _close(self._fd)


class WorkChannel(_Channel):
    """Brings packets, one for each mini-batch. The agent may take unread ones back."""

    def __init__(self, fd: int, packet_bytes_max: int) -> None:
        super().__init__(fd)
        self._buffer = bytearray(packet_bytes_max)
        self.view = memoryview(self._buffer)
        self._poll = poll()
        self._poll.register(self._fd, POLLIN)

    def take(self) -> int:
        """Waits for the next packet, and puts its bytes into `view`. Returns its length, which exceeds that of the view
        if the packet was cut. Raises AgentGone, ChannelClosed, WaitInterrupted.

        The wait is in `poll`, where an exception from a signal handler of the script interrupts nothing important.
        """
        receive = self._socket.recv_into
        while True:
            try:
                length = receive(self._buffer, 0, MSG_DONTWAIT | MSG_TRUNC)
            except BlockingIOError:
                pass
            except OSError as error:
                if error.errno in (errno.EBADF, errno.ENOTSOCK):
                    raise ChannelClosed from error
                raise AgentGone from error
            else:
                if length == 0:
                    if self.is_ours():
                        raise AgentGone
                    raise ChannelClosed
                return length
            try:
                self._poll.poll()
            except BaseException as error:
                raise WaitInterrupted from error
            # A thread of the script may have given the number to another file during the wait.
            if not self.is_ours():
                raise ChannelClosed


class ResultChannel(_Channel):
    """Takes frames, as a byte stream."""

    def send(self, frame: Union[bytes, bytearray]) -> None:
        """Writes all of a frame. Raises AgentGone, ChannelClosed."""
        if not self.is_ours():
            raise ChannelClosed
        send = self._socket.send
        try:
            sent = send(frame, MSG_NOSIGNAL)
            if sent == len(frame):
                return
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise AgentGone from error
        rest = memoryview(frame)[sent:]
        writable = poll()
        writable.register(self._fd, POLLOUT)
        while rest:
            try:
                rest = rest[send(rest, MSG_NOSIGNAL) :]
            except BlockingIOError:
                writable.poll()
            except OSError as error:
                raise AgentGone from error
