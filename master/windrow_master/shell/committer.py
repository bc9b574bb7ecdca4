"""Makes one group durable: appends its rows to segments and syncs them, then commits its transaction.

Runs in the committer's thread.
"""

from __future__ import annotations

from windrow_master.core.records import Dirty
from windrow_master.files.reserve import Reserve
from windrow_master.output.segments import SegmentFull, SegmentWriter
from windrow_master.store.errors import StoreFull, StorePostponed
from windrow_master.store.protocol import Store
from windrow_master.store.records import RowRange, SegmentRow


class CommitPostponed(Exception):
    """The group was certainly rolled back and can be committed again. The text says why, and what to do."""


class Committer:
    """Commits one group at a time.

    When the disk is full, it first releases the reserved space, so that current work can end well. After that it
    refuses new work (`short_of_space`) until it holds the reserve again.
    """

    def __init__(self, store: Store, segments: SegmentWriter, reserve: Reserve) -> None:
        self._store = store
        self._reserve = reserve
        self._segments = segments
        self._placed: tuple[Dirty, list[RowRange], list[SegmentRow]] | None = None
        """The group whose rows are synced but whose transaction did not succeed: its rows are not written again."""
        self.short_of_space = ""
        """Why no new work should be accepted, although groups are committed; empty if new work is accepted."""

    def commit(self, dirty: Dirty) -> None:
        """Make a group durable.

        Raises CommitPostponed if the same group can be tried again. Any other error means: end, and recover.
        """
        try:
            self._commit(dirty)
        except (SegmentFull, StoreFull) as error:
            if not self._reserve.release():
                raise CommitPostponed(str(error)) from error
            self.short_of_space = f"{error} Until then, only current work is finished."
            try:
                self._commit(dirty)
            except (SegmentFull, StorePostponed) as again:
                raise CommitPostponed(str(again)) from again
        except StorePostponed as error:
            raise CommitPostponed(str(error)) from error
        self.take_reserve()

    def take_reserve(self) -> None:
        """Take the reserve again if it was released and there is room. New work is accepted from then on."""
        if self.short_of_space and self._reserve.restore():
            self.short_of_space = ""

    def _commit(self, dirty: Dirty) -> None:
        if self._placed is None or self._placed[0] is not dirty:
            ranges = self._segments.append(dirty.row_blocks)
            self._placed = (dirty, ranges, self._segments.sync())
        self._store.commit(*self._placed)
        self._placed = None
