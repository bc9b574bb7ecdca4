"""Problems of a job file, each with its place, collected before anything is raised."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from windrow.common.quantities import counted
from windrow.spec.reading.nodes import Node, Place


class Problem(NamedTuple):
    """An error or a warning.

    `file` is the file as shown to the user, or `--set path=value`; `line` and `column` count from 1, 0 where there is
    none; `key` is the dotted path of the setting, empty for the file as a whole.
    """

    file: str
    line: int
    column: int
    key: str
    message: str

    def __str__(self) -> str:
        """One line that starts with the place, in the form that editors and terminals can open."""
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


def grouped(problems: Iterable[Problem]) -> list[str]:
    """A line for each message, with the first place that it is about, and the number of the others.

    A job file of a hundred steps says the same of each.
    """
    places: dict[str, list[Problem]] = {}
    for problem in problems:
        places.setdefault(problem.message, []).append(problem)
    return [
        str(found[0]) + (f" (So at {counted(len(found) - 1, 'more place')}.)" if len(found) > 1 else "")
        for found in places.values()
    ]


class StepCode(NamedTuple):
    """The code of a step and where the file names it, for checks that look into the code.

    `folder` is absolute, `entry_script` as in the effective step ("" for a command); both exist. `variables` are the
    step's environment variables.
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

    `warnings` and `codes` hold what else was found, for checks that report everything at once.
    """

    def __init__(
        self, problems: Sequence[Problem], warnings: Sequence[Problem] = (), codes: Sequence[StepCode] = ()
    ) -> None:
        super().__init__(*problems)
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)
        self.codes = tuple(codes)

    def __str__(self) -> str:
        """All problems, one a line; if there are several, the first line says how many."""
        lines = [str(problem) for problem in self.problems]
        if len(lines) > 1:
            lines.insert(0, f"{len(lines)} errors:")
        return "\n".join(lines)


class Problems:
    """Collects errors and warnings while a job file is read, so that a user sees all of them at once."""

    def __init__(self) -> None:
        self.errors: list[Problem] = []
        self.warnings: list[Problem] = []
        self.notes: list[Problem] = []
        self.spelled: dict[str, str] = {}
        """The user's spelling of keys that are read by another name (v1, nested pipelines), by prefix."""

    def error(self, place: Place | Node, key: str, message: str) -> None:
        """Notes a problem that keeps the job from running; the same problem at the same place counts once."""
        _note(self.errors, place, self.as_spelled(key), message)

    def warn(self, place: Place | Node, key: str, message: str) -> None:
        """Notes a setting that is accepted but has no effect, or not the one that a reader expects."""
        _note(self.warnings, place, self.as_spelled(key), message)

    def note(self, place: Place | Node, key: str, message: str) -> None:
        """Notes what a reader may want to know, although the job does what they expect."""
        _note(self.notes, place, self.as_spelled(key), message)

    def raise_errors(self) -> None:
        """Raises `JobFileError` if there is an error."""
        if self.errors:
            raise JobFileError(self.errors)

    def as_spelled(self, key: str) -> str:
        """A key in the user's spelling."""
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
    """Names for a message: `a, b, c`, at most 12 of them; `none` if there are none."""
    names = list(names)
    shown = ", ".join(names[:12]) + (f", … ({len(names)} in all)" if len(names) > 12 else "")
    return shown or "none"


def _note(problems: list[Problem], place: Place | Node, key: str, message: str) -> None:
    mark = place.place
    problem = Problem(mark.source.label, mark.line, mark.column, key, message)
    if problem not in problems:
        problems.append(problem)
