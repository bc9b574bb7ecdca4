"""A package with one module: the entry script, under the private name that it has in a worker.

The folder above is one of the last on `sys.path`, and every process that the script starts inherits that path. So
processes that do not run the parent's main file (joblib's) can import the entry script by name as well, when they
unpickle its functions.
"""

from __future__ import annotations

import os
import sys


def _enter():
    # type: () -> None
    """Does what a child of `multiprocessing` does by running the worker's main file."""
    boot = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "boot.py")
    with open(boot, "rb") as file:
        code = compile(file.read(), boot, "exec")
    exec(code, {"__name__": "__mp_main__", "__file__": boot})


if "windrow_worker.script.spawned_children" not in sys.modules:
    _enter()
