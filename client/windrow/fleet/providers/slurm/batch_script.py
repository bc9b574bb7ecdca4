"""What sbatch is given for one allocation: its options and the batch script."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

from windrow.fleet.provider import Request
from windrow.fleet.providers.slurm.settings import SlurmSettings

NOTICE_S = 90
"""So long before its time is over, Slurm tells an agent. It may be up to a minute more."""
NOTICE_PART = 10
"""Of a short lifetime, the notice is at most one part in so many."""
_RUN = """\
trap 'kill "$agent"' USR1  # its time is nearly over
trap : TERM                # whoever ends the job tells the agent as well
{agent} &
agent=$!
while wait "$agent"; code=$?; kill -0 "$agent" 2>/dev/null; do :; done
wait "$agent"; code=$?
{removed}
exit "$code"
"""
"""The shell stays, so that it can remove the agent's folder. `wait` also returns when a signal comes."""
MINUTE_S = 60
MEBIBYTE = 1024**2


def submission(settings: SlurmSettings, request: Request) -> list[str]:
    """The command line that submits an allocation; it reads the batch script from its standard input."""
    shape, folder = request.shape, settings.log_path
    words = [
        "sbatch",
        "--parsable",
        f"--job-name={request.name}",
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={max(1, math.ceil(shape.slots))}",
    ]
    if shape.memory_bytes:
        words.append(f"--mem={math.ceil(shape.memory_bytes / MEBIBYTE)}M")
    if shape.gpus:
        words.append(f"--gres=gpu:{shape.gpus}")
    if request.lifetime_s is not None:
        words.append(f"--time={max(1, math.ceil(request.lifetime_s / MINUTE_S))}")
    # To the batch script: without `B:`, Slurm tells job steps alone, and there is none. Not SIGTERM, which Slurm sends
    # to all processes of a job that it ends: the agent would get that twice, and end at once.
    words.append(f"--signal=B:USR1@{_notice_s(request.lifetime_s)}")
    # A job that Slurm has taken away is not started again: whether its agent is still wanted is for the fleet to say.
    words.append("--no-requeue")
    # Nothing of where the fleet runs goes to the nodes: it may hold tokens, and Slurm would store it.
    words.append("--export=NIL")
    words += [f"--chdir={folder}", f"--output={_plain(str(log_file(settings, request.name)))}", "--open-mode=append"]
    for option in ("partition", "account", "qos", "constraint"):
        if value := getattr(settings, option):
            words.append(f"--{option}={value}")
    return [*words, *settings.extra_args]


def batch_script(settings: SlurmSettings, request: Request) -> str:
    """The script that runs on the node. It is a login shell: users have there what they have where they log in."""
    lines = ["#!/bin/bash -l", "# The agent of one allocation of a fleet of Windrow.", *settings.setup]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(request.agent.environment.items())]
    removed = f"rm -rf -- {shlex.quote(request.agent.folder)}" if request.agent.folder else ":"
    return "\n".join(lines) + "\n" + _RUN.format(agent=shlex.join(request.agent.arguments), removed=removed)


def shown(settings: SlurmSettings, request: Request) -> str:
    """What Slurm would be asked for a request, for people."""
    return f"{shlex.join(submission(settings, request))} <<'END'\n{batch_script(settings, request)}END\n"


def log_file(settings: SlurmSettings, name: str) -> Path:
    """Where what an allocation's agent prints goes."""
    return settings.log_path / f"{name}.log"


def _notice_s(lifetime_s: float | None) -> int:
    """Seconds before the end at which the agent is told."""
    return NOTICE_S if lifetime_s is None else max(1, min(NOTICE_S, int(lifetime_s // NOTICE_PART)))


def _plain(path: str) -> str:
    """A path in which sbatch replaces nothing."""
    return path.replace("%", "%%")
