"""Errors for people: what happened, to what, why, what to do next; on stderr, or as JSON on stdout."""

from __future__ import annotations

import codecs
import errno
import json
import os
import re
import shutil
import sys
from typing import TextIO

from windrow.cli import exit_codes
from windrow.errors import WindrowError

RED, YELLOW, GREEN, DIM, PLAIN = "\x1b[1;31m", "\x1b[33m", "\x1b[32m", "\x1b[2m", "\x1b[0m"
_BIDIRECTIONAL = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""They change the order in which a line is shown."""
_UNSEEN = (
    *(0x00AD, 0x034F, 0x180E, 0x200B, 0xFEFF),
    *range(0x2060, 0x2065),
    *range(0x206A, 0x2070),
    *range(0xE0000, 0xE0080),
)
"""Nothing is shown of them, so that two names with and without them look alike. Those that join letters of some
scripts, and the parts of pictures (0x200c, 0x200d), are not among them.
"""
_CONTROLS = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    for code in (*range(0x20), *range(0x7F, 0xA0), *_BIDIRECTIONAL, *_UNSEEN, 0x2028, 0x2029)
    if chr(code) not in "\n\t"
}
_COLOURS = {colour: colour.translate(_CONTROLS) for colour in (RED, YELLOW, GREEN, DIM, PLAIN)}
_COLOUR = re.compile("|".join(map(re.escape, _COLOURS)))
_WORD = re.compile(r"(?:(?<=: )|(?<=:        ))windrow .*?(?=  |[.;] |[.;]?$)|`[^`]*`\S*|\S+")
"""What stays on one line: a word, a command in backquotes, and one behind a colon, so that it can be copied."""
CODE_INDENT = "    "
"""Lines that begin with it are tracebacks and code."""
NARROWEST = 20
"""Columns of a terminal below which nothing is gained by breaking lines."""


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


def at_words(text: str, stream: TextIO, hang: int = 0) -> str:
    """The text as a terminal shows it without breaking words: lines that are too long for it end at a word, and
    continue below their own beginning, or at the column `hang`. Elsewhere it is as it was.
    """
    if not is_terminal(stream):
        return text
    try:
        columns = int(os.environ.get("COLUMNS") or os.get_terminal_size(stream.fileno()).columns)
    except (OSError, ValueError):
        columns = shutil.get_terminal_size().columns
    if columns < NARROWEST:
        return text
    return "\n".join(_at_words(line, columns, hang) for line in text.split("\n"))


def _at_words(line: str, columns: int, hang: int) -> str:
    plain = _COLOUR.sub("", line)
    if len(plain) <= columns or (plain.startswith(CODE_INDENT) and not hang):
        return line
    indent = " " * (hang or len(plain) - len(plain.lstrip()))
    shown, width, at = "", 0, 0
    for word in _WORD.finditer(line):
        gap, wide = line[at : word.start()], len(_COLOUR.sub("", word[0]))
        if gap and width > len(indent) and width + len(gap) + wide > columns:
            shown, width, gap = f"{shown}\n{indent}", len(indent), ""
        shown, width, at = shown + gap + word[0], width + len(gap) + wide, word.end()
    return shown + line[at:]


def say(text: str) -> None:
    """Print a message to standard error. Bytes that are not text (in file names) do not stop it."""
    try:
        print(at_words(printable(text, sys.stderr.encoding), sys.stderr), file=sys.stderr, flush=True)
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


def visible(text: str) -> str:
    """The text with control characters and unseen ones as escapes, but for line ends and tabs: names and messages come
    from people and scripts who must not control the terminal of whoever reads them.
    """
    return text.translate(_CONTROLS)


def printable(text: str, encoding: str | None) -> str:
    """The text as the stream can show it; other characters become escapes. Windrow's own colours stay."""
    shown = visible(text)
    for colour, escaped in _COLOURS.items():
        shown = shown.replace(escaped, colour)
    return shown.encode(encoding or "utf-8", "backslashreplace").decode(encoding or "utf-8", "replace")


class RawOutput:
    """Standard output for what others have written: files and pipes get it byte for byte; on a terminal, control
    characters are escapes, and a carriage return begins a line, so that none of it controls the terminal.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace") if is_terminal(sys.stdout) else None

    def write(self, content: bytes) -> None:
        """Write some of it; it may be cut anywhere."""
        if self._decoder is None:
            sys.stdout.buffer.write(content)
        else:
            self.write_text(self._decoder.decode(content))

    def write_text(self, text: str) -> None:
        """Write some text."""
        if self._decoder is not None:
            encoding = sys.stdout.encoding or "utf-8"
            shown = visible(text.replace("\r\n", "\n").replace("\r", "\n"))
            text = shown.encode(encoding, "backslashreplace").decode(encoding, "replace")
        sys.stdout.write(text)

    def flush(self) -> None:
        """Have it shown."""
        sys.stdout.flush()


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
