"""The progress of a job while Python waits for it: a card in notebooks, a bar on terminals, nothing elsewhere."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from windrow.sdk.client import Client
    from windrow.sdk.figures import Figures
    from windrow.sdk.job import Job, StepReason
    from windrow.sdk.waiting import Lull

INTERVAL_S = 0.25
"""Notebooks are drawn anew at most this often."""
LOOK_FIRST_S = 0.5
LOOK_S = 1.0
LOOK_REST = 20
"""What the job waits for is asked again after LOOK_S, or LOOK_REST times as long as the answer took."""


class ProgressBar(Protocol):
    """Shows one job. All calls come from one thread."""

    def begin(self, client: Client, job_id: str, *, is_new: bool) -> None:
        """Begin to ask what the job waits for. `is_new`: its time counts from now, not from its first step. May be
        called again, with another client.
        """

    def show(self, job: Job) -> None:
        """Take in the current state of the job."""

    def stopping(self, words: str) -> None:
        """Say what happens after an interrupt, before it is raised."""

    def interrupted(self, label: str, words: str) -> None:
        """Show how an interrupted run was left: its state, unless `label` is empty, and what to do. On a terminal, the
        interrupt itself says it.
        """

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
    def begin(self, client: Client, job_id: str, *, is_new: bool) -> None:
        pass

    def show(self, job: Job) -> None:
        pass

    def stopping(self, words: str) -> None:
        pass

    def interrupted(self, label: str, words: str) -> None:
        pass

    def end(self) -> None:
        pass


class _Watched:
    """What bars have in common: the newest state, figures, and what the job waits for, for which a thread asks."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._job: Job | None = None
        self._is_new = True
        self._figures: Figures | None = None
        self._lull: Lull | None = None
        self._reasons: Sequence[StepReason] = ()
        self._closing = threading.Event()

    def begin(self, client: Client, job_id: str, *, is_new: bool) -> None:
        self._stop_asking()
        self._is_new = is_new
        self._closing = threading.Event()
        threading.Thread(target=self._ask, args=(client, job_id, self._closing), daemon=True).start()

    def show(self, job: Job) -> None:
        from windrow.sdk.figures import Figures, age_s
        from windrow.sdk.waiting import Lull

        now = time.monotonic()
        with self._lock:
            if self._figures is None or self._lull is None:
                self._figures, self._lull = Figures(), Lull(now)
                if not self._is_new:
                    self._figures.begin(age_s(job, datetime.now(UTC)), now)
            self._lull.add(job, now)
            self._figures.add(job, now)
            self._job = job
            self._changed()

    def _changed(self) -> None:
        """Draw, if it is time to. Called with the lock."""
        raise NotImplementedError

    def _now(self, job: Job) -> str:
        """What happens at the moment, in words: what the job waits for, else how fast it is; empty once it has
        ended.
        """
        from windrow.sdk.waiting import waiting_line

        if job.state.ended or self._figures is None or self._lull is None:
            return ""
        if self._lull.is_told(time.monotonic()) and (line := waiting_line(job, self._reasons)):
            return line
        return self._figures.pace(job)

    def _ask(self, client: Client, job_id: str, closing: threading.Event) -> None:
        wait_s = LOOK_FIRST_S
        while not closing.wait(wait_s):
            begun_s = time.monotonic()
            try:
                reasons = client.explain(job_id)
            except Exception:  # who follows the job tells what is wrong
                return
            with self._lock:
                if closing.is_set():
                    return
                self._reasons = reasons
                if self._job is not None and not self._job.state.ended:
                    self._changed()
            wait_s = max(LOOK_S, LOOK_REST * (time.monotonic() - begun_s))

    def _stop_asking(self) -> None:
        """Let nothing be drawn by the thread from now on."""
        with self._lock:
            self._closing.set()


class _Shown:
    """What a cell holds: HTML, and one line where a viewer shows none."""

    def __init__(self, job: Job, options: str, now: str, label: str = "") -> None:
        """`now`: what happens at the moment. `label`: as of `job_html`."""
        self._job, self._options, self._now, self._label = job, options, now, label

    def __repr__(self) -> str:
        from windrow.sdk.job_html import progress_of

        now = f"; {self._now}" if self._now else ""
        return f"{self._job.job_id} {self._label or self._job.state.label}: {progress_of(self._job).words}{now}"

    def _repr_html_(self) -> str:
        from windrow.sdk.job_html import job_html

        return job_html(self._job, self._options, self._now, self._label)


class _Card(_Watched):
    def __init__(self, options: str) -> None:
        super().__init__()
        self._options = options
        self._handle: Any = None
        self._drawn_s = 0.0
        self._drawn: Job | None = None

    def _changed(self) -> None:
        if self._handle is None or time.monotonic() - self._drawn_s >= INTERVAL_S:
            self._draw()

    def stopping(self, words: str) -> None:
        self.interrupted("", words)

    def interrupted(self, label: str, words: str) -> None:
        self._stop_asking()
        if self._job is not None and not self._job.state.ended:
            self._draw(label, words)

    def end(self) -> None:
        self._stop_asking()
        if self._job is not self._drawn:
            self._draw()

    def _draw(self, label: str = "", words: str = "") -> None:
        job = self._job
        if job is None:
            return
        self._drawn, self._drawn_s = job, time.monotonic()
        shown = _Shown(job, self._options, words or self._now(job), label)
        if self._handle is None:
            from importlib import import_module

            # By name: it is there in a notebook, and Windrow does not depend on it.
            self._handle = import_module("IPython.display").display(shown, display_id=True)
        else:
            self._handle.update(shown)


class _TerminalBar(_Watched):
    def __init__(self) -> None:
        super().__init__()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._began_s = time.monotonic()

    def show(self, job: Job) -> None:
        if self._job is None and not self._is_new:
            from windrow.sdk.figures import age_s

            self._began_s -= age_s(job, datetime.now(UTC))
        super().show(job)

    def _changed(self) -> None:
        from windrow.sdk.job_html import progress_of

        job = self._job
        if job is None:
            return
        if self._progress is None:
            self._start()
        assert self._progress is not None and self._task is not None
        now = progress_of(job)
        counts = now.words if now.total else ""
        self._progress.update(
            self._task,
            total=now.total or None,
            completed=now.ok + now.failed,
            description=f"{job.display_name or job.job_id} {job.state.label}",
            words=", ".join(filter(None, (counts, self._now(job)))),
        )

    def stopping(self, words: str) -> None:
        self.end()
        print(words, file=sys.stderr, flush=True)

    def interrupted(self, label: str, words: str) -> None:
        pass

    def end(self) -> None:
        self._stop_asking()
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.table import Column

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=8, max_width=40)),
            TextColumn("{task.fields[words]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            # What is printed meanwhile goes above the bar, but not away from a file.
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        )
        self._task = self._progress.add_task("", total=None, words="")
        self._progress.tasks[0].start_time = self._progress.get_time() - (time.monotonic() - self._began_s)
        self._progress.start()
