"""Reads the committed rows of a step as they are now, while it runs or after its end; nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from windrow_master.core.ids import StepId
from windrow_master.core.states import MiniBatchState
from windrow_master.files.errors import StateDamaged
from windrow_master.output.extents import SegmentReader, Stride, strides
from windrow_master.store.protocol import StoreReader
from windrow_master.store.records import CommittedRange

HAVE_OUTCOME = (MiniBatchState.SUCCEEDED, MiniBatchState.FAILED)


class RowsPiece(NamedTuple):
    """Rows of some mini-batches, one behind the other; or, without `ranges`, a further part of a long one."""

    ranges: Sequence[CommittedRange]
    content: bytes


class Seen:
    """Mini-batches that are not wanted any more, a bit each."""

    def __init__(self, bits: bytes) -> None:
        self._bits = bits

    def __contains__(self, mini_batch: int) -> bool:
        at = mini_batch >> 3
        return at < len(self._bits) and bool(self._bits[at] >> (mini_batch & 7) & 1)


def whole_until(reader: StoreReader, step_id: StepId, first: int) -> int:
    """The first mini-batch from `first` on that has no outcome yet."""
    following = first
    for page in reader.mini_batches_of(step_id, first=first):
        for row in page:
            if row.state not in HAVE_OUTCOME:
                return following
            following = row.mini_batch + 1
    return following


def committed_rows(
    reader: StoreReader, step_id: StepId, segments_folder: Path, *, first: int, behind: int | None, seen: Seen
) -> Iterator[RowsPiece]:
    """The rows of the mini-batches from `first` on and before `behind` (None: all), in output order, without those
    seen.

    A further call reads what has been committed since. Raises StateDamaged, RowsUnreadable.
    """
    names = {row.segment_id: row.name for row in reader.segments_of(step_id)}

    def name_of(segment_id: int) -> str | None:
        if segment_id not in names:
            names.update({row.segment_id: row.name for row in reader.segments_of(step_id)})
        return names.get(segment_id)

    segments = SegmentReader(segments_folder, name_of)
    try:
        for page in reader.ranges_of(step_id, first=first):
            wanted = [row for row in page if row.mini_batch not in seen and (behind is None or row.mini_batch < behind)]
            for stride in strides(wanted):
                yield from _pieces(segments, stride)
            if behind is not None and page[-1].mini_batch >= behind:
                return
    finally:
        segments.close()


def _pieces(segments: SegmentReader, stride: Stride) -> Iterator[RowsPiece]:
    if not stride.large:
        lost: list[CommittedRange] = []
        content = segments.read(stride.ranges, lost)
        if lost:
            raise _damaged(lost[0])
        yield RowsPiece(stride.ranges, content)
        return
    (row,) = stride.ranges
    # Verified as a whole before any of it is given away.
    checksum, length = 0, 0
    for piece in segments.pieces(row):
        checksum, length = crc32(piece, checksum), length + len(piece)
    if (checksum, length) != (row.crc32, row.length):
        raise _damaged(row)
    ranges: Sequence[CommittedRange] = stride.ranges
    for piece in segments.pieces(row):
        yield RowsPiece(ranges, piece)
        ranges = ()


def _damaged(row: CommittedRange) -> StateDamaged:
    return StateDamaged(
        f"the rows of mini-batch {row.mini_batch}",
        "they fail their checksum. When the output is made, the mini-batch runs again",
    )
