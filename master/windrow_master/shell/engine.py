"""Puts together what submits, runs and ends jobs in a master: the core, its writer, and what carries out effects."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from windrow_master.assets import Assets
from windrow_master.config import MasterConfig
from windrow_master.core.core import Core
from windrow_master.core.records import Snapshot
from windrow_master.files.artifacts import ArtifactFolder
from windrow_master.jobs import Jobs
from windrow_master.kept_folders import KeptFolders
from windrow_master.output.segments import SegmentWriter
from windrow_master.output_places import OutputPlaces
from windrow_master.roots import Roots
from windrow_master.shell.carrier import Carrier
from windrow_master.shell.changes import Changes
from windrow_master.shell.clock_watch import ClockWatch
from windrow_master.shell.committer import Committer
from windrow_master.shell.earlier import EarlierJobs
from windrow_master.shell.finishing import Finisher
from windrow_master.shell.open_jobs import OpenJobs
from windrow_master.shell.planner_processes import PlannerProcesses
from windrow_master.shell.reporting import Reporter
from windrow_master.shell.retrying import Retries
from windrow_master.shell.reusing import Reuse
from windrow_master.shell.sorted_rows import SortedRows
from windrow_master.shell.starting import Starter
from windrow_master.shell.submission import Submissions, settings_of
from windrow_master.shell.writer import Writer, moment
from windrow_master.state_folder.opening import StateFolder
from windrow_master.store.errors import DatabaseDamaged
from windrow_master.uploaded_data import UploadedData
from windrow_master.watchers import Watchers

DRAIN_S = 2.0
"""How long the end of a master waits for what was submitted to be durable."""


class Engine:
    """What changes jobs in one master. Use it on the event loop's thread; the caller closes it."""

    def __init__(
        self,
        config: MasterConfig,
        folder: StateFolder,
        snapshot: Snapshot,
        *,
        jobs: Jobs,
        artifacts: ArtifactFolder,
        assets: Assets,
        data: UploadedData,
        outputs: OutputPlaces,
        kept: KeptFolders,
        readable: Roots | None,
        watchers: Watchers,
        reporter: Reporter,
        planners: PlannerProcesses | None,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """Load the core from `snapshot`: what the store held when it was opened. Nothing runs before `start`.

        `kept`: folders that no job writes to. `readable`: the roots that inputs must be below; anywhere if None.
        `planners`: those that have been started already; the caller closes them.
        `on_fatal`: ends the process. Raises DatabaseDamaged.
        """
        files, store = folder.files, folder.store
        places, default = config.places, config.datastores.get("default")
        core = Core(store.incarnation, store.lease_prefix, held=config.embedded, limits=config.limits)
        try:
            core.load(snapshot, settings_of, moment())
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            what = f"its rows of the jobs are not valid: {type(error).__name__}: {error}"
            raise DatabaseDamaged(str(files.database), what) from error

        def segments_of(job_id: str, step_id: int) -> Path:
            return files.step(job_id, step_id).segments

        self._segments = SegmentWriter(store.incarnation, segments_of)
        self._finisher = Finisher(store.reader(), store.record_output, store.incarnation, outputs, assets.register)
        self.open_jobs = OpenJobs(core, files, places, readable)
        self.sorted_rows = SortedRows(files, default, embedded=config.embedded)
        earlier = EarlierJobs(store.reader(), files, data)
        reuse = Reuse(store.reader(), files, places, readable, config.scripts_run_in)
        starter = Starter(
            self.open_jobs,
            outputs,
            self._finisher,
            earlier,
            reuse,
            self.sorted_rows,
            artifacts,
            store.reader(),
            config.limits,
            planners,
        )
        self.carrier = Carrier(
            core, self.open_jobs, starter, self._finisher, reuse, watchers, self.sorted_rows, reporter
        )
        self.writer = Writer(
            core,
            Committer(store, self._segments, folder.reserve),
            self.carrier.carry_out,
            on_fatal=on_fatal,
            clock=ClockWatch(files.clock),
        )
        submissions = Submissions(
            jobs,
            artifacts,
            config.outputs,
            places,
            None if config.embedded else Roots(places.places.values()),
            kept,
            assets,
            earlier,
            config.limits,
            sorts_rows=default is not None,
        )
        self.retries = Retries(jobs, store, self.writer, submissions, self.sorted_rows, outputs)
        self.carrier.attach(self.writer.submit, on_fatal)
        self._changes = Changes(self.writer, submissions, self.retries)

    def start(self) -> Changes:
        """Begin what the core owes, and tick; return what takes changes. Call it once."""
        self.writer.start()
        return self._changes

    async def end_work(self) -> None:
        """End what runs outside the event loop: planners, streams, and outputs that are being made."""
        await self.carrier.close()
        self._finisher.close()

    async def close(self, *, drains: bool) -> None:
        """Close the writer. `drains`: wait, at most DRAIN_S, until what was submitted is durable."""
        if drains:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.writer.drain(), DRAIN_S)
        await self.writer.close()
        self._segments.close()
