"""The main file of a worker: `<python> boot.py <config.json>`, or for a replay `boot.py --replay <config.json>`.

It enters our package into `sys.modules` by its folder. Of our folders, only `children` and `offered` stay on
`sys.path`, in last place. So a script's own `worker.py`, `host.py` or `loading.py` is imported as the script's,
whatever our modules are called.

A child that `multiprocessing` spawns (not forks) inside `run()` runs this file again, under the name `__mp_main__`. It
then starts no second host, but makes everything importable that the script could import.
"""

from __future__ import annotations

import os
import sys


def _enter_package():
    # type: () -> None
    """Makes `windrow_worker` importable from this file's folder, without `sys.path`."""
    folder = os.path.dirname(os.path.abspath(__file__))
    package = type(sys)("windrow_worker")
    package.__path__ = [folder]
    package.__file__ = os.path.join(folder, "__init__.py")
    sys.modules["windrow_worker"] = package


def _leave_path():
    # type: () -> None
    """Removes this file's folder from `sys.path`, where Python puts the folder of a script that it starts."""
    folder = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.abspath(sys.path[0]) == folder:
        del sys.path[0]


if __name__ == "__main__":
    _leave_path()
    _enter_package()
    if sys.argv[1:2] == ["--replay"]:
        from windrow_worker.replay import main

        main(sys.argv[2:])
    else:
        from windrow_worker.host import main

        main(sys.argv)
elif __name__ == "__mp_main__":
    _enter_package()
    from windrow_worker.script.spawned_children import serve_spawned_child

    serve_spawned_child()
