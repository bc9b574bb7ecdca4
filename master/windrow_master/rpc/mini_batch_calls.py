"""The calls of JobService about mini-batches: lists, replays, and the figures of a job's report."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from windrow.rpc import errors
from windrow.rpc.v1 import job_service_pb2 as pb
from windrow.rpc.v1 import mini_batch_pb2, node_pb2, work_pb2

from windrow_master.core.ids import LeaseId, StepId
from windrow_master.core.records import JobRow, StepRow
from windrow_master.datastores import Datastores, UnknownDatastore
from windrow_master.files.recipes import RecipePlace, Recipes
from windrow_master.files.state_files import StateFiles
from windrow_master.files.step_damage import StepDamaged
from windrow_master.identity.principals import caller
from windrow_master.jobs import Jobs
from windrow_master.reports.failed_items import named_items
from windrow_master.reports.job_figures import RunningAttempt, WorkerKey
from windrow_master.reports.worker_logs import logs_of_worker
from windrow_master.roots import Roots
from windrow_master.rpc.forecast_views import ForecastViews
from windrow_master.rpc.mini_batch_pages import Wanted, by_index, newest
from windrow_master.rpc.mini_batch_views import (
    ENDED_BY_ITSELF,
    attempt_message,
    lease_message,
    mini_batch_message,
    reached_a_worker,
    workers_by_lease,
)
from windrow_master.rpc.node_views import NodeViews
from windrow_master.rpc.page_tokens import numbers_of
from windrow_master.rpc.refusals import Context
from windrow_master.shell.standby import Standby
from windrow_master.step_paths import StepPaths
from windrow_master.store.records import MiniBatchRow
from windrow_master.threads import in_thread

if TYPE_CHECKING:
    from windrow_master.core.leases import Lease
    from windrow_master.core.reasons import Reason

PAGE, PAGE_MAX = 100, 1_000
BUSY = (node_pb2.WORKER_PHASE_LOADING, node_pb2.WORKER_PHASE_RUNNING, node_pb2.WORKER_PHASE_RETURNING)
ITEMS_MAX = 1_000
ATTEMPTS_MAX = 1_000


class MiniBatchCalls:
    """Turns rows of the store and leases of the core into messages. A mixin: the servicer provides these."""

    _jobs: Jobs
    _standby: Standby
    _nodes: NodeViews
    _files: StateFiles
    _datastores: Mapping[str, str | Path]
    _embedded: bool
    _ahead: ForecastViews
    _reasons: Callable[[str], Awaitable[list[Reason] | None]]

    async def ListMiniBatches(self, request: pb.ListMiniBatchesRequest, context: Context) -> pb.ListMiniBatchesResponse:
        """Return a page of the mini-batches of a job."""
        _, steps = await self._job(request.job_id, context)
        if request.step_name:
            steps = [await step_named(request.job_id, steps, request.step_name, context)]
        wanted = Wanted(
            frozenset(state - 1 for state in request.states),
            0 if request.short_of_results else int(request.cause) or None,
            request.newest_first,
            min(request.page_size or PAGE, PAGE_MAX),
        )
        if wanted.newest_first:
            steps.reverse()
        # The number of a step, and the mini-batch in it after which the page begins.
        place = await numbers_of(request.page_token, context, most=3) or (0,)
        response = pb.ListMiniBatchesResponse()
        for number, step in enumerate(steps):
            if number < place[0]:
                continue
            after = place[1:] if number == place[0] else ()
            leases = self._leases(step.step_id)
            left = wanted.size - len(response.mini_batches)
            if not left:
                response.next_page_token = str(number)
                break
            look = newest if wanted.newest_first else by_index
            found, behind = await in_thread(look, self._jobs.reader, step.step_id, wanted, left, after, leases)
            told = self._told([leases[one.row.mini_batch] for one in found if one.row.mini_batch in leases])
            response.mini_batches.extend(
                mini_batch_message(step.name, one.row, one.attempts, told.get(one.row.mini_batch)) for one in found
            )
            if behind:
                response.next_page_token = ".".join(map(str, (number, *behind)))
                break
        return response

    async def GetMiniBatch(self, request: pb.GetMiniBatchRequest, context: Context) -> pb.GetMiniBatchResponse:
        """Return one mini-batch with all its attempts."""
        job, step, row = await self._one(request, context)
        lease = self._leases(step.step_id).get(row.mini_batch)
        told = self._told([lease]) if lease is not None else {}
        return await in_thread(self._looked_at, job, step, row, told.get(row.mini_batch))

    async def GetReplay(self, request: pb.GetReplayRequest, context: Context) -> pb.GetReplayResponse:
        """Return everything that is needed to run a mini-batch again."""
        job, step, row = await self._one(request, context)
        reader = json.loads(step.reader or b"{}")
        gone = _gone(reader)
        if gone:
            await errors.abort(
                context,
                grpc.StatusCode.FAILED_PRECONDITION,
                errors.REPLAY_IMPOSSIBLE,
                f"Mini-batch {row.mini_batch} of step {step.name} read rows that were sorted by their partition "
                f"keys, from {gone}; that file is removed when the job ends. Replay it while the job runs, or "
                "run the job again with less data.",
            )
        try:
            return await in_thread(self._replayed, job, step, row)
        except (OSError, StepDamaged, UnknownDatastore) as error:
            await errors.abort(
                context,
                grpc.StatusCode.FAILED_PRECONDITION,
                errors.REPLAY_IMPOSSIBLE,
                f"It is no longer known what mini-batch {row.mini_batch} of step {step.name} reads: {error}.",
            )

    async def GetJobReport(self, request: pb.GetJobReportRequest, context: Context) -> pb.GetJobReportResponse:
        """Return the figures of a job as of now."""
        from windrow_master.reports.job_report import Present, job_report

        job, steps = await self._job(request.job_id, context)
        running = {step.step_id: self._at_work(step.step_id) for step in steps}
        ahead = self._ahead.of(job.job_key)
        forecast = None if ahead is None else ahead._asdict()
        gpus = self._gpu_workers({step.step_id for step in steps})
        why = await self._why(job) if job.end_time is None else {}
        present = Present(time.time(), running, forecast, gpus, self._live_workers(), why)
        document = await in_thread(job_report, self._jobs.reader, job, steps, present)
        return pb.GetJobReportResponse(document=document)

    # Looking up.

    async def _job(self, job_id: str, context: Context) -> tuple[JobRow, list[StepRow]]:
        """The job of this name. Ends the call if the caller sees none."""
        found = self._jobs.find(job_id)
        by = caller()
        if found is None or not by.sees(found[0].queue):
            await errors.abort(
                context,
                grpc.StatusCode.NOT_FOUND,
                errors.JOB_UNKNOWN,
                f"There is no job named {job_id!r} here. `windrow job list` names them.{by.sees_only}",
            )
        return found

    async def _refuse_foreign(self, job_id: str, context: Context) -> None:
        """End the call if the caller may not know of the job."""
        if caller().project:
            await self._job(job_id, context)

    async def _one(
        self, request: pb.GetMiniBatchRequest | pb.GetReplayRequest, context: Context
    ) -> tuple[JobRow, StepRow, MiniBatchRow]:
        job, steps = await self._job(request.job_id, context)
        if not request.step_name and len(steps) == 1:
            step = steps[0]
        else:
            step = await step_named(request.job_id, steps, request.step_name, context)
        index = request.mini_batch_index
        rows = await in_thread(self._jobs.reader.mini_batches_at, step.step_id, [index] if index < 1 << 32 else [])
        if not rows:
            why = (
                f"Step {step.name} of job {job.job_id} has no mini-batch {index} (yet): they are counted from 0. "
                f"`windrow mb list {job.job_id}` names them."
            )
            if made_by := StepPaths.from_json(step.paths).reused_from:
                why = (
                    f"Step {step.name} of job {job.job_id} has no mini-batches: it was reused from job {made_by}. "
                    f"`windrow mb list {made_by}` names those that made its outputs."
                )
            await errors.abort(context, grpc.StatusCode.NOT_FOUND, errors.MINI_BATCH_UNKNOWN, why)
        if not step.reader:
            # The first mini-batches were planned after the step was looked up: what reads them is stored with them.
            job, steps = await self._job(request.job_id, context)
            step = steps[step.ordinal]
        return job, step, rows[0]

    def _leases(self, step_id: StepId) -> dict[int, Lease]:
        """The current leases, by mini-batch; of a mini-batch that runs twice, the first one."""
        state = self._standby.state
        step = None if state is None else state.steps.get(step_id)
        if state is None or step is None:
            return {}
        found = [state.leases[lease_id] for lease_id in step.lease_ids]
        return {lease.mini_batch: lease for lease in found if not lease.is_second or lease.rival is None}

    def _told(self, leases: Sequence[Lease]) -> dict[int, mini_batch_pb2.MiniBatchAttempt]:
        """The present leases as attempts, by mini-batch."""
        state = self._standby.state
        if state is None or not leases:
            return {}
        from windrow_master.shell.writer import moment

        workers, now = workers_by_lease(self._nodes.nodes()), moment()
        nodes = state.nodes
        return {
            lease.mini_batch: lease_message(
                lease,
                nodes[lease.node_id].node_incarnation if lease.node_id in nodes else "",
                workers.get(lease.lease_id),
                now,
            )
            for lease in leases
        }

    def _at_work(self, step_id: StepId) -> list[RunningAttempt]:
        """Workers that were running a mini-batch of a step at their nodes' last heartbeat."""
        state = self._standby.state
        if state is None:
            return []
        now_us = int(time.time() * 1e6)
        found = []
        for node in self._nodes.nodes():
            for worker in node.workers:
                lease = state.leases.get(LeaseId(worker.lease_id))
                if worker.phase in BUSY and lease is not None and lease.step_id == step_id:
                    since_us = now_us - 1000 * (worker.phase_ms + node.silent_ms)
                    found.append(
                        RunningAttempt(
                            lease.mini_batch, node.node_id, node.node_incarnation, worker.process_number, since_us
                        )
                    )
        return found

    def _live_workers(self) -> set[WorkerKey] | None:
        """The workers that nodes had at their last heartbeat; None where nothing runs."""
        if self._standby.state is None:
            return None
        return {
            (node.node_id, node.node_incarnation, worker.process_number)
            for node in self._nodes.nodes()
            for worker in node.workers
        }

    async def _why(self, job: JobRow) -> dict[str, str]:
        """Why each step that has not ended is in its state, in words."""
        from windrow_master.rpc.reason_words import words_of

        reasons = await self._reasons(job.job_id)
        sees = caller().sees
        return {reason.step: words_of(reason, sees) for reason in reasons or ()}

    def _gpu_workers(self, step_ids: Container[StepId]) -> dict[StepId, list[dict[str, Any]]]:
        """Workers that held GPUs at their nodes' last heartbeat, by step."""
        found: dict[StepId, list[dict[str, Any]]] = {}
        for node in self._nodes.nodes():
            for worker in node.workers:
                step_id, gpu, there = StepId(worker.step_id), worker.gpu, node.usage.gpus
                if step_id in step_ids and worker.HasField("gpu"):
                    found.setdefault(step_id, []).append(
                        {
                            "node": node.node_id,
                            "process_number": worker.process_number,
                            "places": list(gpu.places),
                            "models": sorted({there[at].model for at in gpu.places if at < len(there)}),
                            "share": round(gpu.share, 4),
                            "memory_bytes": gpu.memory_bytes if gpu.HasField("memory_bytes") else None,
                            "busy_percent": round(gpu.busy_percent, 1) if gpu.HasField("busy_percent") else None,
                            "idle_s": gpu.idle_ms / 1000,
                        }
                    )
        return found

    # In a thread.

    def _looked_at(
        self, job: JobRow, step: StepRow, row: MiniBatchRow, lease: mini_batch_pb2.MiniBatchAttempt | None
    ) -> pb.GetMiniBatchResponse:
        from windrow.common.secret_values import shown_text

        from windrow_master.planning.recipes.description import describe_items, describe_partition
        from windrow_master.planning.recipes.recipe_json import recipe_json

        rows = self._jobs.reader.attempts_of_mini_batch(step.step_id, row.mini_batch)
        logs = self._files.logs(job.job_id)
        attempts = [
            attempt_message(
                one,
                row.lease_id,
                logs_of_worker(logs, step.name, one.node_id, one.node_incarnation, one.process_number)
                if reached_a_worker(one)
                else (),
            )
            for one in rows[-ATTEMPTS_MAX:]
        ]
        if lease is not None:
            attempts = [one for one in attempts if one.lease_id != lease.lease_id]
            if lease.HasField("process_number"):
                lease.logs.extend(
                    logs_of_worker(logs, step.name, lease.node_id, lease.node_incarnation, lease.process_number)
                )
            attempts.append(lease)
        reader = json.loads(step.reader or b"{}")
        response = pb.GetMiniBatchResponse(
            mini_batch=mini_batch_message(step.name, row, rows, lease), attempts=attempts, recipe="{}"
        )
        try:
            recipe = self._recipe(job, step, row)
        except (OSError, StepDamaged) as error:
            response.items.append(f"(no longer known: {error})")
            return response
        items = describe_items(reader, recipe)
        shown = str if self._embedded else shown_text
        response.items.extend(map(shown, items[:ITEMS_MAX]))
        response.items_left_out = max(0, len(items) - ITEMS_MAX)
        response.partition = describe_partition(reader, recipe)
        response.recipe = shown(recipe_json(reader, recipe))
        failed = [
            pb.FailedItem(
                item=item,
                number=number,
                cause=failure.cause,  # type: ignore[arg-type]
                message=failure.message,
            )
            for failure in self._jobs.reader.failures_at(step.step_id, row.mini_batch)
            for item, number in named_items(failure, items)
        ]
        response.failed_items.extend(failed[:ITEMS_MAX])
        response.failed_items_left_out = max(0, len(failed) - ITEMS_MAX)
        return response

    def _replayed(self, job: JobRow, step: StepRow, row: MiniBatchRow) -> pb.GetReplayResponse:
        # Few mini-batches are ever replayed.
        from windrow.spec.effective.job import EffectiveJob, LiteralInput, with_values

        from windrow_master.planning.recipes.description import describe_items
        from windrow_master.shell.preparation import resolved
        from windrow_master.shell.step_spec import replayed_step_spec

        recipe = self._recipe(job, step, row)
        document = EffectiveJob.from_json(job.document)
        effective = resolved(document.steps[step.ordinal], Datastores(self._datastores), lenient=self._embedded)
        paths = StepPaths.from_json(step.paths)
        effective = with_values(effective, paths.inputs)
        reader = json.loads(step.reader or b"{}")
        attempts = self._jobs.reader.attempts_at(step.step_id, [row.mini_batch])
        tries = sum(one.state in ENDED_BY_ITSELF for one in attempts)
        items = describe_items(reader, recipe)
        literal = {name for name, given in effective.inputs.items() if isinstance(given, LiteralInput)}
        readable = None if self._embedded else Roots(self._datastores.values())
        return pb.GetReplayResponse(
            step=replayed_step_spec(job, step, effective, paths, document.experiment_name, readable),
            assignment=work_pb2.Assignment(
                mini_batch_index=row.mini_batch,
                item_first=row.item_first,
                item_count=row.item_count,
                recipe=recipe,
                attempt=max(1, tries),
            ),
            items=items[:ITEMS_MAX],
            items_left_out=max(0, len(items) - ITEMS_MAX),
            inputs={name: path for name, path in paths.inputs.items() if name not in literal},
        )

    def _recipe(self, job: JobRow, step: StepRow, row: MiniBatchRow) -> bytes:
        """Read the recipe of a mini-batch. Raises StepDamaged, and OSError if the step's recipes cannot be read."""
        if not row.recipe_length:
            return b""
        with Recipes(self._files.step(job.job_id, step.step_id).recipes) as recipes:
            return recipes.read(RecipePlace(row.mini_batch, row.recipe_offset, row.recipe_length, row.recipe_crc32))


async def step_named(job_id: str, steps: list[StepRow], name: str, context: Context) -> StepRow:
    """The step of this name. Ends the call if there is none."""
    found = next((step for step in steps if step.name == name), None)
    if found is None:
        names = ", ".join(step.name for step in steps)
        said = f"no step named {name!r}" if name else "several steps. Name one of them, as in STEP/17"
        await errors.abort(
            context,
            grpc.StatusCode.NOT_FOUND,
            errors.STEP_UNKNOWN,
            f"Job {job_id} has {said}. Its steps: {names}.",
        )
    return found


def _gone(reader: dict[str, object]) -> str:
    """The file of rows sorted by partition keys that a step read, if that file no longer exists; otherwise empty."""
    readers = reader.get("inputs") if reader.get("kind") == "inputs" else [reader]
    for one in readers if isinstance(readers, list) else []:
        file = one.get("file") if one.get("format") == "sorted_rows" else None
        if isinstance(file, str) and not os.path.exists(file):  # noqa: PTH110  may be no UTF-8
            return file
    return ""
