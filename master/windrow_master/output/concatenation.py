"""Makes an output file from committed rows: a pure function of the store's content, which can start over at any time.

The state machine of one concatenation; each arrow is a named crash point:

    nothing -> created -> written -> synced -> recorded -> renamed -> folder synced -> done
    any of them fails -> the temporary file is removed; the target is unchanged, or the whole new output

Invariants:
1. The target is at every moment what it was before, or the whole new output.
2. The store records the output before the rename, so that any later master recognizes the file as its own.
3. Rows are in output order, each verified against the crc32 that its mini-batch was committed with.
4. A file that Windrow did not write, or that was changed since, is never replaced. If its content is, byte for byte,
   that of the new output, it counts as the output and is not touched.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.common.beneath import Folder

from windrow_master.core.ids import JobKey, StepId
from windrow_master.crash_points import reach
from windrow_master.files.durable import is_full
from windrow_master.files.errors import StateDamaged
from windrow_master.output.errors import (
    ColumnUnwritable,
    ConcatenationError,
    ConcatenationStopped,
    OutputFull,
    OutputUnwritable,
    RowsLost,
    RowsOtherwise,
    RowsUnreadable,
    TargetForeign,
)
from windrow_master.output.extents import STRIDE_BYTES, SegmentFile, SegmentReader, strides
from windrow_master.output.file_operations import FileOperations
from windrow_master.output.fitting import ArrowFitting, Fitting, fit_all, heads_of, make_fitting
from windrow_master.output.target import foreign, refuse_foreign, remove_stale, stamp_if_equal, temporary_path
from windrow_master.store.protocol import StoreReader
from windrow_master.store.records import CommittedRange, OutputRow

if TYPE_CHECKING:
    from windrow_master.output.parquet_file import ParquetFile

__all__ = [
    "ConcatenationError",
    "ConcatenationStopped",
    "OutputFull",
    "OutputRequest",
    "OutputUnwritable",
    "RowsLost",
    "RowsUnreadable",
    "TargetForeign",
    "concatenate",
]

LOST_MAX = 10_000
"""Lost mini-batches reported at once; the others are found when these have run again."""


@dataclass(frozen=True, slots=True)
class OutputRequest:
    """An output to be made."""

    job_key: JobKey
    job_id: str
    step_id: StepId
    generation: int
    incarnation: int
    target: Path
    """The file itself."""
    folder: Folder
    """The open folder of the target."""
    segments_folder: Path
    header: bytes | None
    """Of the rows, as `core/headers.py` keeps it."""
    row_format: str = "text"
    """As windrow.spec.settings.schema.ROW_FORMATS."""
    missing: str = ""
    """What stands in CSV for a value that a mini-batch does not have."""
    rows: int | None = None
    """How many the step counted as they were committed; None if it did not count them."""


def concatenate(
    wanted: OutputRequest,
    reader: StoreReader,
    record: Callable[[OutputRow], None],
    *,
    stop: threading.Event | None = None,
    files: FileOperations | None = None,
    warn: Callable[[str], object] | None = None,
) -> OutputRow:
    """Make the output; return what was written. Blocks: call it in a thread of its own.

    `record` makes its argument durable (`Store.record_output`). `warn` takes messages about the rows for the user.

    Raises RowsLost, RowsUnreadable, TargetForeign, OutputFull, OutputUnwritable, ColumnUnwritable,
    ConcatenationStopped, StateDamaged (the number of rows is not the one that was counted); and what reader and record
    raise. The target is then unchanged, or, if only its folder could not be synced, the whole new output.
    """
    return _Concatenation(
        wanted, reader, record, stop or threading.Event(), files or FileOperations(), warn or _unheard
    ).run()


class _Concatenation:
    """One run of the state machine above."""

    def __init__(
        self,
        wanted: OutputRequest,
        reader: StoreReader,
        record: Callable[[OutputRow], None],
        stop: threading.Event,
        files: FileOperations,
        warn: Callable[[str], object],
    ) -> None:
        self._warn = warn
        self._wanted = wanted
        self._reader = reader
        self._record = record
        self._stop = stop
        self._files = files
        self._temporary = temporary_path(
            wanted.target, wanted.job_id, wanted.step_id, wanted.generation, wanted.incarnation
        )
        self._descriptor = -1
        self._hasher = hashlib.sha256()
        self._length = 0
        self._rows = 0
        self._lost: list[CommittedRange] = []
        names = {row.segment_id: row.name for row in reader.segments_of(wanted.step_id)}
        self._segments = SegmentReader(wanted.segments_folder, names.get)

    def run(self) -> OutputRow:
        try:
            return self._make()
        except OSError as error:
            raise self._explained(error) from error
        finally:
            self._segments.close()
            # The file is discarded; closing it on a full network share reports that once more.
            with contextlib.suppress(OSError):
                self._close()
            with contextlib.suppress(OSError):
                self._files.unlink(self._temporary, self._wanted.folder)

    def _make(self) -> OutputRow:
        wanted, files = self._wanted, self._files
        remove_stale(wanted.folder, wanted.target, wanted.job_id, wanted.step_id, self._temporary, files)
        files.unlink(self._temporary, wanted.folder)
        # The usual mode of a new file: outputs are for others to read.
        self._descriptor = files.create(self._temporary, 0o666, wanted.folder)
        reach("concatenate.created")
        self._write_all()
        reach("concatenate.written")
        files.sync(self._descriptor)
        reach("concatenate.synced")
        status = os.fstat(self._descriptor)
        if status.st_size != self._length:
            raise OutputUnwritable(
                f"The output {wanted.target} cannot be written: {self._length} bytes were written, but its file "
                f"system shows {status.st_size}. Check that file system; then retry the job."
            )
        self._close()
        row = OutputRow(
            str(wanted.target),
            wanted.job_key,
            wanted.step_id,
            wanted.generation,
            wanted.incarnation,
            self._length,
            self._hasher.hexdigest(),
            status.st_mtime_ns,
            self._rows,
        )
        self._unless_stopped()
        if not wanted.folder.is_in_place():
            raise OutputUnwritable(
                f"The output {wanted.target} cannot be written: its folder was replaced by another while the output "
                "was made. Let nothing do that, and retry the job."
            )
        found = self._equal_in_place(row)
        if found is not None:
            self._record(found)
            return found
        self._record(row)
        reach("concatenate.recorded")
        # Checked again, because recording may have taken long.
        refuse_foreign(wanted.folder, wanted.target, self._reader.outputs_at)
        files.rename(self._temporary, wanted.target, wanted.folder)
        reach("concatenate.renamed")
        files.sync_folder(wanted.target.parent, wanted.folder)
        reach("concatenate.folder_synced")
        return row

    def _equal_in_place(self, row: OutputRow) -> OutputRow | None:
        """The output, if its file exists already although the state does not know it, as after a restore from a backup.

        The content decides, because it is a pure function of the rows. Raises TargetForeign for other content.
        """
        folder, target = self._wanted.folder, self._wanted.target
        try:
            refuse_foreign(folder, target, self._reader.outputs_at)
        except TargetForeign:
            if not folder.has_file(target.name):
                raise
            mtime_ns = stamp_if_equal(folder, target.name, row.length, row.digest)
            if mtime_ns is None:
                known = bool(self._reader.outputs_at(str(target)))
                raise foreign(str(target), known=known, made=self._wanted.job_id) from None
            return row._replace(mtime_ns=mtime_ns)
        return None

    def _write_all(self) -> None:
        if self._wanted.row_format != "parquet":
            self._write_rows()
            return
        # Loading pyarrow takes a tenth of a second, which other formats need not spend.
        from windrow.common.arrow_rows import RowsForged

        try:
            self._write_rows()
        except RowsForged as error:
            raise RowsOtherwise(f"The output {self._wanted.target} cannot be written: {error}") from error

    def _write_rows(self) -> None:
        wanted = self._wanted
        fitting = make_fitting(wanted.row_format, wanted.header, wanted.missing, self._heads)
        if fitting.lacks_columns:
            raise ColumnUnwritable(
                f"The output {wanted.target} cannot be written: all rows that run() returned are empty dicts, so the "
                f"{wanted.row_format} file would have no columns. Return dicts with keys; then run the job again as a "
                "new one."
            )
        if not isinstance(fitting, ArrowFitting):
            self._put(fitting.header)
            self._write_ranges(lambda ranges, large: self._put_rows(ranges, large, fitting))
            return
        import pyarrow

        from windrow_master.output.parquet_file import ParquetFile

        for column, types in fitting.mixed.items():
            self._warn(
                f"The column {column!r} of the rows holds values of several types ({', '.join(types)}), so it is text "
                f"in {wanted.target.name}. Return values of one type if you want another."
            )
        parquet = ParquetFile(fitting, self._put)
        try:
            self._write_ranges(lambda ranges, large: self._put_tables(ranges, large, parquet))
            parquet.finish()
        except pyarrow.ArrowInvalid as error:
            raise ColumnUnwritable(
                f"The output {wanted.target} cannot be written: decimals of different mini-batches do not fit into one "
                f"column ({error}). Return decimals with the same number of digits after the point, as by "
                "Decimal.quantize(), or text; then run the job again as a new one."
            ) from error
        finally:
            parquet.abandon()

    def _heads(self) -> Iterator[tuple[bytes, bool]]:
        """As `fitting.Heads`."""
        for page in self._reader.ranges_of(self._wanted.step_id):
            for head in heads_of(self._segments, page):
                self._unless_stopped()
                yield head

    def _write_ranges(self, put: Callable[[Sequence[CommittedRange], bool], None]) -> None:
        for page in self._reader.ranges_of(self._wanted.step_id):
            for ranges, large in strides(page):
                self._unless_stopped()
                put(ranges, large)
            if len(self._lost) >= LOST_MAX:
                break
        if self._lost:
            lost = tuple(self._lost[:LOST_MAX])
            raise RowsLost(
                lost,
                f"The committed rows of {len(lost)} mini-batches (the first is {lost[0].mini_batch}) cannot be read "
                f"from {self._wanted.segments_folder} or fail their checksum: these mini-batches run again. Check that "
                f"disk.",
            )
        if self._wanted.rows not in (None, self._rows):
            # Each record alone is sound, but one is older than the commit of its rows.
            what = f"{self._wanted.rows:,} rows were committed, and {self._rows:,} are found"
            raise StateDamaged(f"the record of the mini-batches of step {self._wanted.step_id}", what)

    def _put_rows(self, ranges: Sequence[CommittedRange], large: bool, fitting: Fitting) -> None:
        if large:
            self._put_large(ranges[0], fitting)
        else:
            self._put_small(ranges, fitting)

    def _put_small(self, ranges: Sequence[CommittedRange], fitting: Fitting) -> None:
        rows = self._segments.read(ranges, self._lost)
        # Once something is lost, the rest is only verified, to find everything lost in one pass.
        if not self._lost:
            self._put(fit_all(rows, ranges, fitting)[0])
            self._rows += sum([row.row_count for row in ranges])

    def _put_tables(self, ranges: Sequence[CommittedRange], large: bool, parquet: ParquetFile) -> None:
        """Rows of Parquet, each range an Arrow stream; of a large one, memory holds one batch."""
        if large:
            (row,) = ranges
            if not self._segments.is_sound(row):
                self._lost.append(row)
            elif not self._lost:
                rows_file = self._segments.file(row)
                parquet.append(rows_file)
                self._check_again(rows_file, row)
        else:
            rows = memoryview(self._segments.read(ranges, self._lost))
            at = 0
            for row in ranges if not self._lost else ():
                parquet.append(io.BytesIO(rows[at : at + row.length]))
                at += row.length
        if not self._lost:
            self._rows += sum([row.row_count for row in ranges])

    def _put_large(self, row: CommittedRange, fitting: Fitting) -> None:
        """Verify first, then let the kernel copy: if the file system can, the output shares the segment's blocks."""
        crc32, length = 0, 0
        hasher = self._hasher.copy()
        skipped: int | None = 0
        for piece in self._segments.pieces(row):
            crc32 = zlib.crc32(piece, crc32)
            if not length:
                skipped = fitting.copied_from(piece)
            if not self._lost and skipped is not None:
                hasher.update(piece if length else memoryview(piece)[skipped:])
            length += len(piece)
        if length != row.length or crc32 != row.crc32:
            self._lost.append(row)
        elif not self._lost and skipped is None:
            self._put_large_fitted(row, fitting)
        elif not self._lost:
            offset, length = row.offset + (skipped or 0), row.length - (skipped or 0)
            try:
                self._files.copy(self._segments.descriptor(row.segment_id), offset, length, self._descriptor)
            except EOFError:
                # Cut since it was verified. This output is never renamed to the target.
                self._lost.append(row)
                return
            self._hasher = hasher
            self._length += length
            self._rows += row.row_count

    def _put_large_fitted(self, row: CommittedRange, fitting: Fitting) -> None:
        rows_file = self._segments.file(row)
        for piece in fitting.fit(iter(lambda: rows_file.read(STRIDE_BYTES), b"")):
            self._put(piece)
        self._check_again(rows_file, row)
        self._rows += row.row_count

    def _check_again(self, read: SegmentFile, row: CommittedRange) -> None:
        # If rows changed since they were verified, this output is never renamed to the target.
        if read.checksum() != row.crc32:
            self._lost.append(row)

    def _unless_stopped(self) -> None:
        if self._stop.is_set():
            raise ConcatenationStopped(f"Making the output {self._wanted.target} was stopped.")

    def _put(self, rows: bytes | memoryview) -> None:
        self._files.write(self._descriptor, [rows])
        self._hasher.update(rows)
        self._length += len(rows)

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            self._files.close(descriptor)

    def _explained(self, error: OSError) -> ConcatenationError:
        target = self._wanted.target
        if is_full(error):
            return OutputFull(
                f"The output {target} cannot be written: its disk is full (or a quota is used up) after "
                f"{self._length} bytes. Free some space: writing is then retried automatically, and nothing "
                "needs to run again."
            )
        return OutputUnwritable(
            f"The output {target} cannot be written: {error.strerror or error}. Fix that, or give the output another "
            f"path; then retry the job."
        )


def _unheard(message: str) -> None:
    """Takes a message for nobody."""
