"""Puts the keeper (`retention`) together with the rest of the master."""

from __future__ import annotations

from collections.abc import Callable

from windrow_master.config import MasterConfig
from windrow_master.core import commands
from windrow_master.core.ids import JobKey
from windrow_master.core.refused import Refused
from windrow_master.files.artifacts import ArtifactFolder
from windrow_master.files.state_files import StateFiles
from windrow_master.kept_folders import UPLOADS
from windrow_master.retention.collection import Collection
from windrow_master.retention.keeper import Keeper, Master
from windrow_master.retention.patient_clock import PatientClock
from windrow_master.retention.removal import Removals
from windrow_master.reuse.notes import ReuseNotes
from windrow_master.shell.clock_watch import clocks
from windrow_master.shell.reporting import Reporter
from windrow_master.shell.retrying import Retries
from windrow_master.shell.sorted_rows import SortedRows
from windrow_master.shell.writer import Writer
from windrow_master.store.protocol import Store


def resume_removals(store: Store, files: StateFiles, sorted_rows: SortedRows) -> None:
    """Bring removals that an earlier master began to where nobody finds the jobs. Raises OSError, StateError."""
    Removals(store, files, sorted_rows.remove).resume()


def _since_boot() -> tuple[str, float]:
    now = clocks()
    return now.boot, now.since_boot_s


def make_keeper(
    config: MasterConfig,
    store: Store,
    files: StateFiles,
    artifacts: ArtifactFolder,
    sorted_rows: SortedRows,
    writer: Writer,
    reporter: Reporter | None,
    retries: Retries,
    clock: Callable[[], float] | None = None,
) -> Keeper:
    """The keeper of a master. `clock`: seconds since 1970 [default: that of the machine, if it does not leap]."""
    default = config.datastores.get("default")
    reader = store.reader()

    async def forget(job_key: JobKey) -> Refused | None:
        # Its end may be on its way to the disk.
        await writer.submit(commands.Settle())
        refused: Refused | None = await writer.submit(commands.ForgetJob(job_key))
        return refused

    async def settled(job_key: JobKey) -> None:
        if reporter is not None:
            await reporter.settled(job_key)

    collection = Collection(
        store, files, artifacts, None if default is None else default / UPLOADS, ReuseNotes(files.made).forget
    )
    keeper = Keeper(
        reader,
        files,
        Removals(store, files, sorted_rows.remove),
        collection,
        Master(forget, settled, retries.is_reopening),
        keeps_outputs=config.outputs == files.outputs,
        in_haste=config.embedded,
        # A private master deletes only what somebody asks for, perhaps once a month.
        clock=clock or PatientClock(note=None if config.embedded else files.deletions_clock, since_boot=_since_boot),
    )
    retries.spare(keeper.is_leaving)
    return keeper
