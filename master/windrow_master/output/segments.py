"""Appends rows to segments: files that one master incarnation creates and writes, and that nobody ever changes again.

The state machine of a segment:

    created -> OPEN     its name (`<incarnation>-<n>.rows`) was free; its folder is synced before a commit names it
    OPEN    -> OPEN     appended, synced, named by commits, again and again
    OPEN    -> SEALED   full, idle while too many are open, the writer closed, or any write or sync of it failed
    staged  -> SEALED   a file of `staging`, whole and synced already: becomes a segment when a block names it
    earlier -> SEALED   a segment of an earlier job's step, linked (else copied) here when a block first names it

Invariants:
1. A segment is written to only by the incarnation in its name (O_EXCL), only at its end, only while OPEN.
2. `sync` returns a segment's row only when its content up to `length`, and its name, are on the disk.
3. After a failed write or sync, a segment is never written to or synced again: nobody knows what the kernel did with
   the pages. The rows of the group are appended again, to another segment.
4. Bytes that no committed range names are never read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from windrow_master.core.ids import StepId
from windrow_master.core.records import RowBlock
from windrow_master.crash_points import reach
from windrow_master.files.durable import is_full
from windrow_master.output.file_operations import FileOperations
from windrow_master.output.staging import staged_length
from windrow_master.store.records import RowRange, SegmentRow, SegmentState

SEGMENT_BYTES_MAX = 256 << 20
OPEN_MAX = 128
"""Segments open at once; far below the usual limit of descriptors."""
NUMBER_SHIFT = 32


class SegmentError(Exception):
    """Rows could not be appended or synced; nothing of the group may be committed."""


class SegmentFull(SegmentError):
    """The disk is full. The same group can be appended again when there is room."""


@dataclass(slots=True)
class _Segment:
    """A segment that is open for writing."""

    segment_id: int
    step_id: StepId
    path: Path
    descriptor: int
    length: int = 0
    synced: int = 0
    named: bool = False
    """Its folder was synced after it was created."""


class SegmentWriter:
    """One per master incarnation; used by the committer's thread alone.

    For each group: `append` all its rows, then `sync`, then commit with what both returned.
    """

    def __init__(
        self,
        incarnation: int,
        folder_of: Callable[[str, StepId], Path],
        *,
        files: FileOperations | None = None,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
    ) -> None:
        """`folder_of(job_id, step_id)`: the step's segments folder, which exists."""
        self._incarnation = incarnation
        self._folder_of = folder_of
        self._files = files or FileOperations()
        self._bytes_max = segment_bytes_max
        self._count = 0
        self._open: dict[StepId, _Segment] = {}
        self._touched: dict[int, _Segment] = {}
        self._sealed: list[SegmentRow] = []
        self._adopted: list[SegmentRow] = []
        self._earlier: dict[tuple[StepId, str], SegmentRow] = {}
        """Segments of earlier jobs that were linked or copied here, by step and path."""

    def append(self, blocks: Sequence[RowBlock]) -> list[RowRange]:
        """Append the rows of a group; `result[i]` says where `blocks[i]` is.

        Raises SegmentFull or SegmentError; then the group can be appended again, whole.
        """
        self._adopted.clear()
        ranges: list[RowRange | None] = [None] * len(blocks)
        inline: dict[StepId, list[int]] = {}
        for number, block in enumerate(blocks):
            if block.source:
                ranges[number] = self._take_over(block)
            elif block.staged_segment:
                ranges[number] = self._adopt(block)
            else:
                inline.setdefault(block.step_id, []).append(number)
        for step_id, numbers in inline.items():
            self._append_inline(step_id, blocks, numbers, ranges)
        reach("segments.appended")
        return [place for place in ranges if place is not None]

    def sync(self) -> list[SegmentRow]:
        """Bring what was appended to the disk; return the segments whose rows the commit must hold.

        Raises SegmentFull or SegmentError; then the group must be appended again.
        """
        touched, self._touched = self._touched, {}
        for segment in touched.values():
            try:
                self._files.sync(segment.descriptor)
                if not segment.named:
                    self._files.sync_folder(segment.path.parent)
                    segment.named = True
            except OSError as error:
                self._seal(segment, error)
                raise _failed("synced", segment.path, error) from error
            segment.synced = segment.length
        reach("segments.synced")
        rows = [self._row(segment, SegmentState.OPEN) for segment in touched.values()]
        rows += self._adopted + self._sealed
        self._adopted, self._sealed = [], []
        for segment in touched.values():
            if segment.length >= self._bytes_max:
                self._seal(segment)
        return rows

    def close(self) -> None:
        """Seal and close all segments."""
        for segment in list(self._open.values()):
            self._seal(segment)

    def _append_inline(
        self, step_id: StepId, blocks: Sequence[RowBlock], numbers: list[int], ranges: list[RowRange | None]
    ) -> None:
        segment = self._open.get(step_id) or self._create(blocks[numbers[0]])
        segment_id, at = segment.segment_id, segment.length
        buffers = []
        for number in numbers:
            rows = blocks[number].rows
            length = len(rows)
            ranges[number] = RowRange(segment_id, at, length, blocks[number].crc32)
            buffers.append(rows)
            at += length
        try:
            self._files.write(segment.descriptor, buffers)
        except OSError as error:
            self._seal(segment, error)
            raise _failed("written", segment.path, error) from error
        segment.length = at
        self._touched[segment_id] = segment

    def _create(self, block: RowBlock) -> _Segment:
        if len(self._open) >= OPEN_MAX:
            idle = next((kept for kept in self._open.values() if kept.segment_id not in self._touched), None)
            if idle is not None:
                self._seal(idle)
        folder = self._folder_of(block.job_id, block.step_id)
        while True:
            self._count += 1
            path = folder / f"{self._incarnation}-{self._count}.rows"
            try:
                descriptor = self._files.create(path)
            except FileExistsError:
                # Only after a restore from a backup: that file is not ours.
                continue
            except OSError as error:
                raise _failed("made", path, error) from error
            break
        reach("segments.created")
        segment = _Segment(self._segment_id(), block.step_id, path, descriptor)
        self._open[block.step_id] = segment
        return segment

    def _adopt(self, block: RowBlock) -> RowRange:
        """A staged file becomes a segment of its own. It was synced, with its name, when it was finished."""
        path = self._folder_of(block.job_id, block.step_id) / block.staged_segment
        length = staged_length(path)
        if length != block.length:
            raise SegmentError(
                f"The staged rows {path} have {'no file' if length is None else f'{length} bytes'}, not the "
                f"{block.length} bytes that their completion names. Nothing of the group was committed."
            )
        self._count += 1
        segment_id = self._segment_id()
        self._adopted.append(
            SegmentRow(segment_id, block.step_id, path.name, self._incarnation, SegmentState.SEALED, block.length)
        )
        return RowRange(segment_id, 0, block.length, block.crc32)

    def _take_over(self, block: RowBlock) -> RowRange:
        """The earlier job may be deleted, so its segment is linked (else copied) into this step's folder."""
        found = self._earlier.get((block.step_id, block.source))
        if found is None:
            found = self._earlier[block.step_id, block.source] = self._bring(block)
        if found not in self._adopted:
            # With each group: it is not known here which group is committed first.
            self._adopted.append(found)
        return RowRange(found.segment_id, block.offset, block.length, block.crc32)

    def _bring(self, block: RowBlock) -> SegmentRow:
        folder, source = self._folder_of(block.job_id, block.step_id), Path(block.source)
        while True:
            self._count += 1
            path = folder / f"{self._incarnation}-{self._count}.rows"
            try:
                length = self._files.link(source, path)
                self._files.sync_folder(folder)
            except FileExistsError:
                continue
            except OSError as error:
                raise _failed("taken over", source, error) from error
            return SegmentRow(
                self._segment_id(), block.step_id, path.name, self._incarnation, SegmentState.SEALED, length
            )

    def _segment_id(self) -> int:
        return self._incarnation << NUMBER_SHIFT | self._count

    def _row(self, segment: _Segment, state: SegmentState) -> SegmentRow:
        return SegmentRow(
            segment.segment_id, segment.step_id, segment.path.name, self._incarnation, state, segment.synced
        )

    def _seal(self, segment: _Segment, error: OSError | None = None) -> None:
        """Never write to a segment again. What it holds beyond its last sync belongs to no commit."""
        if self._open.get(segment.step_id) is segment:
            del self._open[segment.step_id]
        self._touched.pop(segment.segment_id, None)
        with contextlib.suppress(OSError):
            if error is not None and segment.synced == 0:
                # No commit can name it.
                self._files.unlink(segment.path)
            elif error is not None and is_full(error):
                # Room for the same rows elsewhere.
                self._files.truncate(segment.descriptor, segment.synced)
        with contextlib.suppress(OSError):
            self._files.close(segment.descriptor)
        if segment.synced:
            self._sealed.append(self._row(segment, SegmentState.SEALED))


def _failed(what: str, path: Path, error: OSError) -> SegmentError:
    if is_full(error):
        # Without the segment's name: each attempt has another, and the same trouble is reported once.
        text = f"Rows could not be {what} in {path.parent}: {error.strerror}."
        return SegmentFull(f"{text} Free some space on that disk: work then resumes automatically.")
    return SegmentError(f"The segment {path} could not be {what}: {error.strerror}.")
