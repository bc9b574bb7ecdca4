"""The committer: rows before their transaction, a full disk, and no row written twice for one group."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from windrow_master.core.commands import Tick
from windrow_master.core.core import Core
from windrow_master.core.ids import StepId
from windrow_master.core.records import Dirty, EventRow, RowBlock
from windrow_master.output.segments import SegmentWriter
from windrow_master.shell.committer import CommitPostponed, Committer
from windrow_master.shell.writer import Writer
from windrow_master.state_folder.opening import StateFolder
from windrow_master.store.errors import StoreBroken, StoreFull
from windrow_master.store.records import RowRange, SegmentRow

ROWS = b"a,1\nb,2\n"


class FailingStore:
    """A real store whose next commits fail as told."""

    def __init__(self, folder: StateFolder) -> None:
        self._store = folder.store
        self.failures: list[Exception] = []
        self.seen: list[tuple[Sequence[RowRange], Sequence[SegmentRow]]] = []
        self.reserve = folder.reserve

    def commit(self, dirty: Dirty, ranges: Sequence[RowRange], segments: Sequence[SegmentRow]) -> None:
        self.seen.append((ranges, segments))
        if self.failures:
            raise self.failures.pop(0)
        self._store.commit(dirty, ranges, segments)


@pytest.fixture
def bench(tmp_path: Path) -> tuple[FailingStore, Committer, Path]:
    folder = tmp_path / "segments"
    folder.mkdir()
    store = FailingStore(StateFolder.open(tmp_path / "state", reserve_bytes=4096))
    return store, Committer(store, SegmentWriter(1, lambda *_: folder), store.reserve), folder  # type: ignore[arg-type]


def group(name: str) -> Dirty:
    return Dirty(
        events=[EventRow(1.0, None, "test", name)],
        row_blocks=[RowBlock("job", StepId(1), ROWS, "", len(ROWS), 0)],
    )


def test_a_group_that_waits_for_its_transaction_is_not_appended_again(
    bench: tuple[FailingStore, Committer, Path],
) -> None:
    store, committer, folder = bench
    store.reserve.release()
    store.failures = [StoreFull("full"), StoreFull("full")]
    waiting = group("waits")
    for _ in range(2):
        with pytest.raises(CommitPostponed, match="full"):
            committer.commit(waiting)
    committer.commit(waiting)
    assert (folder / "1-1.rows").read_bytes() == ROWS
    assert all(seen == store.seen[0] for seen in store.seen)
    committer.commit(group("next"))
    assert (folder / "1-1.rows").read_bytes() == ROWS * 2


def test_the_reserve_ends_what_is_in_hand_and_new_work_waits_until_it_is_back(
    bench: tuple[FailingStore, Committer, Path],
) -> None:
    store, committer, _ = bench
    assert store.reserve.held
    store.failures = [StoreFull("The disk is full.")]
    committer.commit(group("in hand"))
    # There is room again on this disk, so the reserve came back within the same commit.
    assert store.reserve.held and committer.short_of_space == ""
    assert len(store.seen) == 2


def test_a_master_that_has_nothing_to_commit_takes_new_work_when_there_is_room_again(
    bench: tuple[FailingStore, Committer, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, committer, _ = bench
    statvfs = os.statvfs
    monkeypatch.setattr("os.statvfs", lambda path: SimpleNamespace(f_bavail=0, f_frsize=4096))
    store.failures = [StoreFull("The disk is full.")]
    committer.commit(group("in hand"))
    assert "The disk is full" in committer.short_of_space

    async def ticked() -> str:
        writer = Writer(Core(1, 1), committer, lambda effects: None, on_fatal=lambda error: None)
        await writer.submit(Tick())
        await writer.close()
        return writer.refusal

    assert asyncio.run(ticked())
    monkeypatch.setattr("os.statvfs", statvfs)
    assert asyncio.run(ticked()) == "" and store.reserve.held


def test_any_other_error_goes_up_unchanged(bench: tuple[FailingStore, Committer, Path]) -> None:
    store, committer, _ = bench
    store.failures = [StoreBroken("malformed")]
    with pytest.raises(StoreBroken, match="malformed"):
        committer.commit(group("x"))
