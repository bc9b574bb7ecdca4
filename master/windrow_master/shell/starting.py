"""Begins steps: resolves paths, makes folders, finds results to take over or reuse, and starts the planner."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from windrow.common.journal import log
from windrow.spec.effective.job import EffectiveStep, OutputInput, with_values
from windrow.storage.errors import StorageError, Trouble
from windrow.storage.urls import is_remote

from windrow_master.assets import rows_of_outputs
from windrow_master.core.causes import DEPENDENCY_ERROR, SYSTEM_ERROR, USER_ERROR
from windrow_master.core.commands import FailStep, ReuseStep, StartStep
from windrow_master.core.ids import StepId
from windrow_master.core.state import Step
from windrow_master.datastores import UnknownDatastore
from windrow_master.files.artifacts import ArtifactError, ArtifactFolder
from windrow_master.files.errors import StateDamaged
from windrow_master.limits import Limits, how_to_raise
from windrow_master.output.errors import TargetForeign
from windrow_master.output_places import OutputPlaces
from windrow_master.shell.earlier import EarlierJobs, EarlierStep, Index, NothingToResume
from windrow_master.shell.finishing import Finisher
from windrow_master.shell.open_jobs import OpenJobs
from windrow_master.shell.output_values import ValueUnreadable, needed_of, read_values
from windrow_master.shell.planner_processes import PlannerProcesses
from windrow_master.shell.planning_driver import PlanningDriver
from windrow_master.shell.preparation import PreparationFailed, make_folders, planning_request, resolve
from windrow_master.shell.project_turns import ProjectThreads, ProjectTurns
from windrow_master.shell.reusing import Begun, Reuse, message_of
from windrow_master.shell.sorted_rows import SortedRows, need_sorted_rows
from windrow_master.step_paths import StepPaths
from windrow_master.store.errors import DatabaseDamaged
from windrow_master.store.protocol import StoreReader

THREADS, OF_ONE_PROJECT = 8, 6
"""Threads that prepare steps: in all, and of one project at most."""

Submit = Callable[[Any], "asyncio.Future[Any]"]


class CodeLost(Exception):
    """The archive of a step's code is gone or damaged. The text says what to do."""


