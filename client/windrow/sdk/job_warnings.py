"""What a job warns of, as Python warnings of class `JobWarning`: each once, at the line of the user's call."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.errors import JobWarning
from windrow.sdk.job import Job

if TYPE_CHECKING:
    from windrow.spec.reading.problems import Problem

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"


class JobWarnings:
    """The warnings that one client, or one run, has told. Several threads may share it."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()

    def tell(self, job: Job) -> None:
        """Warn of what the job warns of. Call it when nothing is left to clean up: users may make warnings errors."""
        for warning in job.warnings:
            if (job.job_id, warning) not in self._told:
                self._told.add((job.job_id, warning))
                # With the id: Python shows equal warnings of one line only once, and two jobs are two matters.
                warnings.warn(f"Job {job.job_id}: {warning}", JobWarning, stacklevel=_level_of_user())

    def tell_file(self, found: Iterable[Problem]) -> None:
        """Warn of what was found in a job file, before it is submitted."""
        from windrow.spec.reading.problems import grouped

        for line in grouped(found):
            warnings.warn(line, JobWarning, stacklevel=_level_of_user())

    def skip(self, job_id: str, found: Iterable[object]) -> None:
        """Take it that the user knows these warnings of a job."""
        self._told.update((job_id, str(warning)) for warning in found)


def _level_of_user() -> int:
    """The level of the innermost frame outside Windrow, as seen by who calls this."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    return level


def _is_ours(file: str) -> bool:
    return file.startswith(_PACKAGE) or file == contextlib.__file__
