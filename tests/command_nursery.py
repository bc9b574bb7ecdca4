"""Forks `windrow` commands for tests: each is a process of its own and runs the command line from its first line, but
what commands import is imported once, here. That takes longer than most commands.

`python command_nursery.py FD`: a Unix socket whose other end only the test process holds.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
from typing import Any

MESSAGE_BYTES_MAX = 1 << 20
IMPORTED = ("windrow.cli.lines.app", "windrow.sdk.client", "rich.console", "rich.table", "typer._adapters")


def born() -> dict[str, Any] | None:
    """Fork a process for each message; it returns its message. None in this one, when the test process is gone."""
    for name in IMPORTED:
        # typer need not have its own as it is today.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()
    asker = socket.socket(fileno=int(sys.argv[1]))
    # Those that wait for commands are waited for by nobody.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        text, descriptors, _, _ = socket.recv_fds(asker, MESSAGE_BYTES_MAX, 4)
        if not text:
            return None
        if os.fork() == 0:
            asker.close()
            return _begun(json.loads(text), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _begun(request: dict[str, Any], stdin: int, stdout: int, stderr: int, told: int) -> dict[str, Any]:
    """Fork once more, tell who is born and with which code it ends, and return in the new process alone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid:
        for descriptor in (stdin, stdout, stderr, *range(3)):
            os.close(descriptor)
        os.write(told, b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        os.write(told, b"%d\n" % os.waitstatus_to_exitcode(status))
        os._exit(0)
    os.close(told)
    for number, descriptor in enumerate((stdin, stdout, stderr)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    return request


if __name__ == "__main__":
    if asked := born():
        sys.argv = asked["arguments"]
        sys.path[0] = os.path.dirname(sys.executable)  # noqa: PTH120
        from windrow.cli import main

        main()
