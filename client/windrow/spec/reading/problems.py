"""What is wrong in a job file: every problem with its place, gathered before anything is raised."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from windrow.spec.reading.nodes import Node, Place


class Problem(NamedTuple):
    """One thing to correct (or, among warnings, to know).

    `file` is the file as shown to the user, or `--set path=value`; `line` and `column` count from 1, 0 where there is
    none; `key` is the dotted path of the setting, empty for the file as a whole.
    """

    file: str
    line: int
    column: int
    key: str
    message: str

    def __str__(self) -> str:
        """One line, led by the place in the form that editors and terminals can open."""
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


class StepCode(NamedTuple):
    """The code that a step names, and where it does: for checks that look into it.

    `folder` is absolute, `entry_script` as in the effective step ("" for a command). The folder is there, and so is the
    script. `variables` are the step's environment variables.
    """

    step: str
    folder: str
    folder_place: Place
    folder_key: str
    entry_script: str = ""
    script_place: Place | None = None
    script_key: str = ""
    variables: Mapping[str, str] = MappingProxyType({})


class JobFileError(Exception):
    """A job file that cannot be run; holds all its problems, in the order of the files.

    `warnings` and `codes` are what else was found before: for checks that tell a user all at once.
    """

    def __init__(
        self, problems: Sequence[Problem], warnings: Sequence[Problem] = (), codes: Sequence[StepCode] = ()
    ) -> None:
        super().__init__(*problems)
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)
        self.codes = tuple(codes)

    def __str__(self) -> str:
        """All problems, one a line, led by their number where there are several."""
        lines = [str(problem) for problem in self.problems]
        if len(lines) > 1:
            lines.insert(0, f"{len(lines)} errors:")
        return "\n".join(lines)


class Problems:
    """Gathers errors and warnings while a job file is read, so that a user sees all of them at once."""

    def __init__(self) -> None:
        self.errors: list[Problem] = []
        self.warnings: list[Problem] = []
        self.spelled: dict[str, str] = {}
        """How the user spells the keys that are read, where otherwise (v1, steps of steps): prefix by prefix."""

    def error(self, place: Place | Node, key: str, message: str) -> None:
        """Notes what keeps the job from running; the same problem of the same place counts once."""
        _note(self.errors, place, self.as_spelled(key), message)

    def warn(self, place: Place | Node, key: str, message: str) -> None:
        """Notes what is accepted but has no effect, or not the one a reader may expect."""
        _note(self.warnings, place, self.as_spelled(key), message)

    def raise_errors(self) -> None:
        """Raises `JobFileError` if there is an error."""
        if self.errors:
            raise JobFileError(self.errors)

    def as_spelled(self, key: str) -> str:
        """A key as the user spells it."""
        known, rest = key, ""
        while self.spelled and known:
            if known in self.spelled:
                return self.spelled[known] + rest
            known, dot, last = known.rpartition(".")
            rest = f"{dot}{last}{rest}"
        return key


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` Did you mean "x"?` for the nearest of `known`, or nothing."""
    # difflib costs 2 ms to import, and only a job file with a mistake in it needs it.
    import difflib

    by_folded = {candidate.casefold(): candidate for candidate in known}
    nearest = difflib.get_close_matches(name.casefold(), list(by_folded), n=1, cutoff=0.6)
    return f' Did you mean "{by_folded[nearest[0]]}"?' if nearest else ""


def listed(names: Iterable[str]) -> str:
    """Names for a message: `a, b, c`, shortened after 12; `none` if there are none."""
    names = list(names)
    shown = ", ".join(names[:12]) + (f", … ({len(names)} in all)" if len(names) > 12 else "")
    return shown or "none"


def _note(problems: list[Problem], place: Place | Node, key: str, message: str) -> None:
    mark = place.place
    problem = Problem(mark.source.label, mark.line, mark.column, key, message)
    if problem not in problems:
        problems.append(problem)
