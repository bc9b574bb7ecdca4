"""What a process that the script starts inside `run()` needs in order to unpickle the script's functions.

A child that `multiprocessing` spawns imports the parent's main file, which is `boot.py`, and then looks for
functions and classes by module name; the name of the entry script's module must mean the same file there. Others
(joblib's) only have the parent's `sys.path`: there `children/windrow_entry` does the same for a private name, when
it is asked for.
"""

from __future__ import annotations

import json
import os

from windrow_worker.script import checked_imports, entry_point, entry_script

TYPE_CHECKING = False
if TYPE_CHECKING:
    from windrow_worker.protocol.configuration import Configuration

VARIABLE = "WINDROW_ENTRY"
"""Environment variable that carries it: children inherit their environment, and the configuration file may be gone."""


def announce(configuration: Configuration, entry: entry_point.EntryPoint) -> None:
    """Leaves for spawned children what they need."""
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
