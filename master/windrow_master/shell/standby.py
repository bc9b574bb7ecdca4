"""The core of a master, which is loaded when something is to change.

A private master without an agent, over a state folder whose jobs have all ended, is there to answer questions, from the
store. The core, and all that submits, runs and ends jobs, would be a third of its start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from windrow_master.core.states import ENDED_JOBS

if TYPE_CHECKING:
    from windrow_master.core.ids import JobKey
    from windrow_master.core.state import CoreState
    from windrow_master.shell.changes import Changes


class Standby:
    """Has the core loaded once it is needed. Use it on the event loop's thread."""

    def __init__(self, load: Callable[[], Changes]) -> None:
        """`load` is called once, by the first change."""
        self._load = load
        self._loaded: Changes | None = None

    def changes(self) -> Changes:
        """What takes changes. The first call loads the core."""
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded

    @property
    def state(self) -> CoreState | None:
        """The state of the core; None before it is loaded: then no job is unfinished, and no node is known."""
        return None if self._loaded is None else self._loaded.state

    def unfinished(self) -> list[JobKey]:
        """The jobs that have not ended."""
        jobs = {} if self.state is None else self.state.jobs
        return [job.job_key for job in jobs.values() if job.state not in ENDED_JOBS]

    def begin_work(self) -> None:
        """See `Changes.begin_work`."""
        if self._loaded is not None:
            self._loaded.begin_work()

    @property
    def refusal(self) -> str:
        """Why clients cannot make changes now, and what to do; empty if they can."""
        return "" if self._loaded is None else self._loaded.refusal
