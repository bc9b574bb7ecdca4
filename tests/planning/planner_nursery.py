"""Forks planners for tests: each is a process of its own and runs the planner's code from its first line, but what
planners import is imported once, here. Tables need pyarrow, whose import takes longer than most tests.

`python planner_nursery.py FD`: a Unix socket whose other end only the test process holds.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import traceback
from typing import NoReturn

MESSAGE_BYTES_MAX = 1 << 20
IMPORTED = (
    "duckdb",
    "pyarrow.csv",
    "pyarrow.parquet",
    "windrow_master.planning.__main__",
    "windrow_master.planning.file_lists",
    "windrow_master.planning.partitions",
    "windrow_master.planning.mltable_inputs",
)


def main() -> None:
    """Fork a planner for each message with descriptors; wait for one for each message without."""
    for name in IMPORTED:
        importlib.import_module(name)
    asker = socket.socket(fileno=int(sys.argv[1]))
    # A planner that ends wakes nobody: who started it asks for its exit code.
    while True:
        text, descriptors, _, _ = socket.recv_fds(asker, MESSAGE_BYTES_MAX, 2)
        if not text:
            return
        request = json.loads(text)
        if not descriptors:
            _, status = os.waitpid(request["pid"], 0)
            asker.send(b"%d" % os.waitstatus_to_exitcode(status))
            continue
        pid = os.fork()
        if pid == 0:
            asker.close()
            _be_planner(request, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        asker.send(b"%d" % pid)


def _be_planner(request: dict[str, object], stdin: int, stdout: int) -> NoReturn:
    try:
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        os.close(stdin)
        os.close(stdout)
        os.chdir(str(request["folder"]))
        os.environ.clear()
        os.environ.update(request["environment"])  # type: ignore[call-overload]
        from windrow_master.planning.__main__ import main as planner

        planner()
    except BaseException:
        traceback.print_exc()
    os._exit(1)


if __name__ == "__main__":
    main()
