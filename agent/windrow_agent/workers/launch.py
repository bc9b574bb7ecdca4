"""The first code of a worker process, in the user's interpreter (Python 3.8 or newer, standard library only).

`<python> launch.py <boot.py> <config.json> <pid of the agent> <open files> <entrances> [<policy.json>]` ties the
worker's life to the agent's, enters its control group (`entrances`: files to write into, joined by colons), restores
the soft limit of open files that the agent raised for itself (scripts may use select(), or close all possible
descriptors), becomes the user of its job (`users.py` of `sandbox/`) and confines itself to what the policy gives
(`confinement.py` and `system_calls.py`), each if the policy says so, then becomes `boot.py`. This happens here and not
between fork and exec, because Python code in a forked child of a process with gRPC's threads can deadlock.

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
"""Exit code where the process could not be confined, not become the user of its job, or not enter its control group
(`death.py`)."""


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


def _enter_groups(entrances):
    # type: (str) -> None
    """Enters the worker's control group: in every tree of groups by one file."""
    for path in entrances.split(os.pathsep):
        try:
            with open(path, "w") as entrance:
                entrance.write("0")
        except EnvironmentError as error:
            sys.stderr.write("The script is not started, since it cannot enter its control group: " + str(error) + "\n")
            sys.stderr.flush()
            os._exit(NOT_CONFINED)


def _limit_open_files(soft):
    # type: (int) -> None
    """Sets the soft limit. Best effort: scripts work without it."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    except Exception:
        pass


def _confine(policy_path, agent_pid):
    # type: (str, int) -> None
    """Becomes the user of the job, confines this process, and sets the variables of the step. Does not return where
    another interpreter starts.
    """
    import json

    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "sandbox")
    sys.path.insert(0, folder)
    try:
        import confinement  # type: ignore[import-not-found]
        import system_calls  # type: ignore[import-not-found]
        import users  # type: ignore[import-not-found]

        with open(policy_path) as file:
            policy = json.load(file)
        if policy["user"]:
            users.become(policy["user"])
            # The kernel forgets it at a change of the user.
            _die_with(agent_pid)
        if policy["confined"] and confinement.confine(policy):
            try:
                system_calls.forbid(set_user=not policy.get("all"))
            except OSError:
                if policy["abi"]:
                    raise
    except Exception as error:
        sys.stderr.write("The script is not started, since it cannot be confined: " + str(error) + "\n")
        sys.stderr.flush()
        os._exit(NOT_CONFINED)
    sys.path.remove(folder)
    del sys.modules["confinement"], sys.modules["system_calls"], sys.modules["users"]
    if policy["python"]:
        command = [policy["python"], os.path.abspath(__file__)] + sys.argv[1:5] + [""]  # noqa: RUF005
        os.execve(policy["python"], command, policy["variables"])
    os.environ.update(policy["variables"])


def _main():
    # type: () -> None
    if sys.version_info < (3, 7):
        sys.stderr.write(sys.executable + " is Python " + sys.version.split()[0] + "; scripts need 3.8 or newer.\n")
        sys.exit(TOO_OLD)
    boot, config, agent_pid, open_files, groups = sys.argv[1:6]
    _die_with(int(agent_pid))
    if groups:
        _enter_groups(groups)
    _limit_open_files(int(open_files))
    if len(sys.argv) > 6:
        _confine(sys.argv[6], int(agent_pid))
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
