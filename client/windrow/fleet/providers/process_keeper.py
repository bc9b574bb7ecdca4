"""Keeps the agent of one allocation on this machine: starts it, waits for it, and writes down how it ended.

Run as a file: `process_keeper.py FOLDER LOCK-DESCRIPTOR WORD...`, by `windrow.fleet.providers.process`. It outlives the
program of the fleet, of which it is no child: what starts it ends at once. While it lives it holds the lock of the
allocation's folder, so whoever can take that lock knows that it has ended. The agent does not outlive it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
STARTED, ENDED = "pid", "ended"
"""Files of the folder: the number of the keeper's process; what became of the agent, as `exit N` or `signal N`."""


def main() -> None:
    """Become a process of its own that starts the agent, and waits for it."""
    libc = ctypes.CDLL(None, use_errno=True)
    # It has the agent's variables, which may be credentials, and scripts run as its user.
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    folder = Path(sys.argv[1])
    if (keeper := os.fork()) != 0:
        write(folder / STARTED, str(keeper))
        os._exit(0)
    os.set_inheritable(int(sys.argv[2]), False)
    agent: subprocess.Popen[bytes] | None = None
    wanted = False

    def end(number: int, frame: object) -> None:
        nonlocal wanted
        wanted = True
        if agent is not None:
            agent.send_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    try:
        agent = subprocess.Popen(
            sys.argv[3:],
            stdin=subprocess.DEVNULL,
            preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM),  # noqa: PLW1509  there is one thread
        )
    except OSError as error:
        write(folder / ENDED, f"{sys.argv[3]} cannot be run: {error.strerror}")
        return
    if wanted:
        agent.send_signal(signal.SIGTERM)
    code = agent.wait()
    write(folder / ENDED, f"exit {code}" if code >= 0 else f"signal {-code}")


def write(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text)
    part.replace(path)


if __name__ == "__main__":
    main()
