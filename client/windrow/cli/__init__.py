"""The `windrow` command.

Where to look:

- ``main``       (here) sends the command line where it belongs; nothing else is imported before that.
- ``early``      `windrow run`: reads its options without typer and starts master and agent before anything is imported.
- ``run``        `windrow run` itself.
- ``app``        everything else, and all help texts: the typer application; ``job`` and ``node`` hold its groups.
- ``display``    progress as a live display, as plain lines, or as JSON lines.
- ``tables``, ``messages``, ``completion``: lists, errors and names for people.
"""

from __future__ import annotations

import os
import sys

MODULES = {"master": "windrow_master"}


def main() -> None:
    """The console entry point. Always ends the process, with an exit code of `windrow.cli.exit_codes`."""
    arguments = sys.argv[1:]
    # gRPC's own messages (a connection lost, found again) are not for people; errors reach them through ours.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    if arguments and arguments[0] in MODULES and "_WINDROW_COMPLETE" not in os.environ:
        become(arguments[0], arguments[1:])
    if arguments and arguments[0] == "run" and "_WINDROW_COMPLETE" not in os.environ:
        from windrow.cli import early

        options = early.parse(arguments[1:])
        if options is not None:
            sys.exit(early.run(options))
    from windrow.cli.app import run_app

    sys.exit(run_app())


def become(role: str, arguments: list[str]) -> None:
    """Turn this process into a master: the command line imports neither master nor agent."""
    os.execv(sys.executable, [sys.executable, "-P", "-m", MODULES[role], *arguments])
