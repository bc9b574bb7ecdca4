# ruff: noqa: I002, UP036
"""The first code of a worker process, in the user's interpreter (Python 3.8 or newer, standard library only).

`<python> launch.py <boot.py> <config.json> <pid of the agent> <open files>` ties the worker's life to the agent's,
restores the soft limit of open files that the agent raised for itself (scripts may use select(), or close all possible
descriptors), then becomes `boot.py`. This happens here and not between fork and exec, because Python code in a forked
child of a process with gRPC's threads can deadlock.

Even Python 2 can read this file, so that an interpreter that is too old can be distinguished from a broken one.
"""

import os
import sys

TOO_OLD = 194
"""Exit code for an interpreter that cannot read the worker's code (`death.py`)."""


def _die_with(agent_pid):
    # type: (int) -> None
    """Asks the kernel to kill this process when the agent dies.

    Without ctypes or prctl, the worker notices only that its work channel is closed.
    """
    try:
        import ctypes

        pr_set_pdeathsig, sigkill = 1, 9
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, sigkill, 0, 0, 0)
    except Exception:
        return
    if os.getppid() != agent_pid:
        os._exit(1)


def _limit_open_files(soft):
    # type: (int) -> None
    """Sets the soft limit. Best effort: scripts work without it."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    except Exception:
        pass


def _main():
    # type: () -> None
    if sys.version_info < (3, 7):
        sys.stderr.write(sys.executable + " is Python " + sys.version.split()[0] + "; scripts need 3.8 or newer.\n")
        sys.exit(TOO_OLD)
    boot, config, agent_pid, open_files = sys.argv[1:5]
    sys.path[0] = os.path.dirname(boot)  # noqa: PTH120
    _die_with(int(agent_pid))
    _limit_open_files(int(open_files))
    sys.argv = [boot, config]
    # Exactly like `python boot.py`: its own globals, nothing of ours left in them.
    with open(boot, "rb") as file:
        code = compile(file.read(), boot, "exec")
    namespace = sys.modules["__main__"].__dict__
    for name in [name for name in namespace if not name.startswith("__")]:
        del namespace[name]
    namespace.update(__file__=boot, __doc__=None)
    exec(code, namespace)


if __name__ == "__main__":
    _main()
