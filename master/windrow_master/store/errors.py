"""What can go wrong with a store, each with a text for people: what happened, to what, why, what to do next."""

from __future__ import annotations


class StoreError(Exception):
    """Base of all errors of a store."""


class StorePostponed(StoreError):
    """The transaction was certainly rolled back; the very same group can be committed again later."""


class StoreFull(StorePostponed):
    """There is no room on the disk."""


class StoreBusy(StorePostponed):
    """Another process holds the database locked."""


class StoreBroken(StoreError):
    """Whether the transaction is durable is not known, or the database is damaged: end, and recover by a restart."""


class OwnershipLost(StoreError):
    """A later master owns this store. Nothing was written."""


class StoreUnusable(StoreError):
    """The store cannot be opened."""


class SchemaTooNew(StoreUnusable):
    """It was written by a newer version of Windrow."""


class StateFolderInUse(StoreUnusable):
    """A live master holds the state folder."""

    def __init__(self, message: str, pid: int | None) -> None:
        super().__init__(message)
        self.pid = pid
        """Process id of the other master, on its machine; None when it is not known."""


class NetworkFileSystem(StoreUnusable):
    """The state folder lies on a file system that cannot keep the promises of locks and shared memory."""
