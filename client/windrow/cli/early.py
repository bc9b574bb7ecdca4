"""The first milliseconds of `windrow run`: its options, and the start of master and agent.

Both processes import for a few hundred milliseconds; whatever this one imports before it starts them is added to the
time until the first `run()`. So the options are read here by a few lines of our own. They know the plain cases only:
anything else (--help, a mistake) is left to the typer command of the same name in `windrow.cli.app`, which starts
nothing before it is sure. A test holds the two to the same options.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from windrow.embedded.session import Session

FLAGS = {"--restart": "restart", "--keep-rows": "keep_rows", "--strict": "strict", "--no-progress": "no_progress"}
VALUES = {"--state": "state", "--python": "python", "--slots": "slots", "-o": "output", "--output": "output"}
OUTPUTS = ("text", "json")


class RunOptions:
    """What `windrow run` was told."""

    def __init__(self, job_file: str = "") -> None:
        self.job_file = job_file
        self.sets: list[str] = []
        self.state = os.environ.get("WINDROW_STATE") or ".windrow"
        self.python: str | None = None
        self.slots: int | None = None
        self.restart = False
        self.keep_rows = False
        self.strict = False
        self.no_progress = False
        self.output = "text"


def parse(arguments: list[str]) -> RunOptions | None:
    """The options of a plain, correct command line; None for any other."""
    options = RunOptions()
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=") if argument.startswith("--") else (argument, "", "")
        if argument in FLAGS:
            setattr(options, FLAGS[argument], True)
        elif name in VALUES or name == "--set":
            text = value if equals else next(rest, None)
            if text is None or not _take(options, name, text):
                return None
        elif argument.startswith("-") or options.job_file or not argument:
            return None
        else:
            options.job_file = argument
    return options if options.job_file and not (options.restart and options.keep_rows) else None


def run(options: RunOptions) -> int:
    """Start master and agent, then everything else. Returns the exit code."""
    session: Session | None = None
    error: Exception | None = None
    if os.path.isfile(options.job_file):
        from windrow.embedded.session import open_session
        from windrow.errors import WindrowError

        try:
            session = open_session(
                options.state, with_agent=True, python=absolute_python(options.python), slots=options.slots
            )
        except WindrowError as raised:
            error = raised
        except KeyboardInterrupt:
            return 130
    if error is not None:
        from windrow.cli.messages import report

        return report(error, options.output)
    from windrow.cli.run import run_command

    return run_command(options, session)


def absolute_python(python: str | None) -> str | None:
    """A path below the current folder as an absolute one; a bare name is looked up on PATH. Raises UsageError."""
    if python is None:
        return None
    folders = [""] if os.sep in python else os.environ.get("PATH", "").split(os.pathsep)
    for folder in folders:
        path = os.path.abspath(os.path.join(folder, python))
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    from windrow.errors import UsageError

    raise UsageError(f"--python {python}: there is no such program. Give the interpreter of the script's environment.")


def _take(options: RunOptions, name: str, text: str) -> bool:
    if name == "--set":
        options.sets.append(text)
    elif name == "--slots":
        if not text.isascii() or not text.isdecimal() or not 0 < int(text) <= 4096:
            return False
        options.slots = int(text)
    elif VALUES[name] == "output" and text not in OUTPUTS:
        return False
    else:
        setattr(options, VALUES[name], text)
    return True
