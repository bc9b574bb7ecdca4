"""The real SQLite store under the simulation, beside the plain tables: every load must be the same from both."""

from __future__ import annotations

from sim_tables import IncarnationSuperseded, MemoryTables, SegmentRange
from windrow_master.core.ids import JobKey, StepId
from windrow_master.core.records import Dirty, Snapshot
from windrow_master.store.errors import OwnershipLost
from windrow_master.store.records import ReopenedJob, RowRange, SegmentRow, SegmentState
from windrow_master.store.sqlite.connections import MemoryDatabase
from windrow_master.store.sqlite.store import SqliteStore


class SqliteTables(MemoryTables):
    """Commits to both; loads from SQLite, and compares."""

    def __init__(self) -> None:
        super().__init__()
        self._database = MemoryDatabase()
        self._stores: dict[int, SqliteStore] = {}
        self._segment_ids: dict[str, int] = {}

    def next_incarnation(self) -> int:
        """A store of its own for each incarnation: the older ones lose their ownership."""
        store = SqliteStore.in_memory(self._database)
        self._stores[store.incarnation] = store
        assert store.incarnation == super().next_incarnation()
        return store.incarnation

    def fence(self, incarnation: int) -> None:
        """The store itself refuses, in the transaction."""
        try:
            self._stores[incarnation].commit(Dirty(), [], [])
        except OwnershipLost as error:
            raise IncarnationSuperseded(str(error)) from error

    def commit(self, incarnation: int, dirty: Dirty, ranges: list[SegmentRange]) -> None:
        """Apply one group to both."""
        super().commit(incarnation, dirty, ranges)
        segments: dict[int, SegmentRow] = {}
        places = []
        for at, block in zip(ranges, dirty.row_blocks, strict=True):
            number = self._segment_ids.setdefault(at.segment, incarnation << 32 | len(self._segment_ids) + 1)
            end = at.offset + at.length
            segments[number] = SegmentRow(number, block.step_id, at.segment, incarnation, SegmentState.OPEN, end)
            places.append(RowRange(number, at.offset, at.length, at.crc32))
        self._stores[incarnation].commit(dirty, places, list(segments.values()))

    def reopen(self, job: ReopenedJob) -> Snapshot:
        """Open a job again in both."""
        return self._same(super().reopen(job), self._stores[max(self._stores)].reopen(job))

    def load(self) -> Snapshot:
        """What the store gives, after it was found to be what the plain tables give."""
        return self._same(super().load(), self._stores[max(self._stores)].load())

    def _same(self, mine: Snapshot, theirs: Snapshot) -> Snapshot:
        assert mine.jobs == theirs.jobs, f"jobs: {mine.jobs} {theirs.jobs}"
        assert sorted(mine.nodes) == sorted(theirs.nodes), f"nodes: {mine.nodes} {theirs.nodes}"
        assert mine.ledger == theirs.ledger, f"ledger: {mine.ledger} {theirs.ledger}"
        assert (mine.job_key_last, mine.step_id_last) == (theirs.job_key_last, theirs.step_id_last)
        for plain, stored in zip(mine.steps, theirs.steps, strict=True):
            assert plain.step == stored.step, f"{plain.step} {stored.step}"
            columns = (
                "states",
                "item_firsts",
                "item_counts",
                "recipe_offsets",
                "recipe_lengths",
                "recipe_crcs",
                "lease_ids",
            )
            for name in columns:
                assert getattr(plain, name) == getattr(stored, name), f"step {plain.step.step_id}: {name}"
            assert sorted(plain.attempts) == sorted(stored.attempts), f"step {plain.step.step_id}: attempts"
        return theirs

    def check(self) -> None:
        """As for the plain tables; and what readers of the store see is the same."""
        super().check()
        if not self._stores:
            return
        reader = self._stores[max(self._stores)].reader()
        for key, job in self.jobs.items():
            assert reader.job_by_key(JobKey(key)) == job
        for step_id, rows in self.mini_batches.items():
            stored = [row for page in reader.mini_batches_of(StepId(step_id)) for row in page]
            assert [(row.state, row.items_counted, row.ok_count, row.lease_id) for row in stored] == [
                (row.state, row.items_counted, row.ok_count, row.lease_id) for row in rows
            ], f"step {step_id}: mini-batches"
            places = [place for page in reader.ranges_of(StepId(step_id)) for place in page]
            assert [(place.mini_batch, place.offset, place.length, place.crc32) for place in places] == [
                (at, *row.range[1:]) for at, row in enumerate(rows) if row.range is not None
            ], f"step {step_id}: ranges"
            items = [item for page in reader.item_outcomes_of(StepId(step_id)) for item in page]
            told = {key: rows for key, rows in self.item_outcomes.items() if key[0] == step_id}
            assert sorted(items) == sorted(item for group in told.values() for item in group), f"step {step_id}: items"

    def close(self) -> None:
        """End the database."""
        for store in self._stores.values():
            store.close()
        self._database.drop()
