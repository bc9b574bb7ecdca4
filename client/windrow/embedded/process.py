"""One process of the embedded mode: spawn, signal, wait, and the tail of its log."""

# pathlib and subprocess cost milliseconds on the way to the first run().
from __future__ import annotations

import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

POLL_S = 0.005
"""Between two looks at a process, where the kernel has no pidfd."""


class Process:
    """A started process. `pidfd` becomes readable when it ends (-1 where the kernel has none).

    Not the agent's `Process`, which leads a process group and builds an environment.
    """

    def __init__(self, name: str, pid: int, output: int, log: str, log_start: int) -> None:
        self.name = name
        self.pid = pid
        self.output = output
        """Read end of its standard output; -1 when closed."""
        self.log = log
        """File of its standard error."""
        self._log_start = log_start
        self._status: int | None = None
        try:
            self.pidfd = os.pidfd_open(pid)
        except (AttributeError, OSError):
            self.pidfd = -1

    def exit_code(self) -> int | None:
        """The exit code, -N for signal N, or None while the process runs."""
        if self._status is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                # Another wait took its status (a library that reaps all children): it is gone, the reason unknown.
                self._status = -signal.SIGKILL
            else:
                if pid:
                    self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def send(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.exit_code() is None:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def wait(self, seconds: float) -> int | None:
        """Return the exit code if the process ends within this time, else None."""
        deadline = time.monotonic() + seconds
        poller = select.poll()
        if self.pidfd >= 0:
            poller.register(self.pidfd, select.POLLIN)
        while (code := self.exit_code()) is None and (left := deadline - time.monotonic()) > 0:
            poller.poll(1000 * (left if self.pidfd >= 0 else min(left, POLL_S)))
        return code

    def close(self) -> None:
        """Close the descriptors. May be called again."""
        for descriptor in (self.output, self.pidfd):
            if descriptor >= 0:
                os.close(descriptor)
        self.output = self.pidfd = -1

    def said(self, lines: int = 8) -> str:
        """The last lines that the process has written to standard error."""
        try:
            with open(self.log, "rb") as file:
                length = file.seek(0, os.SEEK_END)
                file.seek(max(self._log_start, length - 8192))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.strip().splitlines()[-lines:])


def spawn(
    name: str,
    module: str,
    arguments: list[str],
    *,
    lifeline: int,
    log: str,
    environment: Mapping[str, str] | None = None,
) -> Process:
    """Start `python -m MODULE ARGUMENT...` under `windrow.embedded.child`, in a session of its own.

    `lifeline` is the read end of a pipe whose write end only the starter holds. A session of its own keeps Ctrl-C and
    a closing terminal away from it: its starter decides what these mean. posix_spawn, not fork: safe beside the
    threads of gRPC.
    """
    log_descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    reader, writer = os.pipe()
    try:
        log_start = os.fstat(log_descriptor).st_size
        pid = os.posix_spawn(
            sys.executable,
            # -P: a file in the current folder never shadows a module of Windrow.
            [sys.executable, "-P", "-m", "windrow.embedded.child", module, *arguments],
            {**os.environ, **(environment or {})},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, lifeline, 0),
                (os.POSIX_SPAWN_DUP2, writer, 1),
                (os.POSIX_SPAWN_DUP2, log_descriptor, 2),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE),
        )
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
        os.close(log_descriptor)
    os.set_blocking(reader, False)
    return Process(name, pid, reader, log, log_start)
