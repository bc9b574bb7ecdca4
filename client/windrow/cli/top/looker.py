"""Asks a master how things are, again and again."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.cli.top.moment import Moment, Watcher
from windrow.common.state_mark import STATE_MARK
from windrow.embedded import state_folder
from windrow.sdk.client import Client

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.sdk.job import Job
    from windrow.sdk.node import Node

JOBS_SHOWN = 50
PATIENCE_S = 0.5


class Looker:
    """Looks at the jobs of a master.

    Over a state folder where no run is live, it needs a master of its own for that, and a run cannot begin beside it.
    So that master ends after each look, and the next look waits until a run has begun, or has been there. The caller
    closes the looker.
    """

    def __init__(self, client: Client, job_id: str | None) -> None:
        """`client`: for the first look; its owner closes it as well. `job_id`: only this job, and its workers."""
        self._client: Client | None = client
        self._job_id = job_id
        self._state = client.state
        self._watcher = Watcher("this machine" if client.is_here else client.connection.address)
        self._seen: tuple[Sequence[Job], Sequence[Node]] = ((), ())
        self._mark: tuple[object, int] | None = None

    def look(self) -> Moment:
        """How things are now. Raises WindrowError."""
        if self._client is None and self._present_mark() == self._mark:
            return self._moment(runs_nothing=True)
        client = self._opened()
        jobs = islice(client.list_jobs(), JOBS_SHOWN) if self._job_id is None else [client.get(self._job_id)]
        self._seen = list(jobs), list(client.list_nodes())
        self._wait_briefly(client)
        runs_nothing = client.runs_nothing
        if runs_nothing:
            self.close()
            self._mark = self._present_mark()
        return self._moment(runs_nothing=runs_nothing)

    def close(self) -> None:
        """Leave the master. May be called again."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _opened(self) -> Client:
        if self._client is None:
            self._client = Client(state=self._state)
            self._wait_briefly(self._client)
        return self._client

    def _wait_briefly(self, client: Client) -> None:
        """Let a later look at a master that does not answer end soon: keys wait for it, and another look follows."""
        client.connection.patience_s = PATIENCE_S
        client.connection.on_wait = lambda message: None

    def _moment(self, *, runs_nothing: bool) -> Moment:
        jobs, nodes = self._seen
        moment = self._watcher.moment(jobs, nodes, time.monotonic(), datetime.now(UTC))
        if self._job_id is not None:
            moment = moment._replace(workers=[one for one in moment.workers if one.job_id == self._job_id])
        return moment._replace(runs_nothing=runs_nothing)

    def _present_mark(self) -> tuple[object, int]:
        """Changes when a run begins over the state folder, and when it ends. Raises StateFolderError."""
        folder = self._state or ""
        endpoint = state_folder.read_endpoint(folder)
        try:
            changed_ns = Path(folder, STATE_MARK).stat().st_mtime_ns
        except OSError:
            changed_ns = 0
        return endpoint and endpoint.get("address"), changed_ns
