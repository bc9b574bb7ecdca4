"""Slurm's commands. Each ends by itself, within a time limit."""

from __future__ import annotations

import os

from windrow.fleet.provider import Unreachable
from windrow.fleet.providers import engine_command

_FILTERS = ("SQUEUE_", "SACCT_", "SCANCEL_", "SCONTROL_", "SLURM_")
"""Variables that change what the commands show, or whom they ask. Where a fleet runs inside a job, it has many."""
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")
_LEFT_OUT = ("SBATCH_ARRAY_INX", "SBATCH_CLUSTERS", "SBATCH_WAIT", "SBATCH_TEST_ONLY")
_SILENCE = (
    "Unable to contact slurm controller",
    "Unable to process configuration file",
    "Could not establish a configuration source",
    "Socket timed out",
    "Zero Bytes were transmitted or received",
    "Communication connection failure",
    "Communication shutdown failure",
    "Message send failure",
    "Message receive failure",
    "Unexpected message received",
    "Insane message length",
    "Protocol authentication error",
    "Protocol version has changed",
    "Slurm backup controller in standby mode",
    "Connection refused",
    "Connection reset by peer",
    "Connection timed out",
    "Transport endpoint",
    "Invalid authentication credential",
    "authentication initialization failure",
    "Unable to connect to database",
    "Failed to connect to",
)
"""By these words, Slurm's commands say that nobody has answered them: what they asked for may have happened or not."""


class Failed(Exception):
    """Slurm has answered, and not done what it was asked for; its message is Slurm's own."""


def run(words: list[str], *, time_limit_s: float, stdin: str = "") -> str:
    """What a command prints. Raises Failed, and Unreachable if nobody answers, or not in time."""
    done = engine_command.run(words, stdin=stdin.encode(), time_limit_s=time_limit_s, environment=_environment())
    if done.code == 0:
        return done.out.decode(errors="replace")
    told = _told(done.err) or f"{words[0]} ended with exit code {done.code}, and said nothing"
    if done.code < 0 or any(silence in told for silence in _SILENCE):
        raise Unreachable(told)
    raise Failed(told)


def _told(stderr: bytes) -> str:
    """What a command has complained of, in one line."""
    return "; ".join(
        dict.fromkeys(line.strip() for line in stderr.decode(errors="replace").splitlines() if line.strip())
    )


def _environment() -> dict[str, str]:
    """The variables of Slurm's commands, without those that hide jobs or name other clusters."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or not (name.startswith(_FILTERS) or name in _LEFT_OUT)
    }
