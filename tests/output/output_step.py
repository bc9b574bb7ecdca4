"""A step whose rows are committed for real (SQLite, segments), and its output."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

from opened_store import open_store
from windrow.common.beneath import Folder
from windrow_master.core.ids import JobKey, LeaseId, StepId
from windrow_master.core.records import AttemptRow, Dirty, JobRow, OutcomeRow, PlannedRows, RowBlock, StepRow
from windrow_master.core.states import AttemptState, JobState, MiniBatchState, StepState
from windrow_master.output.concatenation import OutputRequest, concatenate
from windrow_master.output.file_operations import FileOperations
from windrow_master.output.segments import SegmentWriter
from windrow_master.store.records import OutputRow

STEP = StepId(1)
RESERVE_BYTES = 1 << 20


class CommittedStep:
    """One incarnation over a state folder. `close` it before the next."""

    def __init__(self, folder: Path, files: FileOperations | None = None, segment_bytes_max: int = 1 << 20) -> None:
        self.files = files or FileOperations()
        self.segments_folder = folder / "segments"
        self.target = folder / "out" / "rows.csv"
        for made in (self.segments_folder, self.target.parent):
            made.mkdir(parents=True, exist_ok=True)
        self.folder = Folder.open(self.target.parent.resolve())
        self.store = open_store(folder / "state")
        self.segments = SegmentWriter(
            self.store.incarnation,
            lambda *_: self.segments_folder,
            files=self.files,
            segment_bytes_max=segment_bytes_max,
        )
        self.lease_count = 0

    def plan(self, count: int) -> None:
        job = JobRow(JobKey(1), "job-1", "", JobState.RUNNING, 1, 1, "", 0, 1, "", b"{}", "", b"[]", 0.0, None)
        step = StepRow(STEP, JobKey(1), 0, "s", StepState.RUNNING, "", b"{}", None, None, b"{}", None, None, None)
        records = b"".join(struct.pack("<QIQII", number, 1, 0, 0, 0) for number in range(count))
        self.store.commit(Dirty(jobs=[job], steps=[step], planned=[PlannedRows(STEP, 0, 1, records)]), [], [])

    def commit(self, rows_of: dict[int, bytes], staged: dict[int, str] | None = None) -> None:
        """Commit the rows of some mini-batches as one group."""
        dirty = Dirty()
        for number, (mini_batch, rows) in enumerate(rows_of.items()):
            self.lease_count += 1
            lease_id = LeaseId(self.store.lease_prefix << 32 | self.lease_count)
            name = (staged or {}).get(mini_batch, "")
            dirty.row_blocks.append(RowBlock("job", STEP, b"" if name else rows, name, len(rows), zlib.crc32(rows)))
            dirty.outcomes.append(
                OutcomeRow(STEP, mini_batch, MiniBatchState.SUCCEEDED, 1, 1, 1, lease_id, number, rows.count(b"\n"))
            )
            dirty.attempts.append(
                AttemptRow(
                    lease_id, STEP, mini_batch, 1, "node", "inc", 0, AttemptState.SUCCEEDED, 0, 0, 0, 0, 0, 1, 1, 0,
                    "", "",
                )
            )  # fmt: skip
        ranges = self.segments.append(dirty.row_blocks)
        self.store.commit(dirty, ranges, self.segments.sync())

    def requeue(self, mini_batches: Sequence[int]) -> None:
        """Rows were lost: as the core says it."""
        dirty = Dirty()
        for page in self.store.reader().mini_batches_of(STEP):
            for row in page:
                if row.mini_batch in mini_batches:
                    dirty.attempts.append(
                        AttemptRow(
                            row.lease_id, STEP, row.mini_batch, 1, "", "", 0, AttemptState.FAILED, 12, 0, 0, 0, 0, 0,
                            0, 0, "", "",
                        )
                    )  # fmt: skip
                    dirty.outcomes.append(
                        OutcomeRow(STEP, row.mini_batch, MiniBatchState.QUEUED, 1, 0, 0, LeaseId(0), -1, 0)
                    )
        self.store.commit(dirty, [], [])

    def wanted(
        self, generation: int = 1, header: bytes | None = None, target: Path | None = None, rows: int | None = None
    ) -> OutputRequest:
        return OutputRequest(
            JobKey(1),
            "job-1",
            STEP,
            generation,
            self.store.incarnation,
            target or self.target,
            self.folder,
            self.segments_folder,
            header,
            rows=rows,
        )

    def concatenate(
        self,
        generation: int = 1,
        header: bytes | None = None,
        target: Path | None = None,
        files: FileOperations | None = None,
    ) -> OutputRow:
        return concatenate(
            self.wanted(generation, header, target),
            self.store.reader(),
            self.store.record_output,
            files=files or self.files,
        )

    def close(self) -> None:
        self.folder.close()
        self.segments.close()
        self.store.close()
