"""`windrow agent`: turns options into the agent's configuration and becomes an agent."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

from windrow.cli.options.declared import Option, command
from windrow.cli.options.shared import (
    ControlGroupMode,
    Environments,
    EnvironmentsChoice,
    SandboxChoice,
    SandboxMode,
)
from windrow.common.device_packing import DEVICES_MAX
from windrow.common.interpreter import check_interpreter, find_interpreter
from windrow.common.quantities import bytes_in, seconds_in, size
from windrow.common.users import become_user, find_user, look_as, unreadable
from windrow.errors import UsageError
from windrow.rpc.contexts import check_certificates, read_text
from windrow.spec.naming.names import NAME

WORKER_MEMORY_MIN = 32 << 20
"""As in the agent's configuration."""

READABLE = (
    "The agent's user must be able to read what the agent runs. Install Windrow where all users can read it (for "
    "example in /opt/windrow, not in a home folder), make these paths readable (chmod o+rx), or choose another user."
)


@command(
    epilog="Example: windrow agent --master 10.0.0.5:8470 --ca-file ca.pem --join-token-file join-token --slots 8",
    short_help="Run an agent, which works for a master on this machine.",
)
def agent(
    master: Annotated[
        list[str] | None,
        Option(
            "--master",
            envvar="WINDROW_MASTER",
            metavar="ADDRESS",
            help="Address of a master: host:port or unix:/path. Repeatable.",
        ),
    ] = None,
    folder: Annotated[
        # readable: root without its rights cannot read it; the user that it becomes can.
        Path,
        Option(
            "--folder", metavar="DIR", readable=False, help="Folder of the agent, for code, scratch files and logs."
        ),
    ] = Path("windrow-agent"),
    slots: Annotated[
        int | None,
        Option(
            envvar="WINDROW_SLOTS", min=1, max=4096, metavar="N", help="Number of workers [default: one per processor]."
        ),
    ] = None,
    python: Annotated[
        str | None,
        Option(metavar="PATH", help="Interpreter for scripts [default: the active environment's, else Windrow's]."),
    ] = None,
    environments: EnvironmentsChoice = Environments.BUILD,
    environments_folder: Annotated[
        Path | None,
        Option(
            "--environments-folder",
            envvar="WINDROW_ENVIRONMENTS_FOLDER",
            metavar="DIR",
            readable=False,
            help="Folder for built environments [default: the user's cache, else the agent's folder].",
        ),
    ] = None,
    node_id: Annotated[
        str | None, Option("--node-id", metavar="NAME", help="Name of this node [default: the host's name].")
    ] = None,
    label: Annotated[list[str] | None, Option(metavar="KEY=VALUE", help="Label of this node. Repeatable.")] = None,
    pool: Annotated[
        list[str] | None,
        Option(
            envvar="WINDROW_POOL",
            metavar="NAME",
            help="Work only for steps whose compute is NAME or not set [default: for all steps]. Repeatable.",
        ),
    ] = None,
    gpus: Annotated[
        int | None, Option(min=0, max=DEVICES_MAX, metavar="N", help="Number of GPUs for workers [default: all].")
    ] = None,
    memory: Annotated[
        str | None,
        Option(
            envvar="WINDROW_MEMORY",
            metavar="SIZE",
            help="Memory for workers whose steps say how much they need, such as 64GB [default: all that the agent may "
            "use].",
        ),
    ] = None,
    data_cache: Annotated[
        str | None,
        Option(
            "--data-cache",
            envvar="WINDROW_DATA_CACHE",
            metavar="SIZE",
            help="Disk space where what is fetched from object storage stays for later mini-batches and jobs, such as "
            "50GB [default: nothing stays].",
        ),
    ] = None,
    join_token_file: Annotated[
        Path | None,
        Option(
            "--join-token-file",
            envvar="WINDROW_JOIN_TOKEN_FILE",
            metavar="FILE",
            help="File with the join token, which admits nodes to the master.",
        ),
    ] = None,
    ca_file: Annotated[
        Path | None,
        Option(
            "--ca-file",
            envvar="WINDROW_CA_FILE",
            metavar="FILE",
            help="Certificates that vouch for the master; use TLS only.",
        ),
    ] = None,
    insecure: Annotated[
        bool,
        Option("--insecure", help="Send the join token to masters on other machines without TLS."),
    ] = False,
    user: Annotated[
        str | None,
        Option(
            envvar="WINDROW_USER",
            metavar="USER",
            help="As root: become this user after reading the join token, so that no script can read it.",
        ),
    ] = None,
    drain_grace: Annotated[
        float,
        Option(
            envvar="WINDROW_DRAIN_GRACE", min=0, metavar="SECONDS", help="How long work may continue after SIGTERM."
        ),
    ] = 30.0,
    lifetime: Annotated[
        str | None,
        Option(
            envvar="WINDROW_LIFETIME",
            metavar="TIME",
            help="How long this agent lives at most, such as 4h: the time that a batch scheduler gives it. It takes "
            "only work that it can finish, and leaves in time.",
        ),
    ] = None,
    allocation: Annotated[
        str | None,
        Option(
            envvar="WINDROW_ALLOCATION",
            metavar="NAME",
            help="The allocation of a fleet that this agent runs in. Fleets set it.",
        ),
    ] = None,
    exit_idle: Annotated[
        str | None,
        Option(
            "--exit-idle",
            envvar="WINDROW_EXIT_IDLE",
            metavar="TIME",
            help="Leave after so long without work, such as 2min [default: stay].",
        ),
    ] = None,
    preemption_check: Annotated[
        str | None,
        Option(
            "--preemption-check",
            envvar="WINDROW_PREEMPTION_CHECK",
            metavar="COMMAND",
            help="Drain once this command ends with 0 and prints why; 1: all is well. Run every 3 s.",
        ),
    ] = None,
    on_master_lost: Annotated[
        str,
        Option(
            metavar="finish|stop",
            help="While the master is away: finish what the agent holds, or stop when the leases end.",
        ),
    ] = "finish",
    pass_environment: Annotated[
        list[str] | None,
        Option("--pass-env", metavar="NAME", help="Variable of this environment that scripts may see. Repeatable."),
    ] = None,
    sandbox: SandboxChoice = None,
    allow_path: Annotated[
        list[str] | None,
        Option(
            "--allow-path",
            envvar="WINDROW_ALLOW_PATH",
            metavar="PATH[:rw]",
            help="With --sandbox given or strict: a path that all scripts may read; with :rw, also write. Repeatable.",
        ),
    ] = None,
    job_paths: Annotated[
        list[str] | None,
        Option(
            "--job-paths",
            envvar="WINDROW_JOB_PATHS",
            metavar="FOLDER",
            help="With --sandbox given or strict: a folder below which jobs may ask for paths (--allow_path). "
            "Repeatable.",
        ),
    ] = None,
    control_groups: Annotated[
        ControlGroupMode,
        Option(
            "--control-groups",
            envvar="WINDROW_CONTROL_GROUPS",
            help="A control group for each worker, with limits of processes and memory. auto: where this agent may "
            "make some. required: where it may not, it does not start.",
        ),
    ] = ControlGroupMode.AUTO,
    worker_processes: Annotated[
        int | None,
        Option(
            "--worker-processes",
            envvar="WINDROW_WORKER_PROCESSES",
            min=16,
            metavar="N",
            help="With control groups: how many processes and threads a worker may have [default: 4096; more on large "
            "machines; fewer where the agent may not have so many].",
        ),
    ] = None,
    worker_memory: Annotated[
        str | None,
        Option(
            "--worker-memory",
            envvar="WINDROW_WORKER_MEMORY",
            metavar="SIZE",
            help="With control groups: how much memory a worker may use, such as 4GB [default: all that the workers "
            "together may use].",
        ),
    ] = None,
    job_users: Annotated[
        str,
        Option(
            "--job-users",
            envvar="WINDROW_JOB_USERS",
            metavar="off|auto|FIRST-LAST",
            help="As root: run each job as a user of its own, with a number of this range; the first is for builders "
            "of environments. auto: with numbers that nobody has, where this agent may.",
        ),
    ] = "off",
    config: Annotated[
        Path | None,
        Option(
            "--config", metavar="FILE", help="Instead of all options: the configuration as JSON; - for standard input."
        ),
    ] = None,
) -> int:
    """Run an agent, which takes mini-batches from a master and runs them in worker processes on this machine."""
    command = [sys.executable, "-P", "-m", "windrow_agent", "--config"]
    if config is not None:
        os.execv(command[0], [*command, str(config)])
    if not master:
        raise UsageError("Which master? Give --master ADDRESS (host:port or unix:/path), or set WINDROW_MASTER.")
    from windrow.rpc.address import grpc_target

    if ca_file is not None:
        check_certificates(read_text(ca_file, "--ca-file names"), f"The content of {ca_file}")
    interpreter = find_interpreter(python, os.environ)
    check_interpreter(interpreter)
    labels = dict(_label(text) for text in label or ())
    if pool:
        labels["pool"] = ",".join(map(_pool, pool))
    document: dict[str, Any] = {
        "folder": str(folder.absolute()),
        "master_addresses": [grpc_target(address) for text in master for address in text.split(",")],
        "slots": slots,
        "python": interpreter if python else None,
        "environments": environments.value,
        "environments_folder": str(environments_folder.absolute()) if environments_folder else None,
        "node_id": node_id,
        "labels": labels,
        "gpu_count": gpus,
        "memory_bytes": _memory(memory, "--memory") if memory else None,
        "data_cache_bytes_max": _space(data_cache, "--data-cache") if data_cache else None,
        "join_token": read_text(join_token_file, "--join-token-file names") if join_token_file else None,
        "tls_ca_file": str(ca_file.absolute()) if ca_file else None,
        "insecure": insecure or None,
        "drain_grace_s": drain_grace,
        "lifetime_s": _time(lifetime, "--lifetime", "4h") if lifetime else None,
        "allocation": allocation or None,
        "exit_idle_s": _time(exit_idle, "--exit-idle", "2min") if exit_idle else None,
        "preemption_check": _words(preemption_check, "--preemption-check") if preemption_check else None,
        "on_master_lost": on_master_lost,
        "passed_environment": pass_environment or [],
        "sandbox": (sandbox or SandboxMode.AUTO).value,
        "allowed_paths": [_allowed(text) for text in allow_path or ()],
        "job_paths": [str(Path(text).absolute()) for text in job_paths or ()],
        "closed_paths": [str(join_token_file.absolute())] if join_token_file else [],
        "control_groups": control_groups.value,
        "worker_processes_max": worker_processes,
        "worker_memory_bytes_max": _memory(worker_memory, "--worker-memory") if worker_memory else None,
        "job_users": _job_users(job_users, user),
        "served": True,
    }
    if control_groups is ControlGroupMode.OFF and (worker_processes is not None or worker_memory):
        option = "--worker-processes" if worker_processes is not None else "--worker-memory"
        raise UsageError(f"{option} needs control groups, and --control-groups is off. Leave out one of the two.")
    if user is not None:
        needed = _needed(interpreter, ca_file)
        if problems := look_as(user, lambda: [*unreadable(needed), *_closed_folder(folder)]):
            raise UsageError(f"--user {user}: " + "\n".join(problems) + f"\n{READABLE}")
        if control_groups is not ControlGroupMode.OFF:
            _give_control_groups(user, demanded=control_groups is ControlGroupMode.REQUIRED)
        become_user(user)
    elif problems := _closed_folder(folder):
        raise UsageError("\n".join(problems))
    # Not in the arguments, which everybody on the machine may read.
    descriptor = os.memfd_create("windrow-agent-config")
    os.write(descriptor, json.dumps({key: value for key, value in document.items() if value is not None}).encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.dup2(descriptor, 0)
    os.execv(command[0], [*command, "-"])


def _words(text: str, option: str) -> list[str]:
    """A command as words, split as a shell does. Raises UsageError if its program cannot be run."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{option} {text} is no command: {error}.") from error
    if not words or shutil.which(words[0]) is None:
        raise UsageError(f"{option} {text}: there is no program {words[0] if words else ''} that can be run.")
    return words


def _give_control_groups(user: str, *, demanded: bool) -> None:
    """Give that user a control group for this agent, in which the agent then makes those of its workers. Only root
    can. Raises UsageError where they are demanded.
    """
    if os.geteuid() != 0:
        return
    uid, gid, _ = find_user(user)
    command = [sys.executable, "-P", "-m", "windrow_agent.node.delegation", str(uid), str(gid)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode and demanded:
        why = done.stdout.strip() or done.stderr.strip()
        raise UsageError(f"--control-groups required: user {user} can be given no control group here: {why}")
    # Else the agent says in its log, and to the master, that it has none.


def _needed(interpreter: str, ca_file: Path | None) -> dict[str, list[str]]:
    """Existing paths that an agent reads, by what they are."""
    needed = {"Python": [sys.executable, str(Path(os.__file__).parent)]}
    for package in ("windrow", "windrow_agent", "windrow_worker", "grpc"):
        found = importlib.util.find_spec(package)
        if found is not None and found.origin:
            folder = Path(found.origin).parent
            # To find a package, Python lists the folder that holds it.
            needed[f"the package {package}"] = [str(folder.parent), str(folder)]
    needed["the Python of scripts"] = [interpreter]
    if ca_file is not None:
        needed["the certificates"] = [str(ca_file.absolute())]
    return needed


def _closed_folder(folder: Path) -> list[str]:
    """Say in a sentence why this process can neither use nor make an agent's folder; [] if it can."""
    folder = folder.absolute()
    seen = next(place for place in (folder, *folder.parents) if os.access(place, os.F_OK))
    if os.access(seen, os.W_OK | os.X_OK):
        return []
    who = f"this agent runs as user {os.geteuid()}, who cannot write there"
    if seen == folder:
        return [
            f"The agent's folder {folder} belongs to user {folder.stat().st_uid}; {who}. Give it to that user, "
            "or choose another with --folder."
        ]
    return [
        f"The agent's folder {folder} cannot be created: {seen} belongs to user {seen.stat().st_uid}; {who}. Create "
        "the folder and give it to that user, or choose another with --folder."
    ]


def _pool(name: str) -> str:
    name = name.strip().removeprefix("azureml:")
    if not NAME.fullmatch(name):
        raise UsageError(
            f"--pool {name}: this is not a valid pool name. Use the name that job files give as `compute`: at most 64 "
            "ASCII letters, digits, _ and -."
        )
    return name


def _job_users(text: str, user: str | None) -> str:
    if text not in ("off", "auto") and re.fullmatch(r"[0-9]+-[0-9]+", text) is None:
        raise UsageError(f"--job-users {text}: expected off, auto, or a range of user numbers such as 200000-204095.")
    if text not in ("off", "auto"):
        if user is not None:
            raise UsageError(
                f"--job-users {text} needs an agent that stays root, and --user {user} makes it another user. Leave "
                "out one of the two."
            )
        if os.geteuid() != 0:
            raise UsageError(
                f"--job-users {text} needs root, and this agent runs as user {os.geteuid()}: only root starts "
                "processes of other users. Start it as root, or leave the option out."
            )
    return text


def _space(text: str, option: str) -> int:
    found = bytes_in(text)
    if found is None:
        raise UsageError(f"{option} {text}: expected a size such as 4GB, 500MB or 16GiB.")
    return found


def _memory(text: str, option: str) -> int:
    found = _space(text, option)
    if found < WORKER_MEMORY_MIN:
        raise UsageError(f"{option} {text}: a worker needs at least {size(WORKER_MEMORY_MIN)}.")
    return found


def _time(text: str, option: str, example: str) -> int:
    seconds = seconds_in(text)
    if not seconds:
        raise UsageError(f"{option} {text}: expected a time such as {example} (s, min, h, d).")
    return seconds


def _allowed(text: str) -> str:
    path = text.removesuffix(":rw")
    return str(Path(path).absolute()) + text[len(path) :]


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--label {text}: expected KEY=VALUE, for example --label zone=b.")
    return key, value
