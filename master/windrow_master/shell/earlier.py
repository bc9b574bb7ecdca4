"""Results of a step of an earlier job that this step takes over (`resume_from`; docs/contracts.md, section 3).

Only what the earlier job committed counts: mini-batches with a result for each of their items. The planner decides
which of them are also mini-batches of the new step. This module gives the planner a list to choose from, and turns its
choice into outcomes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from windrow.spec.effective.changes import ArchiveOf, changes
from windrow.spec.effective.job import EffectiveJob, EffectiveStep

from windrow_master.core.commands import TakenOver
from windrow_master.core.counters import Counters
from windrow_master.core.records import CLOCK_SET_BACK, JobRow, StepRow
from windrow_master.core.states import ENDED_JOBS, MiniBatchState, StepState
from windrow_master.files.errors import StateDamaged
from windrow_master.files.state_files import StateFiles, StepFiles
from windrow_master.planning.earlier.earlier import RECORD
from windrow_master.shell.slow_before import completed_before, slow_in
from windrow_master.step_paths import StepPaths
from windrow_master.store.errors import DatabaseDamaged
from windrow_master.store.protocol import StoreReader
from windrow_master.uploaded_data import UploadedData

LOOKED_UP = 500


class NothingToResume(Exception):
    """A step cannot take over the results that it asks for. The message says why, and what to do."""


class Index(NamedTuple):
    """A file that lists the mini-batches of the earlier step, for one planner (`EarlierJobs.write_index`)."""

    path: Path
    crc32: int


class EarlierStep(NamedTuple):
    """The step whose results are taken over. `files`: its files. `settings`: as the job was submitted.

    `began`: a time before it looked at any of its input, and before all that the clock has shown since. The start time
    of the step will not do: it is that of its first run, and the step may have taken over results before.
    """

    job_id: str
    began: float
    generation: int
    row: StepRow
    files: StepFiles
    settings: EffectiveStep
    uploads: dict[str, str] | None
    """What `UploadedData.for_planner` returned; None if the master keeps no uploads."""

    def request(self, index: Index, reader: bytes | None) -> dict[str, Any]:
        """The part of the planning request that is about this step. `reader`: that of the new step, if pinned."""
        return {
            "job": self.job_id,
            "index": str(index.path),
            "index_crc32": index.crc32,
            "recipes": str(self.files.recipes),
            "places": str(self.files.places),
            "reader": (self.row.reader or b"{}").decode(),
            "alike": None if reader is None else reader == self.row.reader,
            "began": self.began,
            "uploads": self.uploads,
        }


class Changed(NamedTuple):
    """Results that a step would not make now: `results` in words, and `what` has changed since they were made."""

    results: str
    what: str


class EarlierJobs:
    """Finds the steps of earlier jobs, and their results."""

    def __init__(self, reader: StoreReader, files: StateFiles, uploads: UploadedData | None = None) -> None:
        """`uploads`: data that clients uploaded; None if the master keeps none."""
        self._uploads = None if uploads is None else uploads.for_planner()
        self._reader = reader
        self._files = files
        self._before: tuple[str, dict[str, StepRow]] = ("", {})
        """A job, and the steps of its name that completed before (`slow_before`): a job may have a thousand steps."""

    def slow_in(self, job_id: str, display_name: str, project: str, step_name: str) -> list[tuple[int, int, int]]:
        """Which mini-batches were slow before (`slow_before`). Damage elsewhere is no reason not to begin."""
        try:
            of, before = self._before
            if of != job_id:
                before = completed_before(self._reader, job_id, display_name, project)
                self._before = job_id, before
            return slow_in(self._reader, before[step_name]) if step_name in before else []
        except DatabaseDamaged:
            raise
        except StateDamaged:
            return []

    def find(self, step: EffectiveStep, *, begun: bool = False) -> EarlierStep | None:
        """The step whose results `step` takes over; None if it takes over nothing.

        `begun`: the new step has already started. Raises NothingToResume, StateError.
        """
        if step.resume_from is None:
            return None
        job = self._reader.job_by_id(step.resume_from)
        if job is None:
            raise NothingToResume(
                f"There is no job named {step.resume_from!r}, whose results are to be taken over. "
                "`windrow job list` names all jobs."
            )
        if job.state not in ENDED_JOBS and not begun:
            raise NothingToResume(
                f"Job {step.resume_from} has not ended, so its results cannot be taken over yet. Wait for it to "
                "end, or cancel it."
            )
        before, row = self._counterpart(job, step)
        if row.state == StepState.SKIPPED:
            return None  # it has not run, so there are no results
        made_by = StepPaths.from_json(row.paths).reused_from
        if made_by:
            # A reused step has no mini-batches of its own: the step that it was reused from has them.
            job = self._reader.job_by_id(made_by)
            if job is None:
                raise NothingToResume(
                    f"Step {before.name!r} of job {step.resume_from} was reused from job {made_by}, which no "
                    "longer exists here. Run the step without taking over results."
                )
            before, row = self._counterpart(job, before)
        _check_alike(step, before, job.job_id)
        files = self._files.step(job.job_id, row.step_id)
        return EarlierStep(job.job_id, self._began(job), job.generation, row, files, before, self._uploads)

    def changed(self, earlier: EarlierStep, step: EffectiveStep, archive_of: ArchiveOf) -> Changed | None:
        """The newest results of an earlier step that `step` would not make now; None if it would make all of them.
        Raises OSError, StateError.
        """
        for maker in self._makers(earlier):
            counters = Counters.from_json(maker.row.counters)
            made = counters.succeeded > counters.taken_over
            if made and (what := changes(maker.settings, step, archive_of)):
                through = "" if maker is earlier else f" (through job {earlier.job_id})"
                return Changed(f"results of job {maker.job_id}{through}", "; ".join(what))
        return None

    def _makers(self, earlier: EarlierStep) -> Iterator[EarlierStep]:
        """Whoever made results of an earlier step: itself, and those whose results it took over, directly or through
        others; newest first.
        """
        maker: EarlierStep | None = earlier
        seen: set[str] = set()
        while maker is not None and maker.job_id not in seen:
            seen.add(maker.job_id)
            yield maker
            if not Counters.from_json(maker.row.counters).taken_over:
                return
            try:
                maker = self.find(maker.settings, begun=True)
            except NothingToResume:
                return  # its job is gone: nothing is known of it

    def write_index(self, earlier: EarlierStep, path: Path) -> Index:
        """List the mini-batches, in their order, with those that may be taken over. Raises OSError, StateError."""
        checksum = 0
        with path.open("wb") as file:
            for page in self._reader.mini_batches_of(earlier.row.step_id):
                records = b"".join(
                    RECORD.pack(
                        row.mini_batch,
                        row.items_counted,
                        row.recipe_offset,
                        row.recipe_length,
                        row.recipe_crc32,
                        row.state == MiniBatchState.SUCCEEDED and row.ok_count >= row.items_counted,
                    )
                    for row in page
                )
                file.write(records)
                checksum = crc32(records, checksum)
        return Index(path, checksum)

    def outcomes(self, earlier: EarlierStep, wanted: Sequence[tuple[int, int]]) -> tuple[TakenOver, ...]:
        """The outcomes of new mini-batches. `wanted`: (new mini-batch, the equal one of `earlier`), ascending.

        A mini-batch whose rows are gone is left out, so it runs again. All are left out if the earlier job has been
        retried meanwhile: a step that begins from nothing divides its input again, so its numbers mean other
        mini-batches. Raises StateError.
        """
        lengths: dict[str, int] = {}
        found = tuple(self._outcomes(earlier, wanted, lengths))
        job = self._reader.job_by_id(earlier.job_id) if found else None
        return found if job is not None and job.generation == earlier.generation else ()

    def _outcomes(
        self, earlier: EarlierStep, wanted: Sequence[tuple[int, int]], lengths: dict[str, int]
    ) -> Iterator[TakenOver]:
        for begin in range(0, len(wanted), LOOKED_UP):
            pairs = wanted[begin : begin + LOOKED_UP]
            rows = self._reader.results_at(earlier.row.step_id, [before for _, before in pairs])
            by_index = {row.mini_batch: row for row in rows}
            for mini_batch, before in pairs:
                row = by_index.get(before)
                if row is None:
                    continue
                source = str(earlier.files.segments / row.segment) if row.segment else ""
                if source and row.offset + row.length > _length(source, lengths):
                    continue
                yield TakenOver(mini_batch, row.items, row.row_count, source, row.offset, row.length, row.crc32)

    def _began(self, job: JobRow) -> float:
        """When a job was submitted. If the clock was set back since, the earliest time that it has shown: what was
        changed since then may have an older time than the job.
        """
        events = self._reader.events_of(job.job_key, limit=1)
        began, after = job.create_time, events[0][0] if events else 0
        while events := self._reader.events_of(None, after):
            after = events[-1][0]
            began = min([began, *(event.time for _, event in events if event.kind == CLOCK_SET_BACK)])
        return began

    def _counterpart(self, job: JobRow, step: EffectiveStep) -> tuple[EffectiveStep, StepRow]:
        """The step of the same name; if there is none, the only step that divides an input. Raises NothingToResume."""
        document = EffectiveJob.from_json(job.document)
        rows = {row.name: row for row in self._reader.steps_of(job.job_key)}
        divided = [one for one in document.steps if one.input_data]
        found = next((one for one in divided if one.name == step.name), None)
        if found is None and len(divided) == 1:
            found = divided[0]
        if found is None:
            names = ", ".join(one.name for one in divided) or "none"
            raise NothingToResume(
                f"Job {job.job_id} has no parallel step named {step.name!r}, whose results could be taken over; its "
                f"parallel steps: {names}. Give the step the name that it had."
            )
        return found, rows[found.name]


def _check_alike(step: EffectiveStep, before: EffectiveStep, job_id: str) -> None:
    """Raises NothingToResume if old and new results do not fit together."""
    for what, old, new in (
        ("form of its rows", (before.append_row_to is None, before.rows), (step.append_row_to is None, step.rows)),
        ("kind of its input", before.file_format, step.file_format),
    ):
        if old != new:
            raise NothingToResume(
                f"Step {step.name!r} cannot take over the results of job {job_id}: the {what} has changed. Undo "
                "that, or run the step without them."
            )
    for name, output in step.outputs.items():
        if name == step.append_row_to:
            continue
        old_output = before.outputs.get(name)
        if output.path is None or old_output is None or old_output.path != output.path or "${{name}}" in output.path:
            raise NothingToResume(
                f"Step {step.name!r} cannot take over the results of job {job_id}: the files that its script "
                f"wrote to the output {name!r} are in that job's own folder, and would be missing in this one. "
                f"Give the output a path (path: ./{name}) in both, or run the step without them."
            )


def _length(path: str, known: dict[str, int]) -> int:
    if path not in known:
        try:
            known[path] = Path(path).stat().st_size
        except OSError:
            known[path] = -1
    return known[path]
