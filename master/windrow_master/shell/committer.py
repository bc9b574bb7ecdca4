"""Makes one group durable: its rows into segments, synced; then its transaction. Runs in the committer's thread."""

from __future__ import annotations

from windrow_master.core.records import Dirty
from windrow_master.files.reserve import Reserve
from windrow_master.output.segments import SegmentFull, SegmentWriter
from windrow_master.store.errors import StoreFull, StorePostponed
from windrow_master.store.protocol import Store
from windrow_master.store.records import RowRange, SegmentRow


class CommitPostponed(Exception):
    """The group was certainly rolled back and can be committed again; the text says why, and what to do."""


class Committer:
    """Called with one group at a time.

    When the disk is full it first gives back the space it reserved: that ends well what is in hand. It then goes on
    refusing new work (`short_of_space`) until the reserve could be taken again.
    """

    def __init__(self, store: Store, segments: SegmentWriter, reserve: Reserve) -> None:
        self._store = store
        self._reserve = reserve
        self._segments = segments
        self._placed: tuple[Dirty, list[RowRange], list[SegmentRow]] | None = None
        """The group whose rows are synced but whose transaction is not through: they need not be written again."""
        self.short_of_space = ""
        """Why no new work should be accepted, although groups are committed; "" when all is well."""

    def commit(self, dirty: Dirty) -> None:
        """Make a group durable.

        Raises CommitPostponed (try the same group again), or whatever else went wrong (end, and recover).
        """
        try:
            self._commit(dirty)
        except (SegmentFull, StoreFull) as error:
            if not self._reserve.release():
                raise CommitPostponed(str(error)) from error
            self.short_of_space = f"{error} Until then only what is in hand is brought to an end."
            try:
                self._commit(dirty)
            except (SegmentFull, StorePostponed) as again:
                raise CommitPostponed(str(again)) from again
        except StorePostponed as error:
            raise CommitPostponed(str(error)) from error
        self.take_reserve()

    def take_reserve(self) -> None:
        """Reserve space again, where that was given back and there is room by now: then new work is accepted."""
        if self.short_of_space and self._reserve.restore():
            self.short_of_space = ""

    def _commit(self, dirty: Dirty) -> None:
        if self._placed is None or self._placed[0] is not dirty:
            ranges = self._segments.append(dirty.row_blocks)
            self._placed = (dirty, ranges, self._segments.sync())
        self._store.commit(*self._placed)
        self._placed = None
