"""Whether a process keeps its variables to itself."""

from __future__ import annotations

import os
import subprocess


def as_user() -> tuple[str, ...]:
    """The beginning of a command whose process has no more rights than any user's: those of root hide what is open."""
    return ("setpriv", "--bounding-set=-all", "--inh-caps=-all") if os.geteuid() == 0 else ()


def assert_private(pid: int) -> None:
    """No other process of the user of process `pid`, which was started `as_user`, reads its variables."""
    look = subprocess.run([*as_user(), "cat", f"/proc/{pid}/environ"], capture_output=True, check=False)
    assert (look.returncode, look.stdout) == (1, b""), look.stdout[:80]
    assert b"Permission denied" in look.stderr
