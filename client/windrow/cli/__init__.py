"""The `windrow` command.

`main` sends a command line where it belongs and imports nothing before. `windrow run` reads its options and starts its
master and agent before typer is loaded (`run_options`, `run_start`); `windrow health` on a folder of this machine loads
next to nothing (`local_health`); all else, and all help, is the typer application (`app`).
"""

from __future__ import annotations

import errno
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

MODULES = {"master": "windrow_master", "setup": "windrow_master.setup"}


def main() -> None:
    """The console entry point. Always ends the process, with an exit code of `windrow.cli.exit_codes`."""
    arguments = sys.argv[1:]
    open_standard_streams()
    try:
        os.getcwd()  # noqa: PTH109  pathlib costs milliseconds here
    except FileNotFoundError:
        print(
            "windrow: The current folder no longer exists. Change to an existing folder, and try again.",
            file=sys.stderr,
        )
        sys.exit(2)
    if arguments and arguments[0] in MODULES and "_WINDROW_COMPLETE" not in os.environ:
        # Leave GRPC_VERBOSITY alone: only gRPC reports callers that it turns away (plain text, a failed handshake).
        become(arguments[0], arguments[1:])
    if arguments and arguments[0] == "health" and "_WINDROW_COMPLETE" not in os.environ:
        from windrow.cli import local_health

        asked = local_health.parse(arguments[1:])
        if asked is not None:
            leave(local_health.local_health(*asked))
    # Messages of gRPC (a connection lost, found again) mean nothing to users; Windrow reports errors itself.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    if arguments and arguments[0] == "run" and "_WINDROW_COMPLETE" not in os.environ:
        from windrow.cli import run_options, run_start

        options = run_options.parse(arguments[1:])
        if options is not None:
            leave(run_start.run(options))
    if "_WINDROW_COMPLETE" not in os.environ:
        leave(_ask(arguments))
    if os.environ["_WINDROW_COMPLETE"] == "complete_bash":
        from windrow.cli.bash_words import complete

        leave(complete(lambda: _run_app(arguments)))
    leave(_run_app(arguments))


def _ask(arguments: list[str]) -> int:
    """Run a command; one that asks about a state folder has its private master started before its own imports."""
    from windrow.cli.early_start import asked_folder

    folder = asked_folder(arguments)
    if folder is None:
        return _run_app(arguments)
    from windrow.embedded import early_session

    try:
        early_session.begin(folder)
        return _run_app(arguments)
    except KeyboardInterrupt:
        return 130
    finally:
        early_session.close()


def _run_app(arguments: list[str]) -> int:
    """Load the application, and run the command; return its exit code, or end the process with it."""
    if arguments and arguments[0] == "agent" and "_WINDROW_COMPLETE" not in os.environ:
        from windrow.cli.agent import run_alone as run_app
    else:
        from windrow.cli.app import run_app

    try:
        return run_app()
    except OSError as error:
        from windrow.cli.messages import report

        # It reports a full disk behind standard output, and raises anything else.
        return report(error, "text")


def leave(code: int) -> NoReturn:
    """End with an exit code, even if the last output cannot be written (a full disk behind `> list` or `2> log`).

    The interpreter would try again at its end, and replace the exit code when that fails.
    """
    # A stream is None if its reader is gone.
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError as error:
            from windrow.cli.messages import write_nowhere

            write_nowhere(stream.fileno())
            if stream is sys.stdout and code == 0 and error.errno != errno.EPIPE:
                print(f"windrow: The output cannot be written to standard output: {error.strerror}.", file=sys.stderr)
                code = 1
    sys.exit(code)


def open_standard_streams() -> None:
    """Open standard streams that the caller has closed (`>&-`): else the next file opened would become one of them."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115  for the life of the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def become(role: str, arguments: list[str]) -> None:
    """Replace this process by a master or `setup`: the command line imports neither master nor agent."""
    os.execv(sys.executable, [sys.executable, "-P", "-m", MODULES[role], *arguments])
