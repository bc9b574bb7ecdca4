"""The options of `windrow run`, read without typer: importing it would delay the start of master and agent.

The reader here knows only the plain cases. All else (--help, a mistake) is left to the typer command of the same name
in `windrow.cli.app`. A test checks that both have the same options.
"""

from __future__ import annotations

import os

FLAGS = {
    "--dry-run": "dry_run",
    "--restart": "restart",
    "--keep-rows": "keep_rows",
    "--exact-row-index": "exact_row_index",
    "--strict": "strict",
    "--tolerate": "tolerate",
    "--no-progress": "no_progress",
}
VALUES = {
    "--since": "since",
    "--state": "state",
    "--python": "python",
    "--environments": "environments",
    "--slots": "slots",
    "-o": "output",
    "--output": "output",
}
LISTS = {"--set": "sets", "--datastore": "datastores"}
CHOICES = {"output": ("text", "json"), "environments": ("build", "own")}


class RunOptions:
    """The options of one `windrow run`."""

    def __init__(self, job_file: str = "") -> None:
        self.job_file = job_file
        self.sets: list[str] = []
        self.datastores: list[str] = []
        self.state = os.environ.get("WINDROW_STATE") or ".windrow"
        self.python: str | None = None
        self.environments = "own" if os.environ.get("WINDROW_ENVIRONMENTS") == "own" else "build"
        self.slots: int | None = None
        self.dry_run = False
        self.since = ""
        self.restart = False
        self.keep_rows = False
        self.exact_row_index = False
        self.strict = False
        self.tolerate = False
        self.no_progress = False
        self.output = "text"
        self.retried = ""
        """The job to retry (`windrow job retry`); then the job file is optional."""


def parse(arguments: list[str]) -> RunOptions | None:
    """The options of a plain, correct command line; None for any other."""
    options = RunOptions()
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=") if argument.startswith("--") else (argument, "", "")
        if argument in FLAGS:
            setattr(options, FLAGS[argument], True)
        elif name in VALUES or name in LISTS:
            text = value if equals else next(rest, None)
            if text is None or not _take(options, name, text):
                return None
        elif argument.startswith("-") or options.job_file or not argument:
            return None
        else:
            options.job_file = argument
    if os.environ.get("WINDROW_ENVIRONMENTS", "build") not in CHOICES["environments"]:
        return None  # typer reports it
    return options if options.job_file and not (options.restart and options.keep_rows) else None


def _take(options: RunOptions, name: str, text: str) -> bool:
    if name in LISTS:
        getattr(options, LISTS[name]).append(text)
    elif name == "--slots":
        if not text.isascii() or not text.isdecimal() or not 0 < int(text) <= 4096:
            return False
        options.slots = int(text)
    elif text not in CHOICES.get(VALUES[name], (text,)):
        return False
    else:
        setattr(options, VALUES[name], text)
    return True
