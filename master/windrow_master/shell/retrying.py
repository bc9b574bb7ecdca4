"""Retries a job that has ended: finished work stays, the rest runs again into the same outputs.

The store opens the job again (`Store.reopen`), and the core adopts it just as a new master would. A retry needs no
other state. A retry may have another document: repaired code, other arguments, limits or retries. But where rows are
kept, whatever decided the division of the input and the form of the rows must be the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from windrow.common.quantities import counted
from windrow.spec.effective.job import EffectiveJob, EffectiveStep

from windrow_master.core import commands
from windrow_master.core.counters import Counters
from windrow_master.core.ids import JobKey, StepId
from windrow_master.core.records import JobRow, StepRow
from windrow_master.core.refused import Refused, job_unknown
from windrow_master.core.states import ENDED_JOBS, JobState, StepState
from windrow_master.core.steps import too_many_jobs
from windrow_master.identity.principals import EVERYBODY, Principal
from windrow_master.jobs import Jobs
from windrow_master.output_places import OutputPlaces
from windrow_master.shell.errors import SubmissionInvalid
from windrow_master.shell.output_values import ValueUnreadable, needed_of, read_values
from windrow_master.shell.sorted_rows import SortedRows, reads_sorted_rows
from windrow_master.shell.submission import Submissions, settings_of
from windrow_master.shell.writer import Writer
from windrow_master.step_paths import StepPaths
from windrow_master.store.errors import NotReopened
from windrow_master.store.protocol import Store
from windrow_master.store.records import ReopenedJob, Reopening
from windrow_master.threads import in_thread

DIVIDING = (
    "command",
    "input_data",
    "mini_batch_size",
    "partition_keys",
    "rank_mini_batch_count",
    "file_format",
    "mini_batch_rows",
    "exact_row_index",
    "mixed_types",
    "table_digests",
    "resume_from",
    "append_row_to",
    "returns",
    "rows",
)
"""Settings that shape the rows of a step, beside its code. Kept rows and new ones fit together only if they are equal.
"""


class Retries:
    """Retries jobs, for all callers. One retry of a job goes through even if its caller hangs up."""

    def __init__(
        self,
        jobs: Jobs,
        store: Store,
        writer: Writer,
        submissions: Submissions,
        sorted_rows: SortedRows,
        places: OutputPlaces,
    ) -> None:
        self._places = places
        self._jobs = jobs
        self._store = store
        self._writer = writer
        self._submissions = submissions
        self._sorted_rows = sorted_rows
        self._opening: set[asyncio.Task[JobKey | Refused]] = set()
        self._being_opened: set[JobKey] = set()
        self._is_leaving: Callable[[JobKey], bool] = lambda job_key: False

    def spare(self, is_leaving: Callable[[JobKey], bool]) -> None:
        """Retry no job of which `is_leaving` says that it is being deleted."""
        self._is_leaving = is_leaving

    def is_reopening(self, job_key: JobKey) -> bool:
        """Whether a job is being opened again: it cannot be deleted."""
        return job_key in self._being_opened

    async def retry(self, job_id: str, generation: int, document: bytes, by: Principal = EVERYBODY) -> JobKey | Refused:
        """Retry a job and return its key.

        `generation`: the one under which the job ended, as far as the caller knows. A repeated call gets the same
        answer as the first. `document`: the new document of the job; empty: it keeps the old one. Raises
        SubmissionInvalid, StateError.
        """
        found = self._jobs.find(job_id)
        if found is None:
            return job_unknown(job_id)
        row, steps = found
        if row.generation == generation + 1:
            return row.job_key
        if row.state not in ENDED_JOBS or row.generation != generation:
            return _not_ended(row)
        if self._writer.refusal:
            return Refused("STORAGE_FULL", self._writer.refusal)
        if refused := too_many_jobs(self._writer.core.state, row.queue, document or row.document):
            return refused
        old = EffectiveJob.from_json(row.document)
        new = await self._submissions.check(document, by) if document else old
        again = await in_thread(self._reopenings, row, steps, old)
        if all(how == Reopening.KEPT for how in again.values()):
            return Refused(
                "NOTHING_TO_RETRY", f"Job {job_id} is {JobState(row.state).name.lower()}: nothing is left to run."
            )
        _check_same(old, new, steps, again)
        # Otherwise agents might hear of the old end of a step after they have heard of its new beginning.
        await self._writer.submit(commands.Settle())
        told = await in_thread(self._kept_of_other_code, old, new, steps, again)
        wanted = ReopenedJob(row.job_key, generation, document or row.document, new.run_digest, again, told)
        if self._is_leaving(row.job_key):
            return Refused("JOB_UNKNOWN", f"Job {job_id} is being deleted.")
        opening = asyncio.create_task(self._open_again(wanted, row))
        self._opening.add(opening)
        self._being_opened.add(row.job_key)
        opening.add_done_callback(self._opening.discard)
        opening.add_done_callback(lambda _: self._being_opened.discard(row.job_key))
        return await asyncio.shield(opening)

    async def _open_again(self, wanted: ReopenedJob, row: JobRow) -> JobKey | Refused:
        """Reopen the job in the store and have the core adopt it: both, even if the caller hangs up. A job that is open
        in the store alone would never run."""
        try:
            snapshot = await in_thread(self._store.reopen, wanted)
        except NotReopened:
            return _not_ended(row)
        adopted: JobKey = await self._writer.submit(commands.AdoptJob(snapshot, settings_of(wanted.document)))
        return adopted

    def _kept_of_other_code(
        self, old: EffectiveJob, new: EffectiveJob, steps: list[StepRow], again: dict[StepId, Reopening]
    ) -> list[str]:
        """What to tell of results that stay, though the step would not make them now. Raises SubmissionInvalid."""
        told = []
        for step in steps:
            kept = again[step.step_id] != Reopening.ANEW and Counters.from_json(step.counters).succeeded
            changed = self._submissions.changed(old.steps[step.ordinal], new.steps[step.ordinal]) if kept else []
            if changed:
                told.append(
                    f"Step {step.name!r}: the results of {counted(int(kept), 'mini-batch')} stay as they are, although "
                    f"this has changed since: {'; '.join(changed)}. To make all of them anew, run the job again."
                )
        return told

    def _reopenings(self, row: JobRow, steps: list[StepRow], job: EffectiveJob) -> dict[StepId, Reopening]:
        """What happens to each step. A step that reads what another one writes again starts from scratch."""
        by_name = {step.name: step for step in steps}
        found: dict[StepId, Reopening] = {}

        def of(name: str) -> Reopening:
            step = by_name[name]
            if step.step_id not in found:
                before = [of(other) for other in job.steps[step.ordinal].depends_on]
                found[step.step_id] = self._reopening(row, step, job, any(how != Reopening.KEPT for how in before))
            return found[step.step_id]

        for step in steps:
            of(step.name)
        return found

    def _reopening(self, row: JobRow, step: StepRow, job: EffectiveJob, inputs_change: bool) -> Reopening:
        counters = Counters.from_json(step.counters)
        if inputs_change:
            return Reopening.ANEW
        if step.state == StepState.COMPLETED and StepPaths.from_json(step.paths).reused_from:
            return Reopening.KEPT
        if step.state == StepState.SKIPPED:
            return Reopening.KEPT
        if not counters.planned:
            return Reopening.ANEW
        if step.state == StepState.COMPLETED and not counters.failed and not counters.items_failed:
            return Reopening.KEPT
        if _misses_value(step, job, self._places):
            return Reopening.ANEW
        if step.reader is not None and reads_sorted_rows(step.reader):
            folder = self._sorted_rows.folder_of(row.job_id, step.step_id)
            if folder is None or not Path(folder).is_dir():
                # The sorted rows that its recipes name went with the end of the job.
                return Reopening.ANEW
        return Reopening.RESUMED


def _misses_value(step: StepRow, job: EffectiveJob, places: OutputPlaces) -> bool:
    """Whether all of a step has succeeded, but an output does not hold the value that other steps need: only another
    run of its script can write it."""
    counters = Counters.from_json(step.counters)
    wanted = needed_of(job, step.name)
    if not wanted or step.state != StepState.FAILED or counters.succeeded < counters.planned:
        return False
    try:
        read_values(step.name, StepPaths.from_json(step.paths), wanted, places)
    except ValueUnreadable:
        return True
    return False


def _not_ended(row: JobRow) -> Refused:
    state = JobState(row.state).name.lower()
    return Refused(
        "JOB_NOT_ENDED",
        f"Job {row.job_id} has not ended: it is {state}, in generation {row.generation}. Wait for it to end, or "
        "cancel it, before you retry it.",
    )


def _check_same(old: EffectiveJob, new: EffectiveJob, steps: Iterable[StepRow], again: dict[StepId, Reopening]) -> None:
    """Raises SubmissionInvalid if kept rows and new rows would not fit together."""
    if [(step.name, step.depends_on) for step in old.steps] != [(step.name, step.depends_on) for step in new.steps]:
        raise SubmissionInvalid(
            "JOB_INVALID",
            "The repaired job file has different steps from the job, or different bindings between them. A "
            "retry keeps the steps; submit it as a new job.",
        )
    for step in steps:
        if again[step.step_id] == Reopening.ANEW:
            continue
        before, after = old.steps[step.ordinal], new.steps[step.ordinal]
        changed = [name for name, value in _decisive(before).items() if _decisive(after)[name] != value]
        if changed:
            raise SubmissionInvalid(
                "JOB_INVALID",
                f"Step {step.name!r} has rows that a retry keeps, and they do not fit those of the repaired job "
                f"file, whose {', '.join(changed)} differ. Undo that, or submit it as a new job.",
            )


def _decisive(step: EffectiveStep) -> dict[str, Any]:
    values = {name: getattr(step, name) for name in DIVIDING}
    if step.command is not None:
        # A command runs again as a whole, so its text may change.
        values["command"] = ""
    values["conditions"] = (step.run_if, step.iterations)
    values |= {f"input {name}": step.inputs.get(name) for name in step.input_data}
    values |= {f"output {name}": (output.type, output.path) for name, output in step.outputs.items()}
    return values
