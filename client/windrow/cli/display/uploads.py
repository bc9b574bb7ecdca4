"""Shows uploads of a client's data on stderr: a bar on a terminal, otherwise a line for each input. rich is imported
when there is something to draw: most submissions upload no data.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from windrow.cli.messages import is_colourful, say
from windrow.common.quantities import size

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from windrow.transfer.local_data import UploadMoment

REDRAW_S: Final = 0.1
QUIET_S: Final = 0.3
"""No bar is shown for an upload that ends sooner."""


class UploadDisplay:
    """Shows the progress of uploads. It is a context manager, so that the bar is removed whatever happens."""

    def __init__(self, *, quiet: bool = False) -> None:
        """`quiet`: show nothing."""
        self._quiet = quiet
        self._live = is_colourful(sys.stderr) and not quiet
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._shown: tuple[str, str] | None = None
        self._drawn_at = 0.0
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Remove the bar."""
        self._clear()

    def show(self, moment: UploadMoment) -> None:
        """Show the newest state. Any thread may call it, one at a time."""
        from windrow.transfer.local_data import PLACED

        if moment.phase == PLACED:
            self._clear()
            self._began = time.monotonic()
            if not self._quiet:
                say(f"Uploaded {size(moment.total)} of {moment.key}" if moment.done else _there(moment))
            return
        now = time.monotonic()
        if not self._live or now - self._began < QUIET_S:
            return
        changed = self._shown != (moment.key, moment.phase)
        if not changed and now - self._drawn_at < REDRAW_S:
            return
        self._drawn_at = now
        self._draw(moment, changed=changed)

    def _draw(self, moment: UploadMoment, *, changed: bool) -> None:
        if self._progress is None:
            self._progress = _bar()
            self._progress.start()
        if changed:
            if self._task is not None:
                self._progress.remove_task(self._task)
            # An upload may begin in the middle: the rate counts only what is sent now.
            self._task = self._progress.add_task(
                f"{moment.phase} {moment.key}", total=moment.total, completed=moment.done
            )
            self._shown = (moment.key, moment.phase)
        assert self._task is not None
        self._progress.update(self._task, completed=moment.done)
        self._progress.refresh()

    def _clear(self) -> None:
        if self._progress is not None:
            self._progress.stop()
        self._progress = self._task = self._shown = None


def _there(moment: UploadMoment) -> str:
    return f"The master already has {moment.key} ({size(moment.total)})"


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=28),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
