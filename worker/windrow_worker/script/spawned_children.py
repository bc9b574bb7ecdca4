"""Lets processes that the script starts inside `run()` unpickle the script's functions.

A child that `multiprocessing` spawns imports the parent's main file, `boot.py`, and then looks up functions and classes
by module name. So the name of the entry script's module must mean the same file there. Other children (joblib's) only
have the parent's `sys.path`: for them, `children/windrow_entry` does the same when the script's private name is
imported.
"""

from __future__ import annotations

import json
import os

from windrow_worker.script import checked_imports, entry_point, entry_script

TYPE_CHECKING = False
if TYPE_CHECKING:
    from windrow_worker.protocol.configuration import Configuration

VARIABLE = "WINDROW_ENTRY"
"""An environment variable, since children inherit those, and the configuration file may be gone."""


def announce(configuration: Configuration, entry: entry_point.EntryPoint) -> None:
    """Sets the variable for children."""
    os.environ[VARIABLE] = json.dumps(
        {
            "code_folder": configuration.code_folder,
            "code_sums": configuration.code_sums,
            "code_sums_crc32": configuration.code_sums_crc32,
            "host_pid": os.getpid(),
            "module_name": entry.module_name,
            "path": entry.path,
            "entry_script": entry_script.values_of(configuration),
        },
        separators=(",", ":"),
    )


def serve_spawned_child() -> None:
    """Makes the entry script, and the EntryScript class, importable in a spawned child."""
    try:
        told = json.loads(os.environ[VARIABLE])
    except (KeyError, ValueError):
        return  # The script has cleared its environment.
    if told["code_sums"]:
        sums = told["code_sums"], told["code_sums_crc32"]
        checked_imports.begin(told["code_folder"], *sums, told["host_pid"])
    entry_point.make_importable(told["code_folder"], entry_point.EntryPoint(told["module_name"], told["path"]))
    entry_script.offer(told["entry_script"])
