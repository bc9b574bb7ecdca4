"""The errors of durable state. Each has a text for people: what happened, to what, why, and what to do next."""

from __future__ import annotations


class StateError(Exception):
    """Base of all errors of durable state: of its files, and of the store (`store.errors`)."""


class StateDamaged(StateError):
    """A durable byte is not what was written: a disk, a copy or a person changed it. A restart does not repair it.

    Code that reads durable state raises this instead of using what it read. All messages about such damage come from
    here.
    """

    consequence = (
        "It is not used. Other parts of the state may be damaged as well. Keep a copy of the state folder as "
        "it is, and check all of it: windrow state check DIR. Then restore the whole folder from a backup, or "
        "save what can still be read: windrow state salvage DIR --to OUT"
    )
    """What follows from the damage, and what to do."""

    def __init__(self, where: str, what: str) -> None:
        """`where`: the file, or the table and row, in words that a person can search for. `what`: how the damage shows,
        without a full stop."""
        super().__init__(f"{where} is damaged: {what}. {self.consequence}")
        self.where = where
        self.what = what


class StateUnusable(StateError):
    """The state cannot be opened."""


class StateFolderInUse(StateUnusable):
    """Another master, which is alive, holds the state folder."""

    def __init__(self, message: str, pid: int | None) -> None:
        super().__init__(message)
        self.pid = pid
        """The process id of the other master, on its machine; None if unknown."""


class NetworkFileSystem(StateUnusable):
    """The state folder is on a file system that cannot keep the promises of locks and shared memory."""
