"""Carries out the core's effects: messages to agents, planners, concatenation, wake-ups of watchers.

Only the writer calls it, on the event loop's thread. It never raises and never blocks: what takes time becomes a task.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from windrow.common.journal import log

from windrow_master.assets import rows_of_outputs
from windrow_master.core import commands
from windrow_master.core import effects as fx
from windrow_master.core.causes import SYSTEM_ERROR
from windrow_master.core.core import Core
from windrow_master.core.ids import JobKey, LeaseId, NodeId, StepId
from windrow_master.core.leases import Lease
from windrow_master.core.state import Step
from windrow_master.core.states import ENDED_STEPS, JobState, StepState
from windrow_master.datastores import UnknownDatastore
from windrow_master.files.errors import StateDamaged, StateError
from windrow_master.files.recipes import Recipes
from windrow_master.shell.finishing import Finish, Finisher
from windrow_master.shell.open_jobs import OpenJobs
from windrow_master.shell.output_values import needed_of
from windrow_master.shell.reporting import Reporter
from windrow_master.shell.reusing import Begun, Reuse
from windrow_master.shell.sorted_rows import SortedRows
from windrow_master.shell.split_message import split_message
from windrow_master.shell.starting import Starter, Submit
from windrow_master.shell.step_spec import step_spec
from windrow_master.shell.work_session import RESPONSE_BYTES_MAX, WorkSession
from windrow_master.step_paths import StepPaths
from windrow_master.store.errors import DatabaseDamaged
from windrow_master.store.protocol import StoreReader
from windrow_master.watchers import Watchers


class Carrier:
    """Holds every open stream and recipes file. Call `attach` before the first effect."""

    def __init__(
        self,
        core: Core,
        jobs: OpenJobs,
        starter: Starter,
        finisher: Finisher,
        reuse: Reuse,
        watchers: Watchers,
        sorted_rows: SortedRows,
        reporter: Reporter | None = None,
    ) -> None:
        """`reporter` writes the reports of jobs; if None, no reports are written."""
        self._core = core
        self._jobs = jobs
        self._starter = starter
        self._finisher = finisher
        self._reuse = reuse
        self._watchers = watchers
        self._sorted_rows = sorted_rows
        self._submit: Submit
        self._on_fatal: Callable[[BaseException], None]
        self._sessions: dict[NodeId, WorkSession] = {}
        self._recipes: dict[StepId, Recipes] = {}
        self._reporter = reporter
        self._failure_lists: dict[JobKey, list[asyncio.Task[Any]]] = {}
        """Running tasks that list the failed items of a job."""
        self._keeping: dict[StepId, asyncio.Task[Any]] = {}
        """Tasks that digest the inputs and outputs of a finished step, so that later jobs can reuse it."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._handlers: dict[type, Callable[[Any], None]] = {
            fx.SendAssignments: self._send_assignments,
            fx.SendStep: self._send_step,
            fx.SendShares: self._send_shares,
            fx.RevokeLeases: self._revoke_leases,
            fx.RecallLeases: self._recall_leases,
            fx.EndStep: self._end_step,
            fx.SendDrain: self._send_drain,
            fx.CloseStream: self._close_stream,
            fx.PrepareStep: self._prepare_step,
            fx.StopStepWork: self._stop_step_work,
            fx.ConcatenateRows: self._concatenate_rows,
            fx.ReportFailures: self._report_failures,
            fx.NotifyJob: self._notify_job,
        }

    def attach(self, submit: Submit, on_fatal: Callable[[BaseException], None]) -> None:
        """`submit`: takes commands (the writer is made after the carrier); `on_fatal`: ends the process."""
        self._submit = submit
        self._starter.attach(submit)
        self._on_fatal = on_fatal

    def carry_out(self, effects: list[fx.Effect]) -> None:
        """Carry out effects, in order."""
        for effect in effects:
            try:
                self._handlers[type(effect)](effect)
            except DatabaseDamaged as error:
                self._on_fatal(error)
            except StateDamaged as error:
                self._fail_damaged(effect, error)
            except Exception as error:
                log.exception("an effect could not be carried out", extra={"fields": {"effect": repr(effect)[:500]}})
                step_id = getattr(effect, "step_id", None)
                if step_id is not None:
                    message = f"{type(effect).__name__} could not be carried out by the master: {error!r}"
                    self._submit(commands.FailStep(step_id, message))

    def _fail_damaged(self, effect: fx.Effect, error: StateDamaged) -> None:
        """Fail the step whose file is damaged. All other steps continue."""
        step_id: StepId | None = getattr(effect, "step_id", None)
        log.error("state is damaged", extra={"fields": {"step": step_id, "where": error.where, "what": error.what}})
        if step_id is not None:
            self._submit(commands.FailStep(step_id, str(error), SYSTEM_ERROR))

    def clear_up(self, reader: StoreReader) -> None:
        """Remove sorted rows that an earlier master left, in the background."""
        self._keep(asyncio.create_task(asyncio.to_thread(self._sorted_rows.remove_left, reader)))

    async def close(self) -> None:
        """Stop planners, end streams, cancel tasks and close recipes."""
        for session in self._sessions.values():
            session.close()
        await self._starter.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for recipes in self._recipes.values():
            recipes.close()
        self._recipes.clear()

    # Streams (rpc.agent_service.Sessions)

    def open_session(self, node_id: NodeId, session: WorkSession) -> None:
        """Register a Work stream. An older one of the node ends."""
        older = self._sessions.get(node_id)
        if older is not None:
            older.close()
        self._sessions[node_id] = session

    def close_session(self, node_id: NodeId, session: WorkSession) -> None:
        """Forget a Work stream that has ended, unless a newer one has taken its place."""
        if self._sessions.get(node_id) is session:
            del self._sessions[node_id]

    def staging_folder(self, lease_id: LeaseId) -> Path | None:
        """The folder in which large rows of a lease are staged; None if the lease is not live."""
        lease = self._core.state.leases.get(lease_id)
        return None if lease is None else self._jobs.files(self._core.state.steps[lease.step_id]).segments

    def logs_of(self, step_id: int) -> Path | None:
        """The folder `logs/<step>` of a step; None if there is no such step."""
        step = self._core.state.steps.get(StepId(step_id))
        return None if step is None else self._jobs.logs(step)

    def _session(self, node_id: NodeId, stream: int) -> WorkSession | None:
        session = self._sessions.get(node_id)
        return session if session is not None and session.stream == stream else None

    # Effects

    def _send_assignments(self, effect: fx.SendAssignments) -> None:
        session = self._session(effect.node_id, effect.stream)
        step = self._core.state.steps[effect.step_id]
        if session is None or not effect.leases:
            return  # the stream broke meanwhile: the hello of the next one shows that these leases never arrived
        generation = effect.leases[0].generation
        item_firsts, item_counts = step.mini_batches.item_firsts, step.mini_batches.item_counts
        for part, size in _parts(self._with_recipes(step, effect.leases)):
            # Made in the message itself: to make each first, and copy it, takes twice as long.
            add = session.add_assignments(step.step_id, generation, size).assignments.add
            for lease, recipe in part:
                assignment = add(
                    lease_id=lease.lease_id,
                    mini_batch_index=lease.mini_batch,
                    item_first=item_firsts[lease.mini_batch],
                    item_count=item_counts[lease.mini_batch],
                    recipe=recipe,
                    attempt=lease.attempt,
                )
                if lease.exclusive:
                    assignment.exclusive = True
                if lease.split is not None:
                    assignment.split.CopyFrom(split_message(lease.split, step.settings))

    def _with_recipes(self, step: Step, leases: list[Lease]) -> list[tuple[Lease, bytes]]:
        """Pair each lease with its recipe. Raises StepDamaged."""
        table = step.mini_batches
        offsets, lengths, crcs = table.recipe_offsets, table.recipe_lengths, table.recipe_crcs
        numbers = [lease.mini_batch for lease in leases]
        columns = (map(column.__getitem__, numbers) for column in (offsets, lengths, crcs))
        places = list(zip(numbers, *columns, strict=True))
        return list(zip(leases, self._recipes_of(step).read_all(places, RESPONSE_BYTES_MAX), strict=True))

    def _recipes_of(self, step: Step) -> Recipes:
        recipes = self._recipes.get(step.step_id)
        if recipes is None:
            recipes = self._recipes[step.step_id] = Recipes(self._jobs.files(step).recipes)
        return recipes

    def _send_step(self, effect: fx.SendStep) -> None:
        session = self._session(effect.node_id, effect.stream)
        step = self._core.state.steps[effect.step_id]
        if session is not None:
            job = self._core.state.jobs[step.job_key]
            paths, experiment = StepPaths.from_json(step.paths), self._jobs.document(step).experiment_name
            spec = step_spec(job, step, self._jobs.effective(step), paths, experiment, self._jobs.readable)
            spec.datastores.extend(map(os.fsencode, self._starter.places.confining))
            spec.kept_folders.extend(map(os.fsencode, self._starter.places.kept.paths))
            session.send_step(spec)

    def _send_shares(self, effect: fx.SendShares) -> None:
        session = self._session(effect.node_id, effect.stream)
        if session is not None:
            session.share(effect.shares, effect.reclaim_after_s)

    def _revoke_leases(self, effect: fx.RevokeLeases) -> None:
        session = self._session(effect.node_id, effect.stream)
        if session is not None:
            session.revoke(list(map(int, effect.lease_ids)))

    def _recall_leases(self, effect: fx.RecallLeases) -> None:
        session = self._session(effect.node_id, effect.stream)
        if session is not None:
            session.recall(effect.step_id, effect.leases_max, effect.kept)

    def _end_step(self, effect: fx.EndStep) -> None:
        session = self._session(effect.node_id, effect.stream)
        if session is not None:
            session.end_step(effect.step_id, effect.generation)

    def _send_drain(self, effect: fx.SendDrain) -> None:
        session = self._session(effect.node_id, effect.stream)
        if session is not None:
            session.drain()

    def _close_stream(self, effect: fx.CloseStream) -> None:
        session = self._session(effect.node_id, effect.stream)
        if session is not None:
            session.close()

    def _prepare_step(self, effect: fx.PrepareStep) -> None:
        step = self._core.state.steps.get(effect.step_id)
        # The effect waited for a commit, and StopStepWork does not wait: the step may have ended meanwhile.
        if step is not None and step.state not in ENDED_STEPS:
            self._starter.begin(step)

    def _stop_step_work(self, effect: fx.StopStepWork) -> None:
        self._finisher.abandon(effect.step_id)
        if effect.step_id in self._keeping:
            self._keeping[effect.step_id].cancel()
        ending = self._starter.stop(effect.step_id)
        if ending is not None:
            self._keep(asyncio.create_task(ending))
        recipes = self._recipes.pop(effect.step_id, None)
        if recipes is not None:
            recipes.close()

    def _concatenate_rows(self, effect: fx.ConcatenateRows) -> None:
        step = self._core.state.steps[effect.step_id]
        # This effect also waited for a commit: the step may have ended, or been retried, meanwhile.
        if step.state != StepState.CONCATENATING or self._core.state.jobs[step.job_key].generation != effect.generation:
            return
        work = self._finish_of(effect.step_id, effect.generation)
        reusable = self._reusable(step)
        self._keep(asyncio.create_task(self._finish(work, reusable)))
        if self._reporter is not None:
            self._reporter.begin_step(effect.step_id, work.logs, work.job_file)

    def _report_failures(self, effect: fx.ReportFailures) -> None:
        step = self._core.state.steps[effect.step_id]
        generation = self._core.state.jobs[step.job_key].generation
        listing = asyncio.create_task(self._finisher.report(self._finish_of(effect.step_id, generation)))
        self._failure_lists.setdefault(step.job_key, []).append(listing)
        self._keep(listing)

    def _finish_of(self, step_id: StepId, generation: int) -> Finish:
        step = self._core.state.steps[step_id]
        job = self._core.state.jobs[step.job_key]
        paths = StepPaths.from_json(step.paths)
        return Finish(
            job_key=job.job_key,
            job_id=job.job_id,
            project=job.queue,
            step_id=step.step_id,
            step_name=step.settings.name,
            only_step=len(job.steps) == 1,
            generation=generation,
            header=step.header,
            row_format=step.settings.row_format,
            missing=self._jobs.document(step).steps[step.ordinal].rows.missing,
            reader=step.plan.reader or b"{}",
            has_failures=bool(step.counters.failed or step.counters.items_failed),
            paths=paths,
            files=self._jobs.files(step),
            logs=self._jobs.logs(step),
            job_file=self._jobs.document(step).job_file,
            rows=step.counters.rows,
            values=needed_of(self._jobs.document(step), step.settings.name),
            assets=rows_of_outputs(
                self._jobs.document(step).steps[step.ordinal],
                step.step_id,
                job.job_id,
                job.queue,
                paths.outputs,
                time.time(),
            ),
        )

    def _reusable(self, step: Step) -> Begun | None:
        """The step, if later jobs may reuse it: it asked for that and nothing in it failed. Else None."""
        settings, counters = self._jobs.document(step).steps[step.ordinal], step.counters
        failures = counters.failed or counters.items_failed or step.workers.shutdown_failures
        if not settings.reuse or settings.resume_from is not None or failures:
            return None
        try:
            return Begun.of(self._jobs, step)
        except UnknownDatastore:
            return None  # the master no longer knows a datastore that the step began with

    async def _finish(self, work: Finish, reusable: Begun | None) -> None:
        try:
            command: Any = await self._finisher.finish(work, self._submit)
            if reusable is not None and isinstance(command, commands.FinishStep):
                paths = work.paths if command.paths is None else StepPaths.from_json(command.paths)
                keeping = self._keeping[work.step_id] = asyncio.create_task(self._reuse.keep(reusable, paths))
                try:
                    await asyncio.wait([keeping])
                finally:
                    keeping.cancel()
                    self._keeping.pop(work.step_id, None)
        except DatabaseDamaged as error:
            self._on_fatal(error)
            return
        except StateDamaged as error:
            # Only rows of this step are damaged: other jobs continue.
            message = f"The output of step {work.step_name!r} was not finished: {error}"
            command = commands.FailStep(work.step_id, message, generation=work.generation)
        except StateError as error:
            self._on_fatal(error)
            return
        except Exception as error:
            # A bug. Without a command, the step would wait for its output forever.
            log.exception("an output was not finished: please report this", extra={"fields": {"step": work.step_id}})
            message = f"The output of step {work.step_name!r} was not finished: {error!r}. Please report this."
            command = commands.FailStep(work.step_id, message, generation=work.generation)
        if command is not None:
            self._submit(command)

    def _notify_job(self, effect: fx.NotifyJob) -> None:
        self._watchers.notify(effect.job_key, ended=effect.ended)
        if self._reporter is not None and not effect.ended:
            self._reporter.running(effect.job_key)
        elif self._reporter is not None:
            self._reporter.end_job(effect.job_key, self._failure_lists.pop(effect.job_key, ()))
        if effect.ended:
            self._jobs.forget(effect.job_key)
            job = self._core.state.jobs.get(effect.job_key)
            if job is not None and job.state == JobState.COMPLETED:
                step_ids = [step.step_id for step in job.steps]
                self._keep(asyncio.create_task(asyncio.to_thread(self._sorted_rows.remove, job.job_id, step_ids)))

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._let_go)

    def _let_go(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("work outside the event loop failed: please report this", exc_info=task.exception())


def _parts(leased: Iterable[tuple[Lease, bytes]]) -> Iterator[tuple[list[tuple[Lease, bytes]], int]]:
    """Leases with their recipes, as many as one message takes, and the bytes of these; a larger recipe is alone."""
    part: list[tuple[Lease, bytes]] = []
    size = 0
    for one in leased:
        length = len(one[1])
        if part and size + length > RESPONSE_BYTES_MAX:
            yield part, size
            part, size = [], 0
        part.append(one)
        size += length + 32
    yield part, size
