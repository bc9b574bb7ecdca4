"""What runs first in each process that the embedded mode starts: `python -m windrow.embedded.child MODULE ARGUMENT...`.

Runs MODULE as `python -m MODULE ARGUMENT...` would, and ends the process when the one who started it is gone. How it
knows: its standard input is a pipe whose other end only the starter holds, so the kernel closes it even on kill -9
(and, unlike PR_SET_PDEATHSIG, it does not depend on which thread started the process).

States: following -> ending -> ended.
1. Standard input at its end: SIGTERM to itself (the module's own orderly end), an agent's again after HURRY_S (one that
   drains ends at once then), SIGKILL after KILL_S more.
2. The module never sees the pipe: its standard input is /dev/null, and nothing it starts can hold or
   read the pipe.
3. With WINDROW_RUN_FOLDER set (a master's), that folder (the socket's) is removed at the end, unless by kill -9, when
   the starter is gone. Else the starter removes it: the other process that it has started may still begin in there.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time

from windrow.common import garbage_collector
from windrow.embedded.state_folder import RUN_FOLDER_VARIABLE, remove_run_folder

HURRY_S = 1.0
KILL_S = 5.0


starter_is_gone = threading.Event()


def follow(pipe: int, run_folder: str) -> None:
    """Wait for the end of the pipe, then end this process."""
    while True:
        try:
            if not os.read(pipe, 1):
                break
        except OSError:
            break
    starter_is_gone.set()
    if run_folder and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        # Still importing: the signal ends it on the spot.
        remove_run_folder(run_folder)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(HURRY_S)
    if not run_folder:
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(KILL_S)
    if run_folder:
        remove_run_folder(run_folder)
    os.kill(os.getpid(), signal.SIGKILL)


def take_lifeline() -> int:
    """The pipe, moved away from standard input, closed in whatever this process starts."""
    pipe = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return pipe


def main() -> None:
    """Follow the starter, then become the module."""
    # Master and agent resume it when they have imported what they need.
    garbage_collector.pause()
    run_folder = os.environ.pop(RUN_FOLDER_VARIABLE, "")
    threading.Thread(target=follow, args=(take_lifeline(), run_folder), name="follow-starter", daemon=True).start()
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        if run_folder and starter_is_gone.is_set():
            remove_run_folder(run_folder)


if __name__ == "__main__":
    main()
