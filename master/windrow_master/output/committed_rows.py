"""Reads the committed rows of a step as they are now, while it runs or after its end; nothing is changed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from windrow_master.core.ids import StepId
from windrow_master.core.states import MiniBatchState
from windrow_master.files.errors import StateDamaged
from windrow_master.output.extents import SegmentReader, Stride, strides
from windrow_master.output.fitting import Fitting, Heads, OtherColumns, fit_all, heads_of
from windrow_master.store.protocol import StoreReader
from windrow_master.store.records import CommittedRange

HAVE_OUTCOME = (MiniBatchState.SUCCEEDED, MiniBatchState.FAILED)


class RowsPiece(NamedTuple):
    """Rows of some mini-batches, one behind the other; or, without `lengths`, a further part of a long one.

    `header`: what stands above all rows so far. `lengths`: of the rows of each mini-batch in `ranges`, in bytes.
    """

    header: bytes
    ranges: Sequence[CommittedRange]
    lengths: Sequence[int]
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
    reader: StoreReader,
    step_id: StepId,
    segments_folder: Path,
    *,
    first: int,
    behind: int | None,
    seen: Seen,
    fitting_of: Callable[[Heads], Fitting],
) -> Iterator[RowsPiece]:
    """The rows of the mini-batches from `first` on and before `behind` (None: all), in output order, without those
    seen.

    `fitting_of`: the fitting of the rows that are committed now. A further call reads what has been committed since.
    Raises StateDamaged, RowsUnreadable.
    """
    names = {row.segment_id: row.name for row in reader.segments_of(step_id)}

    def name_of(segment_id: int) -> str | None:
        if segment_id not in names:
            names.update({row.segment_id: row.name for row in reader.segments_of(step_id)})
        return names.get(segment_id)

    segments = SegmentReader(segments_folder, name_of)

    def heads() -> Iterator[tuple[bytes, bool]]:
        for page in reader.ranges_of(step_id):
            yield from heads_of(segments, [row for row in page if behind is None or row.mini_batch < behind])

    fitted = _Fitted(lambda: fitting_of(heads))
    try:
        for page in reader.ranges_of(step_id, first=first):
            wanted = [row for row in page if row.mini_batch not in seen and (behind is None or row.mini_batch < behind)]
            for stride in strides(wanted):
                yield from _pieces(segments, stride, fitted)
            if behind is not None and page[-1].mini_batch >= behind:
                return
    finally:
        segments.close()


class _Fitted:
    """Fits rows to the columns of all that are committed, which may become more meanwhile."""

    def __init__(self, make: Callable[[], Fitting]) -> None:
        self._make = make
        self._fitting: Fitting | None = None

    def fit(self, rows: bytes, ranges: Sequence[CommittedRange]) -> RowsPiece:
        """The rows of some mini-batches, one behind the other."""
        if self._fitting is not None:
            # Made before these rows were committed, it may not know their columns.
            with contextlib.suppress(OtherColumns):
                return self._piece(self._fitting, rows, ranges)
        self._fitting = self._make()
        return self._piece(self._fitting, rows, ranges)

    def fit_large(self, row: CommittedRange, segments: SegmentReader) -> Iterator[RowsPiece]:
        """The rows of a long one, piece by piece, if they are fit already."""
        fitting = self._fitting = self._fitting or self._make()
        pieces = segments.pieces(row)
        first = next(pieces, b"")
        begin = fitting.copied_from(first)
        if begin is None:
            yield self.fit(b"".join([first, *pieces]), (row,))
            return
        yield RowsPiece(fitting.header, (row,), (row.length - begin,), first[begin:])
        for piece in pieces:
            yield RowsPiece(fitting.header, (), (), piece)

    def _piece(self, fitting: Fitting, rows: bytes, ranges: Sequence[CommittedRange]) -> RowsPiece:
        content, lengths = fit_all(rows, ranges, fitting)
        return RowsPiece(fitting.header, ranges, lengths, content)


def _pieces(segments: SegmentReader, stride: Stride, fitted: _Fitted) -> Iterator[RowsPiece]:
    if not stride.large:
        lost: list[CommittedRange] = []
        content = segments.read(stride.ranges, lost)
        if lost:
            raise _damaged(lost[0])
        yield fitted.fit(content, stride.ranges)
        return
    (row,) = stride.ranges
    # Verified as a whole before any of it is given away.
    if not segments.is_sound(row):
        raise _damaged(row)
    yield from fitted.fit_large(row, segments)


def _damaged(row: CommittedRange) -> StateDamaged:
    return StateDamaged(
        f"the rows of mini-batch {row.mini_batch}",
        "they fail their checksum. When the output is made, the mini-batch runs again",
    )
