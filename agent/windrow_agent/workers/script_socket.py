"""The sockets by which the processes of workers ask the agent: to keep a file, to register a model, to find one.

They are in a folder of their own, not in the agent's: whoever copies that, or the state folder of a run, finds plain
files. Where scripts can write to all but the agent's folder, they are in that one: else a script could put its own
socket in the place of another. What a script hands in comes as open files: so the agent reads nothing that the script
could not read itself.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path

from windrow_agent.node.strays import parent_of
from windrow_agent.workers.noted_folder import PRIVATE, NotedFolder

_WAITING = 64
_CREDENTIALS = struct.Struct("3i")
_GENERATIONS_MAX = 256


class ScriptSocket:
    """The socket of one worker, which listens."""

    def __init__(self, listening: socket.socket, path: Path) -> None:
        self.listening = listening
        self.path = path

    def close(self) -> None:
        """Closes it; its path is gone."""
        self.listening.close()
        self.path.unlink(missing_ok=True)


class SocketFolder:
    """The folder of one agent's sockets."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str], mode: int = PRIVATE, *, inside: bool = False
    ) -> None:
        """`folder`: the agent's. `mode`: of the folder of sockets. `inside`: the sockets lie in the agent's."""
        self._folder = NotedFolder(folder, "sockets", "windrow-ask-", environment, mode, inside=inside)

    def open(self) -> ScriptSocket:
        """A new socket. Raises OSError."""
        base = self._folder.path()
        # By the descriptor of the folder: the name of a socket has at most 107 bytes, and folders may be deeper.
        descriptor = os.open(base, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            name = os.urandom(8).hex()
            listening.bind(f"/proc/self/fd/{descriptor}/{name}")
            listening.listen(_WAITING)
            listening.setblocking(False)
        except BaseException:
            listening.close()
            raise
        finally:
            os.close(descriptor)
        return ScriptSocket(listening, base / name)

    def close(self) -> None:
        """Removes it, as the agent ends."""
        self._folder.close()


def comes_from(connection: socket.socket, ancestor: int, user: int | None = None) -> bool:
    """Whether a process that descends from another one, or is it, has made a connection. One that has left its parents
    does not count: whose it is cannot be told. `user`: the only one that counts, if there is one.
    """
    pid, peer, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if user is not None and peer != user:
        return False
    for _ in range(_GENERATIONS_MAX):
        if pid == ancestor:
            return True
        pid = parent_of(pid)
        if pid <= 1:
            return False
    return False
