"""The first code of a worker process, in the user's interpreter (Python 3.8 or newer, standard library only).

`<python> launch.py <boot.py> <config.json> <pid of the agent> <open files> [<policy.json>]` ties the worker's life to
the agent's, restores the soft limit of open files that the agent raised for itself (scripts may use select(), or close
all possible descriptors), confines itself to what the policy gives (`sandbox/confinement.py`), then becomes `boot.py`.
This happens here and not between fork and exec, because Python code in a forked child of a process with gRPC's threads
can deadlock.

No code of the job runs before the process is confined. So the variables of its step are set only then. Where some of
them matter while an interpreter starts, or the interpreter belongs to an environment that the job's list has made, a
policy names the interpreter to start anew, as a confined process; without a policy, that one goes on from here.

Even Python 2 can read this file, so that an interpreter that is too old can be distinguished from a broken one.
"""

import os
import sys

TOO_OLD = 194
"""Exit code for an interpreter that cannot read the worker's code (`death.py`)."""

NOT_CONFINED = 196
"""Exit code where the process could not be confined (`death.py`)."""


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


def _confine(policy_path):
    # type: (str) -> None
    """Confines this process, and sets the variables of the step. Does not return where another interpreter starts."""
    import json

    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "sandbox")
    sys.path.insert(0, folder)
    try:
        import confinement  # type: ignore[import-not-found]

        with open(policy_path) as file:
            policy = json.load(file)
        confinement.confine(policy)
    except Exception as error:
        sys.stderr.write("The script is not started, since it cannot be confined: " + str(error) + "\n")
        sys.stderr.flush()
        os._exit(NOT_CONFINED)
    sys.path.remove(folder)
    del sys.modules["confinement"]
    if policy["python"]:
        command = [policy["python"], os.path.abspath(__file__)] + sys.argv[1:5]  # noqa: RUF005
        os.execve(policy["python"], command, policy["variables"])
    os.environ.update(policy["variables"])


def _main():
    # type: () -> None
    if sys.version_info < (3, 7):
        sys.stderr.write(sys.executable + " is Python " + sys.version.split()[0] + "; scripts need 3.8 or newer.\n")
        sys.exit(TOO_OLD)
    boot, config, agent_pid, open_files = sys.argv[1:5]
    _die_with(int(agent_pid))
    _limit_open_files(int(open_files))
    if len(sys.argv) > 5:
        _confine(sys.argv[5])
    sys.path[0] = os.path.dirname(boot)
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
