"""The `windrow` command, for tests that ask for what it says, and not for how it starts."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

WINDROW = str(Path(sys.executable).with_name("windrow"))
OF_PROCESSES = ("agent", "health", "master", "run", "setup")
"""Commands with a start of their own: they import next to nothing, or become another process."""
TOLD_LATER = ("WINDROW_", "XDG_")
READ_LATER = ("HOME", "PYTEST_CURRENT_TEST", "TMPDIR")
"""Variables that nothing reads while it is imported: how names begin, and names."""


class _Nursery:
    """The process that forks commands for this one; started with the first, it ends with this one."""

    def __init__(self) -> None:
        self.environment = dict(os.environ)
        self._socket, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far:
            self._process = subprocess.Popen(
                [sys.executable, Path(__file__).with_name("command_nursery.py"), str(far.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[far.fileno()],
            )
        atexit.register(self._end)

    def _end(self) -> None:
        self._socket.close()
        self._process.communicate()

    def fork(self, request: Mapping[str, object], *descriptors: int) -> None:
        """Make a command with these descriptors."""
        socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)


@functools.cache
def _nursery() -> _Nursery:
    return _Nursery()


def windrow(
    *arguments: str,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    timeout: float = 240.0,
    stdin: str = "",
    together: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. Raises subprocess.TimeoutExpired.

    It is forked from a process that has its imports, unless its start or its environment is another. `stdin`: what it
    may read. `together`: its errors are in its output.
    """
    wanted = dict(os.environ if environment is None else environment)
    if not arguments or arguments[0] in OF_PROCESSES or _other(wanted, _nursery().environment):
        return subprocess.run(
            [WINDROW, *arguments], cwd=cwd, env=wanted, input=stdin, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if together else subprocess.PIPE, text=True, timeout=timeout, check=False,
        )  # fmt: skip
    request = {"arguments": [WINDROW, *arguments], "folder": str(cwd), "environment": wanted}
    given = os.memfd_create("stdin")
    os.pwrite(given, stdin.encode(), 0)
    (out, stdout), (err, stderr), (told, tells) = (os.pipe() for _ in range(3))
    try:
        _nursery().fork(request, given, stdout, stdout if together else stderr, tells)
    finally:
        for descriptor in (given, stdout, stderr, tells):
            os.close(descriptor)
    said: dict[int, bytes] = {out: b"", err: b"", told: b""}
    try:
        in_time = _read(said, time.monotonic() + timeout)
    finally:
        for descriptor in said:
            os.close(descriptor)
    pid, *code = map(int, said[told].split())
    if not in_time:
        # It may have ended, and left the pipes to another.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        raise subprocess.TimeoutExpired(["windrow", *arguments], timeout, said[out], said[err])
    return subprocess.CompletedProcess([WINDROW, *arguments], code[0], said[out].decode(), said[err].decode())


def _other(one: Mapping[str, str], two: Mapping[str, str]) -> bool:
    """Whether what is imported might differ in these two environments."""
    differing = {name for name, _ in set(one.items()) ^ set(two.items())}
    return any(not name.startswith(TOLD_LATER) and name not in READ_LATER for name in differing)


def _read(said: dict[int, bytes], deadline: float) -> bool:
    """Read all that comes through pipes, to the end of each; False when that does not come in time."""
    with selectors.DefaultSelector() as selector:
        for pipe in said:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select(max(0.0, deadline - time.monotonic())):
                data = os.read(key.fd, 1 << 16)
                said[key.fd] += data
                if not data:
                    selector.unregister(key.fd)
            if selector.get_map() and time.monotonic() > deadline:
                return False
    return True
