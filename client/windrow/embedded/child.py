"""Runs first in each process of the embedded mode: `python -m windrow.embedded.child MODULE ARGUMENT...`.

It runs MODULE like `python -m MODULE ARGUMENT...`, and ends the process when its starter is gone. Standard input is a
pipe whose other end only the starter holds. The kernel closes that end even after kill -9, and, unlike
PR_SET_PDEATHSIG, it does not matter which thread started the process.

States: following -> ending -> ended.
1. When standard input ends, the process sends itself SIGTERM, for an orderly end. An agent gets a second SIGTERM after
   HURRY_S, which ends a draining one at once. SIGKILL follows after KILL_S more.
2. The module never sees the pipe: its standard input is /dev/null, and nothing that it starts inherits the pipe.
3. If WINDROW_RUN_FOLDER is set (for a master), the process removes that folder, which holds the socket, when its
   starter is gone. Else the starter removes it, since the other process may still need it.
"""

from __future__ import annotations

import atexit
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
        # Still importing, so the signal kills it before it could clean up.
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
    """Take the pipe from standard input, and move it to a descriptor that no child inherits."""
    pipe = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return pipe


def main() -> None:
    """Watch the starter in a thread, and run the module."""
    # Master and agent resume it when they have imported what they need.
    garbage_collector.pause()
    run_folder = os.environ.pop(RUN_FOLDER_VARIABLE, "")
    threading.Thread(target=follow, args=(take_lifeline(), run_folder), name="follow-starter", daemon=True).start()
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    if run_folder:
        atexit.register(clear_behind_starter, run_folder)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def clear_behind_starter(run_folder: str) -> None:
    """Remove the socket's folder if the starter can no longer do it."""
    if starter_is_gone.is_set():
        remove_run_folder(run_folder)


if __name__ == "__main__":
    main()