class Starter:
    """Holds every step that is being begun, and every planner. Use it on the event loop's thread; it never raises."""

    def __init__(
        self,
        jobs: OpenJobs,
        places: OutputPlaces,
        finisher: Finisher,
        earlier: EarlierJobs,
        reuse: Reuse,
        sorted_rows: SortedRows,
        artifacts: ArtifactFolder,
        reader: StoreReader,
        limits: Limits | None = None,
        planners: PlannerProcesses | None = None,
    ) -> None:
        """`places`: opens the folders of outputs. `artifacts`: the code of jobs."""
        self._reader = reader
        self._limits = limits or Limits()
        self._jobs = jobs
        self.places = places
        """Where the outputs of steps are."""
        self._finisher = finisher
        self._earlier = earlier
        self._reuse = reuse
        self._sorted_rows = sorted_rows
        self._artifacts = artifacts
        self._submit: Submit
        self._beginning: dict[StepId, asyncio.Task[None]] = {}
        self._planners: dict[StepId, PlanningDriver] = {}
        self._processes = planners or PlannerProcesses()
        self._turns = ProjectTurns()
        self._threads = ProjectThreads(THREADS, OF_ONE_PROJECT, "steps")

    def attach(self, submit: Submit) -> None:
        """Set where commands go. Call it before the first step."""
        self._submit = submit

    def begin(self, step: Step) -> None:
        """Begin a step, in a task. It submits StartStep and PlanGroup, or ReuseStep, or FailStep."""
        task = self._beginning[step.step_id] = asyncio.create_task(self._begin(step))
        task.add_done_callback(lambda ended: self._let_go(step.step_id, ended))

    def stop(self, step_id: StepId) -> Coroutine[Any, Any, None] | None:
        """Stop beginning a step. If it has a planner, return a coroutine that stops it; await that."""
        beginning = self._beginning.pop(step_id, None)
        if beginning is not None:
            beginning.cancel()
        planner = self._planners.pop(step_id, None)
        return None if planner is None else planner.stop()

    async def close(self) -> None:
        """Stop all beginnings and planners, and wait for their ends."""
        beginning = list(self._beginning.values())
        planners = [planner for step_id in (*self._beginning, *self._planners) if (planner := self.stop(step_id))]
        await asyncio.gather(*beginning, *planners, return_exceptions=True)

    def _let_go(self, step_id: StepId, task: asyncio.Task[None]) -> None:
        if self._beginning.get(step_id) is task:
            del self._beginning[step_id]

    async def _begin(self, step: Step) -> None:
        try:
            await self._start(step)
        except CodeLost as error:
            self._submit(FailStep(step.step_id, str(error), SYSTEM_ERROR))
        except StorageError as error:
            users = error.trouble in (Trouble.MISSING, Trouble.UNSUPPORTED)
            self._submit(FailStep(step.step_id, str(error), USER_ERROR if users else DEPENDENCY_ERROR))
        except DatabaseDamaged:
            return  # the store has reported it, and the master ends
        except StateDamaged as error:
            self._submit(FailStep(step.step_id, f"Step {step.settings.name!r} was not prepared: {error}"))
        except (PreparationFailed, TargetForeign, UnknownDatastore, NothingToResume) as error:
            self._submit(FailStep(step.step_id, str(error), USER_ERROR))
        except Exception as error:
            # A bug. Without a command, the step would wait forever to begin.
            log.exception("a step was not prepared: please report this", extra={"fields": {"step": step.step_id}})
            message = f"Step {step.settings.name!r} was not prepared: {error!r}. Please report this."
            self._submit(FailStep(step.step_id, message))

    def _need_room_to_sort(self, step: Step, job_id: str, project: str) -> None:
        """Raise PreparationFailed if the rows of too many steps are kept sorted to keep those of another one."""

        def is_of_project(other: str) -> bool:
            row = self._reader.job_by_id(other)
            return row is not None and row.queue == project

        for name, whose, counts in (
            ("sorted_steps_per_project", f"of the project {project!r} ", is_of_project),
            ("sorted_steps", "", lambda other: True),
        ):
            most = getattr(self._limits, name)
            if self._sorted_rows.is_full(job_id, step.step_id, most, counts):
                raise PreparationFailed(
                    f"The rows of {most:,} steps {whose}are kept sorted by partition keys on this master, which is its "
                    f"limit {name}. Those of a job that has failed or was cancelled go when it is deleted (windrow job "
                    f"delete, windrow job prune); or {how_to_raise(name)}. Then retry the job."
                )

    async def _start(self, step: Step) -> None:
        jobs = self._jobs
        job = jobs.job_of(step)
        effective = jobs.effective(step)
        others = {
            other.settings.name: StepPaths.from_json(other.paths)
            for other in job.steps
            if other.settings.name in effective.depends_on
        }
        paths = resolve(jobs.document(step), effective, job.job_id, self.places.default, others)
        effective = with_values(effective, paths.inputs)
        _need_datastores(jobs.document(step).steps[step.ordinal], effective, step, paths)
        files = jobs.files(step)
        if effective.reuse:
            paths = await self._with_reuse(step, effective, paths)
        if paths.reused_from:
            return

        slow: list[tuple[int, int, int]] = []

        def touch_disks() -> tuple[StepPaths, tuple[EarlierStep, Index] | None]:
            if step.plan.checkpoint is None:
                # Once the step has begun, nodes have the code. A node without it gets the error when it asks.
                self._need_code(effective)
                if effective.partition_keys:
                    self._need_room_to_sort(step, job.job_id, job.queue)
            self._need_rows_read(effective, paths, others)
            if step.plan.reader is not None:
                need_sorted_rows(step.plan.reader)
            before = StepPaths.from_json(step.paths)
            # Once scripts have run, what they have made of the folders counts for nothing.
            known = before.places if before.outputs == paths.outputs else None
            real = make_folders(effective, replace(paths, places=known), files, jobs.readable, self.places)
            try:
                self._finisher.refuse_foreign(real, job.create_time)
            except OSError as error:
                raise PreparationFailed(
                    f"The output {real.append_row} cannot be written: {error.strerror}. Then retry the job."
                ) from error
            if not effective.input_data:
                # The planner makes this file, and this step has none.
                files.recipes.touch()
            if not step.plan.is_done and step.plan.checkpoint is None:
                name = jobs.document(step).display_name
                slow.extend(self._earlier.slow_in(job.job_id, name, job.queue, effective.name))
            found = None if step.plan.is_done else self._earlier.find(effective, begun=step.plan.checkpoint is not None)
            return real, None if found is None else (found, self._earlier.write_index(found, files.earlier))

        # In a thread, because an output may be on a slow share, or take long to read.
        paths, taken = await self._threads.run(job.queue, touch_disks)
        self._submit(StartStep(step.step_id, paths.to_json()))
        if not step.plan.is_done:
            driver = PlanningDriver(
                step.step_id,
                planning_request(
                    effective,
                    paths,
                    files,
                    jobs.places,
                    jobs.readable,
                    self._sorted_rows.folder_of(job.job_id, step.step_id),
                    None if taken is None else taken[0].request(taken[1], step.plan.reader),
                    slow,
                    {
                        (other.name, name)
                        for other in jobs.document(step).steps
                        for name, output in other.outputs.items()
                        if not output.make_folder
                    },
                    self._limits.planner_memory_bytes,
                ),
                lambda: step.plan.checkpoint,
                self._submit,
                self._turns.of(lambda: job.queue, partial(jobs.planner_place, step)),
                None if taken is None else partial(self._earlier.outcomes, taken[0]),
                None if taken is None else taken[0].row.header,
                partial(jobs.has_room, step),
                self._processes.start,
            )
            self._planners[step.step_id] = driver
            driver.start()

    def _need_code(self, step: EffectiveStep) -> None:
        """Raise CodeLost unless the code of a step is there and sound."""
        try:
            found = self._artifacts.verified(step.code_digest)
        except ArtifactError as error:
            raise CodeLost(f"The code of step {step.name!r} cannot be used: {error}") from error
        if found is None:
            raise CodeLost(
                f"The code of step {step.name!r} is gone from the state folder (artifacts/{step.code_digest}). "
                "Submit the job again to upload it again."
            )

    def _need_rows_read(self, step: EffectiveStep, paths: StepPaths, others: dict[str, StepPaths]) -> None:
        """Raise OutputDamaged if this step reads rows of another step that are no longer what was written.

        `others`: the paths of the steps before it, by name.
        """
        for name, given in step.inputs.items():
            other = others[given.step] if isinstance(given, OutputInput) else None
            if other is not None and other.append_row is not None and not is_remote(other.append_row):
                place, file = Path(paths.inputs[name]), Path(other.append_row)
                if place == file or place in file.parents:
                    self._finisher.need_as_written(file, other)

    async def _with_reuse(self, step: Step, effective: EffectiveStep, paths: StepPaths) -> StepPaths:
        """Look for an earlier step to reuse; if there is one, register its outputs and submit ReuseStep.

        Return the paths with `reused_from`, or with `why_run`.
        """
        if step.plan.checkpoint is not None:
            return replace(paths, why_run=StepPaths.from_json(step.paths).why_run)
        begun = Begun.of(self._jobs, step)._replace(effective=effective)
        own, paths = paths, await self._reuse.look(begun, paths)
        if paths.reused_from:
            project = self._jobs.job_of(step).queue
            try:
                needed = needed_of(self._jobs.document(step), effective.name)
                values = await self._threads.run(project, read_values, effective.name, paths, needed, self.places)
            except ValueUnreadable as error:
                return replace(own, why_run=f"The outputs of job {paths.reused_from} cannot be reused: {error}")
            paths = replace(paths, values=values)
            rows = rows_of_outputs(begun.effective, step.step_id, begun.job_id, project, paths.outputs, time.time())
            told = await self._threads.run(project, self._finisher.register, rows)
            message = " ".join((message_of(paths), *told))
            self._submit(ReuseStep(step.step_id, paths.to_json(), message))
        return paths


def _need_datastores(written: EffectiveStep, effective: EffectiveStep, step: Step, paths: StepPaths) -> None:
    """Raise PreparationFailed if a datastore of a step that has begun is no longer known: its output would end up in
    two places."""
    if step.plan.checkpoint is None:
        return
    before = StepPaths.from_json(step.paths).outputs
    for name, output in written.outputs.items():
        is_lost = output.path is not None and effective.outputs[name].path is None
        if is_lost and before.get(name) not in (None, paths.outputs[name]):
            raise PreparationFailed(
                f"Output {name!r} of step {step.settings.name!r} is at {output.path}, which was {before[name]} "
                "when the step began, and is unknown now. Add that datastore again (--datastore NAME=PLACE), "
                "and retry the job."
            )
