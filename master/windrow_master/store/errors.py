"""What can go wrong with a store, each with a text for people: what happened, to what, why, what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow_master.files.errors import StateDamaged, StateError, StateUnusable

if TYPE_CHECKING:
    from windrow_master.store.records import AssetRow


class StorePostponed(StateError):
    """The transaction was certainly rolled back; the very same group can be committed again later."""


class StoreFull(StorePostponed):
    """There is no room on the disk."""


class StoreBusy(StorePostponed):
    """Another process holds the database locked."""


class StoreBroken(StateError):
    """Whether the transaction is durable is not known: end, and recover by a restart."""


class DatabaseDamaged(StateDamaged):
    """The database itself: a master that meets this takes and gives nothing any more."""


class OwnershipLost(StateError):
    """A later master owns this store. Nothing was written."""


class SchemaTooNew(StateUnusable):
    """It was written by a newer version of Windrow."""


class NotReopened(Exception):
    """The job has not ended, or is of another generation by now: nothing was changed."""


class AssetExists(Exception):
    """There is such a version already, and it is something else."""

    def __init__(self, found: AssetRow) -> None:
        super().__init__(f"{found.name}:{found.version} is there already, as {found.type} at {found.path}")
        self.found = found
