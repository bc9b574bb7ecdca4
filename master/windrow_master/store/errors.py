"""The errors of a store. Each has a text for people: what happened, to what, why, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow_master.files.errors import StateDamaged, StateError, StateUnusable

if TYPE_CHECKING:
    from windrow_master.store.records import AssetRow


class StorePostponed(StateError):
    """The transaction was certainly rolled back. The same group can be committed again later."""


class StoreFull(StorePostponed):
    """The disk is full."""


class StoreBusy(StorePostponed):
    """Another process holds the database locked."""


class StoreBroken(StateError):
    """It is unknown whether the transaction is durable. The master must end, and recover by a restart."""


class DatabaseDamaged(StateDamaged):
    """The database itself is damaged. A master that finds this stops serving."""


class OwnershipLost(StateError):
    """A later master owns this store. Nothing was written."""


class SchemaTooNew(StateUnusable):
    """The database was written by a newer version of Windrow."""


class NotReopened(Exception):
    """The job has not ended, or has another generation by now. Nothing was changed."""


class JobNotEnded(Exception):
    """The job has not ended, so it cannot be deleted. Nothing was changed."""


class TooManyAssets(Exception):
    """As many assets of this kind as may be are there; `of_project`: of the asset's project. Nothing was written."""

    def __init__(self, of_project: bool) -> None:
        super().__init__("too many of the project" if of_project else "too many of the kind")
        self.of_project = of_project


class AssetExists(Exception):
    """This version of the asset exists already, with another content."""

    def __init__(self, found: AssetRow) -> None:
        super().__init__(f"{found.name}:{found.version} is there already, as {found.type} at {found.path}")
        self.found = found
