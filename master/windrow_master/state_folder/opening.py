"""Opens a state folder for the one master that may use it: lock, reserve, store."""

from __future__ import annotations

from pathlib import Path

from windrow.common.durable import sync_folder

from windrow_master.files.durable import make_durable
from windrow_master.files.errors import StateUnusable
from windrow_master.files.filesystem import refuse_network
from windrow_master.files.lock import StateLock
from windrow_master.files.reserve import RESERVE_BYTES, Reserve
from windrow_master.files.state_files import StateFiles
from windrow_master.store.errors import StoreFull
from windrow_master.store.protocol import Store, Traces
from windrow_master.store.sqlite.store import SqliteStore


class StateFolder:
    """An open state folder. Until it is closed, no other master can use it."""

    def __init__(self, files: StateFiles, lock: StateLock, reserve: Reserve, store: Store) -> None:
        self.files = files
        self.reserve = reserve
        self.store = store
        self._lock = lock

    @classmethod
    def open(cls, folder: Path, reserve_bytes: int = RESERVE_BYTES) -> StateFolder:
        """Open a folder, and make it if it does not exist.

        Raises StateFolderInUse, NetworkFileSystem, SchemaTooNew, StateUnusable, DatabaseDamaged, StoreBusy, StoreFull.
        """
        files = StateFiles(folder)
        make_durable(folder)
        if not files.database.exists():
            # The process that starts the master may have made the folder just before.
            sync_folder(folder.parent)
        refuse_network(folder)
        lock = StateLock.acquire(files)
        reserve = Reserve(files.reserve, reserve_bytes)
        try:
            _refuse_half_restored(files)
            refuse_links(files)
            traces = Traces(lock.incarnation_before, files.signs_of_use())
            try:
                store = SqliteStore.open(files.database, traces)
            except StoreFull:
                # The reserve is room enough to open the database, show its content and finish current work.
                if not reserve.release():
                    raise
                store = SqliteStore.open(files.database, traces)
        except BaseException:
            lock.release()
            raise
        reserve.restore()
        lock.note(store.incarnation)
        return cls(files, lock, reserve, store)

    def close(self) -> None:
        """Close the store, and release the lock. May be repeated."""
        self.store.close()
        self._lock.release()


def _refuse_half_restored(files: StateFiles) -> None:
    mark = files.unfinished_restore
    if mark.exists():
        raise StateUnusable(
            f"Restoring a backup into {files.folder} did not finish: {mark.name} still exists, and the state is "
            f"incomplete. Restore it again: windrow restore BACKUP --state {files.folder}, or in containers: docker "
            "compose run --rm -T backup --restore < BACKUP"
        )


def refuse_links(files: StateFiles) -> None:
    """Raises StateUnusable if something in the folder is a link: one in the place of the folder of jobs would have all
    that is not a job's deleted where it leads.
    """
    try:
        found = files.links()
    except OSError as error:
        raise StateUnusable(f"The state folder {files.folder} cannot be read: {error.strerror}.") from error
    if found:
        raise StateUnusable(
            f"{found[0]} is a link, and leads to {found[0].readlink()}. Windrow makes no links there, and would write "
            "and delete where this one leads. If you have not made it, do not use this state folder: whoever has made "
            "it may mean harm. To keep the state on another disk, move the whole folder, or mount the disk there."
        )
