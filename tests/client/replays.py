"""`windrow mb replay` as a program of its own: with its output kept, or on a terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time

from client_workspace import DEADLINE_S, MAIN, Workspace


def replay(workspace: Workspace, job: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return workspace.run("mb", "replay", job, *arguments)


class Terminal:
    """The command on a terminal of its own."""

    def __init__(self, workspace: Workspace, *arguments: str) -> None:
        self._fd, far = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"import os; os.login_tty(0); {MAIN}", *arguments],
            cwd=workspace.folder,
            env=workspace.environment(TERM="dumb"),
            stdin=far,
            stdout=far,
            stderr=far,
        )
        os.close(far)
        self.seen = ""

    def wait_for(self, words: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while words not in self.seen:
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self._fd], [], [], left)[0], self.seen
            try:
                data = os.read(self._fd, 65536)
            except OSError:
                data = b""
            assert data, f"{words!r} never came: {self.seen}"
            self.seen += data.decode(errors="replace")

    def type(self, words: str) -> None:
        self.seen = ""
        os.write(self._fd, words.encode())

    def end(self) -> int:
        code = self._process.wait(DEADLINE_S)
        os.close(self._fd)
        return code
