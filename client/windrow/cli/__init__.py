"""The `windrow` command.

`main` sends a command line where it belongs and imports nothing before. `windrow run` reads its options and starts its
master and agent before typer is loaded (`run_options`, `run_start`); `windrow health` on a folder of this machine loads
next to nothing (`local_health`); other plain lines load the command that they name (`plain_lines`); all else, and all
help, is the typer application (`app`). Commands that only ask about runs on this machine start their master before
(`asking`).
"""

from __future__ import annotations

import errno
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

CLOSE = 0.75
"""How much an option has to look like another to be taken for it, of 1."""
PROGRAMS = ("master", "setup")


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
    if arguments == ["--version"]:
        import windrow

        print(f"windrow {windrow.__version__}")
        leave(0)
    if arguments and arguments[0] in PROGRAMS and "_WINDROW_COMPLETE" not in os.environ:
        from windrow.cli.cluster.programs import become

        # Leave GRPC_VERBOSITY alone: only gRPC reports callers that it turns away (plain text, a failed handshake).
        become(arguments[0], arguments[1:])
    if arguments and arguments[0] == "health" and "_WINDROW_COMPLETE" not in os.environ:
        from windrow.cli.cluster import local_health

        asked = local_health.parse(arguments[1:])
        if asked is not None:
            leave(local_health.local_health(*asked))
    # Messages of gRPC (a connection lost, found again) mean nothing to users; Windrow reports errors itself.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    if arguments and arguments[0] == "run" and "_WINDROW_COMPLETE" not in os.environ:
        from windrow.cli.options import run_options
        from windrow.cli.running import run_start

        options = run_options.parse(arguments[1:])
        if options is not None:
            leave(run_start.run(options))
        if option := run_options.foreign_option(arguments[1:]):
            leave(refuse_foreign(option, arguments))
    if len(arguments) > 1:
        from windrow.cli.lines import asking

        asking.begin(arguments)
    if "_WINDROW_COMPLETE" not in os.environ:
        from windrow.cli.lines import plain_lines

        if (plain := plain_lines.read(arguments, os.environ)) is not None:
            from windrow.cli.lines.execution import execute

            leave(execute(*plain))
    from windrow.cli.lines.app import run_app

    try:
        if os.environ.get("_WINDROW_COMPLETE") == "complete_bash":
            from windrow.cli.lines import bash_words

            leave(bash_words.complete(run_app))
        code = run_app()
    except OSError as error:
        from windrow.cli.messages import report

        # It reports a full disk behind standard output, and raises anything else.
        code = report(error, "text")
    leave(code)


def refuse_foreign(option: str, arguments: list[str]) -> int:
    """Report an option of `windrow run` that there is not, behind a script. Returns the exit code."""
    from difflib import get_close_matches

    from windrow.cli.messages import report
    from windrow.cli.options.run_options import FLAGS, LISTS, VALUES
    from windrow.errors import UsageError

    close = get_close_matches(option, [*FLAGS, *VALUES, *LISTS], 1, CLOSE)
    meant = f" Did you mean {close[0]}?" if close else ""
    error = UsageError(
        f"`windrow run` has no option {option}.{meant} Options of the script go behind --, at the end: … -- {option} …"
    )
    return report(error, "json" if "json" in arguments or "--format=json" in arguments else "text")


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
    from windrow.common.process_end import end_process

    end_process(code)


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
