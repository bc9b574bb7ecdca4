"""The progress of a job while Python waits for it: a card in notebooks, a bar on terminals, nothing elsewhere."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from windrow.sdk.job import Job

INTERVAL_S = 0.25
"""Notebooks are drawn anew at most this often."""


class ProgressBar(Protocol):
    """Shows one job. All calls come from one thread."""

    def show(self, job: Job) -> None:
        """Take in the current state of the job."""

    def end(self) -> None:
        """Leave screen or cell in order. May be called again."""


def open_bar(wanted: bool, options: str = "") -> ProgressBar:
    """The bar for where this process runs. Nothing is drawn before `show`.

    `options`: what commands about the job need, such as ` --state folder`.
    """
    if wanted and _in_notebook():
        return _Card(options)
    if wanted and sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        return _TerminalBar()
    return _Nothing()


def _in_notebook() -> bool:
    """Whether this process is the kernel of a notebook. IPython is not imported for that."""
    found = sys.modules.get("IPython")
    shell = found.get_ipython() if found is not None else None
    return getattr(shell, "kernel", None) is not None


class _Nothing:
    def show(self, job: Job) -> None:
        pass

    def end(self) -> None:
        pass


class _Shown:
    """What a cell holds: HTML, and one line where a viewer shows none."""

    def __init__(self, job: Job, options: str) -> None:
        self._job, self._options = job, options

    def __repr__(self) -> str:
        from windrow.sdk.job_html import progress_of

        return f"{self._job.job_id} {self._job.state.label}: {progress_of(self._job).words}"

    def _repr_html_(self) -> str:
        from windrow.sdk.job_html import job_html

        return job_html(self._job, self._options)


class _Card:
    def __init__(self, options: str) -> None:
        self._options = options
        self._handle: Any = None
        self._drawn_s = 0.0
        self._undrawn: Job | None = None

    def show(self, job: Job) -> None:
        now_s = time.monotonic()
        self._undrawn = job
        if self._handle is None or now_s - self._drawn_s >= INTERVAL_S:
            self._draw()
            self._drawn_s = now_s

    def end(self) -> None:
        self._draw()

    def _draw(self) -> None:
        job, self._undrawn = self._undrawn, None
        if job is None:
            return
        shown = _Shown(job, self._options)
        if self._handle is None:
            from importlib import import_module

            # By name: it is there in a notebook, and Windrow does not depend on it.
            self._handle = import_module("IPython.display").display(shown, display_id=True)
        else:
            self._handle.update(shown)


class _TerminalBar:
    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def show(self, job: Job) -> None:
        from windrow.sdk.job_html import progress_of

        if self._progress is None:
            self._begin()
        assert self._progress is not None and self._task is not None
        now = progress_of(job)
        self._progress.update(
            self._task,
            total=now.total or None,
            completed=now.ok + now.failed,
            description=f"{job.display_name or job.job_id} {job.state.label}",
            words=now.words,
        )

    def end(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _begin(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[words]}", markup=False),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            # What is printed meanwhile goes above the bar, but not away from a file.
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        )
        self._task = self._progress.add_task("", total=None, words="")
        self._progress.start()
