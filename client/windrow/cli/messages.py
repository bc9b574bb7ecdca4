"""Errors for people: what happened, to what, why, what to do next; on stderr, or as JSON on stdout."""

from __future__ import annotations

import errno
import json
import os
import sys

from windrow.cli import exit_codes
from windrow.errors import WindrowError

RED, YELLOW, GREEN, DIM, PLAIN = "\x1b[1;31m", "\x1b[33m", "\x1b[32m", "\x1b[2m", "\x1b[0m"


def is_terminal(stream: object) -> bool:
    """Whether people see the stream in a window, with or without colours."""
    isatty = getattr(stream, "isatty", None)
    return bool(isatty and isatty())


def is_colourful(stream: object) -> bool:
    """Whether the stream is a terminal with colours, and the user wants them (NO_COLOR, TERM=dumb)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(text: str, colour: str, stream: object) -> str:
    """The text in a colour, if the stream shows colours."""
    return f"{colour}{text}{PLAIN}" if is_colourful(stream) else text


def say(text: str) -> None:
    """Print a message to standard error. Bytes that are not text (in file names) do not stop it."""
    try:
        print(printable(text, sys.stderr.encoding), file=sys.stderr, flush=True)
    except OSError as error:
        # A full disk behind `2> log` must not end a run; a missing reader or terminal does.
        if error.errno in (errno.EPIPE, errno.EIO):
            raise


def leave_closed_terminal() -> bool:
    """Discard output if the terminal is gone: writing would fail, and prevent an orderly end.

    Returns whether it is gone.
    """
    import termios

    gone = False
    for descriptor in (1, 2):
        try:
            termios.tcgetattr(descriptor)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                write_nowhere(descriptor)
                gone = True
    return gone


def write_nowhere(descriptor: int) -> None:
    """Discard what is written to a descriptor from now on, without an error."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


def printable(text: str, encoding: str | None) -> str:
    """The text as the stream can show it; other characters become escapes."""
    return text.encode(encoding or "utf-8", "backslashreplace").decode(encoding or "utf-8", "replace")


def report(error: Exception, output: str) -> int:
    """Report a foreseeable error, and return its exit code. Raises any other error again."""
    from windrow.spec.reading.problems import JobFileError

    problems: list[dict[str, object]] = []
    reason = ""
    if isinstance(error, JobFileError):
        code = exit_codes.USAGE
        problems = [problem._asdict() for problem in error.problems]
    elif isinstance(error, WindrowError):
        code, reason = error.exit_code, error.reason
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename is None:
        say(f"windrow: The output cannot be written to standard output: {error.strerror}.")
        return 1
    else:
        raise error
    if output == "json":
        document = {"event": "error", "message": str(error), "reason": reason, "problems": problems, "exit_code": code}
        print(json.dumps(document), flush=True)
    else:
        say(f"{coloured('windrow:', RED, sys.stderr)} {error}")
    return code
