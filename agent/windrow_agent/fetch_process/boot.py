"""`python -I boot.py FD AGENT`: becomes the fetch process, which gets the agent's credentials when nobody can look into
it.

Scripts run as the same user, and may open everything under `/proc` of a process as soon as it begins. So this one
begins with nothing to see: without the environment of the agent, without modules from its working folder. It closes
itself to others, and then forks: what somebody has opened of it before shows this process, not the one that it forks.
That one reads environment and search path of the agent from the socket FD, and serves it from then on.

Both end with the agent, the process AGENT, by the kernel: neither has to notice it, which one whose thread waits for a
folder that hangs might never do. A thread that the kernel cannot interrupt (state D) keeps its process until then.

Only the standard library is used here: until the search path has come, there is nothing else.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any, NoReturn

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4


def main(descriptor: int, agent: int) -> NoReturn:
    """Does all of it."""
    prctl = ctypes.CDLL(None).prctl
    _end_with(prctl, agent)
    if prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        _refuse("the kernel does not let it hide its memory")
    parent = os.getpid()
    child = os.fork()
    if child:
        # Its end is the agent's only sign of what becomes of the other one.
        os.close(descriptor)
        _, status = os.waitpid(child, 0)
        os._exit(abs(os.waitstatus_to_exitcode(status)))
    _end_with(prctl, parent)
    if _is_traced():
        _refuse("another process traces it")
    channel = socket.socket(fileno=descriptor)
    given = _read_message(channel)
    os.environ.clear()
    os.environ.update(given["environment"])
    sys.path[:] = given["path"]
    from windrow_agent.fetch_process.serving import serve

    serve(channel)


def _end_with(prctl: Any, parent: int) -> None:
    """Has the kernel kill this process when its parent ends."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _refuse(why: str) -> NoReturn:
    sys.stderr.write(f"The fetch process takes no credentials of storage, because {why}.\n")
    sys.stderr.flush()
    os._exit(1)


def _is_traced() -> bool:
    """Whether somebody has begun to trace the process that forked this one, and so traces this one too."""
    status = Path("/proc/self/status").read_bytes()
    return b"\nTracerPid:\t0\n" not in status


def _read_message(channel: socket.socket) -> dict[str, Any]:
    """Reads one message, and not a byte more. Ends the process if the agent has gone."""
    (length,) = struct.unpack("<I", _read(channel, 4))
    message: dict[str, Any] = json.loads(_read(channel, length))
    return message


def _read(channel: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = channel.recv(length - len(data))
        if not more:
            os._exit(0)
        data += more
    return data


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
