"""Runs scripts on machines by the command `ssh`. Each ends by itself, within a time limit."""

from __future__ import annotations

from windrow.fleet.provider import Unreachable
from windrow.fleet.providers import engine_command
from windrow.fleet.providers.ssh.settings import SshSettings

_NOBODY_ASKED = 255
"""The exit code by which ssh tells its own failure from that of the command."""
_WORDS_MAX = 500


class Failed(Exception):
    """The machine has answered, and not done what it was asked for; the message is its own."""


def command(settings: SshSettings, host: str) -> list[str]:
    """The command line that runs a script from standard input on a machine."""
    # The first value that ssh gets for an option holds, so those of the settings come first. Nobody is asked anything;
    # a connection that has gone silent ends; and none is shared, which would outlive the command.
    return [
        "ssh",
        *settings.options,
        "-T",
        "-o",
        "BatchMode=yes",
        "-o",
        f"ConnectTimeout={max(1, int(settings.timeout_s / 2))}",
        "-o",
        "ServerAliveInterval=5",
        "-o",
        "ServerAliveCountMax=2",
        "-o",
        "ControlMaster=no",
        "-o",
        "ControlPath=none",
        "-o",
        "ClearAllForwardings=yes",
        "-o",
        "ForwardAgent=no",
        "-o",
        "LogLevel=ERROR",
        "--",
        host,
        # Whatever shell the user has there.
        "exec sh -s",
    ]


def run(settings: SshSettings, host: str, script: str) -> str:
    """What a script prints. Raises Failed, and Unreachable if the machine does not answer, or not in time."""
    done = engine_command.run(
        command(settings, host), stdin=script.encode(), time_limit_s=settings.timeout_s, asks=host
    )
    words = " ".join(done.err.decode(errors="replace").split())[:_WORDS_MAX]
    if done.code == _NOBODY_ASKED or done.code < 0:
        raise Unreachable(f"{host} cannot be reached: {words or 'ssh says nothing'}")
    if done.code:
        raise Failed(f"{host}: {words or f'exit code {done.code}'}")
    return done.out.decode(errors="replace")
