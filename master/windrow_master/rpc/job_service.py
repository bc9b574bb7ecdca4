"""JobService: the calls of clients."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import windrow
from windrow.rpc import errors
from windrow.rpc.v1 import job_service_pb2 as pb
from windrow.storage.urls import is_remote

from windrow_master.core.records import JobRow, StepRow
from windrow_master.core.refused import Refused, job_ended
from windrow_master.core.states import ENDED_JOBS, StepState
from windrow_master.files.state_files import StateFiles
from windrow_master.identity.principals import caller
from windrow_master.jobs import Jobs
from windrow_master.output_places import OutputPlaces
from windrow_master.rpc.downloads import OpenOutput, open_output, pieces_of
from windrow_master.rpc.files import file_below, read_file_chunks
from windrow_master.rpc.forecast_views import ForecastViews
from windrow_master.rpc.log_selection import select_logs
from windrow_master.rpc.mini_batch_calls import MiniBatchCalls, step_named
from windrow_master.rpc.node_calls import NodeCalls
from windrow_master.rpc.node_views import NodeViews
from windrow_master.rpc.page_tokens import numbers_of
from windrow_master.rpc.projects import refuse_project
from windrow_master.rpc.refusals import CODES, Context, accepted, refuse
from windrow_master.rpc.retention_calls import RetentionCalls
from windrow_master.rpc.row_calls import RowCalls
from windrow_master.rpc.views import job_message, seconds_of
from windrow_master.run_values import TAGS, TAGS_MAX, RunValues, ValuesRefused
from windrow_master.shell.errors import SubmissionInvalid
from windrow_master.shell.reporting import Reporter
from windrow_master.shell.standby import Standby
from windrow_master.step_paths import StepPaths
from windrow_master.store.errors import StorePostponed
from windrow_master.threads import Kind, in_thread
from windrow_master.watchers import Watchers

if TYPE_CHECKING:
    from windrow.rpc.certificates import CertificateWatch

    from windrow_master.core.reasons import Reason
    from windrow_master.retention.keeper import Keeper

WATCH_INTERVAL_S = 0.25
"""Shortest time between two messages to a watcher. The end of the job is sent at once."""
WATCH_REST = 20
"""A watcher waits this many times as long as its last message took to make: a job of hundreds of steps would
otherwise keep the master busy with reports."""
WATCH_INTERVAL_MAX_S = 5.0
"""Longest such wait: a message that took seconds, since the machine stood still, keeps no watcher for minutes."""

FOLLOW_INTERVAL_S = 0.25
JOBS_PAGE, JOBS_PAGE_MAX = 50, 200
PAGE_DOCUMENTS_BYTES = 4 << 20
"""A page of jobs ends once their documents come to more: each is read to show the job, and calls of others wait."""
PAGE_ROWS_FIRST = 8
LARGE_DOCUMENT = 64 << 10
"""In bytes. A look at a larger one for secrets takes so long that calls of others would wait for it."""
LOGS_PAGE, LOGS_PAGE_MAX = 1_000, 10_000


def watch_interval_s(took_s: float) -> float:
    """How long a watcher waits after a message that took `took_s` to make."""
    return min(max(WATCH_INTERVAL_S, WATCH_REST * took_s), WATCH_INTERVAL_MAX_S)


class JobService(RetentionCalls, MiniBatchCalls, RowCalls, NodeCalls):
    """Turns calls into changes, and rows into messages.

    Not the `JobService` of `windrow.ml`, which is a setting of Azure ML.
    """

    def __init__(
        self,
        standby: Standby,
        jobs: Jobs,
        watchers: Watchers,
        nodes: NodeViews,
        files: StateFiles,
        outputs: OutputPlaces,
        *,
        incarnation: int,
        embedded: bool,
        datastores: Mapping[str, str | Path],
        run_values: RunValues,
        keeper: Callable[[], Keeper],
        reporter: Reporter | None = None,
        certificates: CertificateWatch | None = None,
    ) -> None:
        """`incarnation`: of the master.

        `keeper`: makes, or returns, the one that deletes jobs. `certificates`: watches the master's own certificate;
        None if it serves without TLS.
        """
        super().__init__(standby, nodes, embedded=embedded)
        self._jobs = jobs
        self._ahead = ForecastViews(standby)
        self._incarnation = incarnation
        self._watchers = watchers
        self._files = files
        self._outputs = outputs
        self._datastores = datastores
        self._run_values = run_values
        self._keeper = keeper
        self._reporter = reporter
        self._certificates = certificates

    async def SubmitJob(self, request: pb.SubmitJobRequest, context: Context) -> pb.SubmitJobResponse:
        """Submit a job; a repeated request_id gets the first answer again."""
        await refuse_project(request.project, context)
        deadline = await _deadline_of(request, context)
        try:
            reply = await self._standby.changes().submit(
                request.request_id, request.document, caller(), request.project, deadline
            )
        except SubmissionInvalid as error:
            code = CODES.get(error.reason, grpc.StatusCode.FAILED_PRECONDITION)
            await errors.abort(context, code, error.reason, str(error), error.metadata)
        job_key = await accepted(context, reply)
        self._standby.begin_work()
        job, steps = self._jobs.get(job_key)
        return pb.SubmitJobResponse(job=job_message(job, steps))

    async def GetJob(self, request: pb.GetJobRequest, context: Context) -> pb.GetJobResponse:
        """Return one job."""
        job, steps = await self._job(request.job_id, context)
        message = self._ahead.put(job_message(job, steps), job.job_key)
        if self._reporter is not None:
            message.warnings.extend(self._reporter.problems_of(job.job_key))
        document = job.document
        if not self._embedded:
            from windrow.common.secret_values import shown_document

            if len(document) > LARGE_DOCUMENT:
                document = await in_thread(shown_document, document, kind=Kind.DATASTORES)
            else:
                document = shown_document(document)
        return pb.GetJobResponse(job=message, document=document)

    async def ListJobs(self, request: pb.ListJobsRequest, context: Context) -> pb.ListJobsResponse:
        """Return a page of jobs, newest first."""
        size = min(request.page_size or JOBS_PAGE, JOBS_PAGE_MAX)
        before = await numbers_of(request.page_token, context)
        response, last, length = pb.ListJobsResponse(), before[0] if before else None, 0
        while True:
            # A few more rows than before each time: where documents are large, few are read that nobody is shown.
            wanted = min(size - len(response.jobs), 2 * len(response.jobs) + PAGE_ROWS_FIRST)
            found = self._jobs.page(wanted + 1, last, caller().project)
            for job, steps in found[:wanted]:
                if length > PAGE_DOCUMENTS_BYTES:
                    break
                response.jobs.append(self._ahead.put(job_message(job, steps), job.job_key))
                last, length = job.job_key, length + len(job.document)
                if len(job.document) > LARGE_DOCUMENT:
                    await asyncio.sleep(0)
            if length > PAGE_DOCUMENTS_BYTES or len(response.jobs) == size or len(found) <= wanted:
                break
        if found and last != found[-1][0].job_key:
            response.next_page_token = str(last)
        return response

    async def WatchJob(self, request: pb.WatchJobRequest, context: Context) -> AsyncIterator[pb.WatchJobResponse]:
        """Send the job now and after each change, until it has ended."""
        job, steps = await self._job(request.job_id, context)
        seq = request.after_seq
        self._standby.begin_work()
        with self._watchers.watch(job.job_key) as watch:
            while True:
                watch.changed.clear()
                begun_s = time.monotonic()
                job, steps = await self._job(request.job_id, context)
                message = job_message(job, steps) if job.seq > seq else None
                took_s = time.monotonic() - begun_s
                if message is not None:
                    seq = job.seq
                    if not self._embedded:
                        # A private master has one job: whoever watches it sees its pace.
                        self._ahead.put(message, job.job_key)
                    yield pb.WatchJobResponse(job=message)
                if job.state in ENDED_JOBS:
                    return
                await watch.next_change(watch_interval_s(took_s))

    async def ExplainJob(self, request: pb.ExplainJobRequest, context: Context) -> pb.ExplainJobResponse:
        """Explain the current state of each step."""
        # Short runs end before anyone asks.
        from windrow_master.rpc.reason_briefs import brief_of
        from windrow_master.rpc.reason_words import words_of

        await self._refuse_foreign(request.job_id, context)
        reply = await self._reasons(request.job_id)
        if reply is None:
            # It has ended so long ago that only its rows are left.
            from windrow_master.core.reasons import reason_of_ended

            job, steps = await self._job(request.job_id, context)
            reply = [reason_of_ended(step.name, StepState(step.state), step.message, job.message) for step in steps]
        return pb.ExplainJobResponse(
            reasons=[
                pb.StepReason(
                    step=reason.step,
                    code=reason.code,
                    message=words_of(reason, caller().sees),
                    brief=brief_of(reason, embedded=self._embedded),
                )
                for reason in reply
            ]
        )

    async def _reasons(self, job_id: str) -> list[Reason] | None:
        """The state of each step of a job, and why; None if it has ended long ago, or nothing runs."""
        reply = None if self._standby.state is None else await self._standby.changes().explain(job_id)
        return None if reply is None or isinstance(reply, Refused) else self._with_reports(job_id, reply)

    def _with_reports(self, job_id: str, reasons: list[Reason]) -> list[Reason]:
        """The reasons, with what the nodes report of the steps' workers."""
        from windrow_master.rpc.worker_reports import reason_with_reports

        state = self._standby.changes().state
        steps = state.jobs[state.job_keys[job_id]].steps
        reports = self._nodes.worker_reports()
        return [
            reason_with_reports(reason, reports.get(step.step_id, ()))
            for reason, step in zip(reasons, steps, strict=True)
        ]

    async def CancelJob(self, request: pb.CancelJobRequest, context: Context) -> pb.CancelJobResponse:
        """Cancel a job, unless it has ended."""
        job, steps = await self._job(request.job_id, context)
        if job.state not in ENDED_JOBS:
            await refuse(context, await self._standby.changes().cancel(request.job_id))
            job, steps = await self._job(request.job_id, context)
        return pb.CancelJobResponse(job=job_message(job, steps))

    async def UpdateJob(self, request: pb.UpdateJobRequest, context: Context) -> pb.UpdateJobResponse:
        """Change what an open job is worth."""
        job, _ = await self._job(request.job_id, context)
        await refuse_project(request.project, context)
        # Whoever only asks loads neither.
        from windrow.common.queue_settings import PRIORITY_MAX, WEIGHT_MAX

        from windrow_master.core.commands import UpdateJob

        weight_fits = not request.HasField("weight") or 1 <= request.weight <= WEIGHT_MAX
        if abs(request.priority) > PRIORITY_MAX or not weight_fits:
            await errors.abort(
                context,
                grpc.StatusCode.INVALID_ARGUMENT,
                errors.REQUEST_INVALID,
                f"A job's priority is from -{PRIORITY_MAX} to {PRIORITY_MAX}, and its weight from 1 to {WEIGHT_MAX}.",
            )
        if job.state in ENDED_JOBS:
            # It may have left the memory of the core, which would not know it.
            await refuse(context, job_ended(request.job_id))
        update = UpdateJob(
            request.job_id,
            request.priority if request.HasField("priority") else None,
            request.weight if request.HasField("weight") else None,
            request.project or None,
            0.0 if request.no_deadline else await _deadline_of(request, context),
            caller().name,
        )
        await refuse(context, await self._standby.changes().update(update))
        job, steps = await self._job(request.job_id, context)
        return pb.UpdateJobResponse(job=job_message(job, steps))

    async def RetryJob(self, request: pb.RetryJobRequest, context: Context) -> pb.RetryJobResponse:
        """Run the unfinished parts of an ended job again."""
        await self._refuse_foreign(request.job_id, context)
        try:
            reply = await self._standby.changes().retry(request.job_id, request.generation, request.document, caller())
        except SubmissionInvalid as error:
            code = CODES.get(error.reason, grpc.StatusCode.FAILED_PRECONDITION)
            await errors.abort(context, code, error.reason, str(error), error.metadata)
        except StorePostponed as error:
            await errors.abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "STORAGE_FULL", str(error))
        await refuse(context, reply)
        self._standby.begin_work()
        job, steps = await self._job(request.job_id, context)
        return pb.RetryJobResponse(job=job_message(job, steps))

    async def TagRun(self, request: pb.TagRunRequest, context: Context) -> pb.TagRunResponse:
        """Give the run of a job or step tags and properties; answered when they are durable."""
        job, steps = await self._job(request.job_id, context)
        logs = self._files.logs(job.job_id)
        if request.step_name:
            logs /= (await step_named(job.job_id, steps, request.step_name, context)).name
        if len(request.tags) > TAGS_MAX:
            await errors.abort(
                context,
                grpc.StatusCode.INVALID_ARGUMENT,
                errors.REQUEST_INVALID,
                f"{len(request.tags):,} tags at a time are too many: {TAGS_MAX:,} are the most.",
            )
        if self._standby.refusal:
            await errors.abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, errors.STORAGE_FULL, self._standby.refusal)
        try:
            await in_thread(partial(self._run_values.tag, logs, request.tags, of_job=not request.step_name))
        except ValuesRefused as error:
            await errors.abort(context, grpc.StatusCode.INVALID_ARGUMENT, errors.REQUEST_INVALID, str(error))
        except OSError as error:
            await errors.abort(
                context,
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                errors.STORAGE_FULL,
                f"The master cannot keep the tags of job {job.job_id}: {error.strerror}. Try again once its disk has "
                "room.",
            )
        if self._jobs.find(job.job_id) is None:
            # It was deleted meanwhile: another job may get the name, and not these tags.
            await in_thread(partial((logs / TAGS).unlink, missing_ok=True))
            await self._job(request.job_id, context)
        return pb.TagRunResponse()

    async def ListLogs(self, request: pb.ListLogsRequest, context: Context) -> pb.ListLogsResponse:
        """Return a page of the names of a job's log files."""
        job, steps = await self._job(request.job_id, context)
        await self._reports_of(job)
        size = min(request.page_size or LOGS_PAGE, LOGS_PAGE_MAX)
        root = self._files.logs(job.job_id)
        files = [
            pb.LogFile(path=path, length=length)
            for path, length in await in_thread(select_logs, request, root, self._jobs, steps)
            if not request.page_token or path > request.page_token
        ]
        response = pb.ListLogsResponse(files=files[:size])
        if len(files) > size:
            response.next_page_token = files[size - 1].path
        return response

    async def ReadLog(self, request: pb.ReadLogRequest, context: Context) -> AsyncIterator[pb.ReadLogResponse]:
        """Send a log file from an offset; with `follow`, until the job has ended."""
        job, _ = await self._job(request.job_id, context)
        await self._reports_of(job)
        root = self._files.logs(job.job_id)
        if await in_thread(file_below, root, request.path) is None and not request.follow:
            await errors.abort(
                context,
                grpc.StatusCode.NOT_FOUND,
                "LOG_UNKNOWN",
                _no_log(job, request.path),
            )
        offset = request.offset
        while True:
            job, _ = await self._job(request.job_id, context)
            ended = job.state in ENDED_JOBS
            await self._reports_of(job)
            # One that is followed need not be there yet.
            path = await in_thread(file_below, root, request.path)
            if path is not None:
                chunks = read_file_chunks(path, offset)
                while (chunk := await in_thread(next, chunks, None)) is not None:
                    yield pb.ReadLogResponse(offset=offset, content=chunk)
                    offset += len(chunk)
            if ended or not request.follow:
                return
            await asyncio.sleep(FOLLOW_INTERVAL_S)

    async def DownloadOutput(
        self, request: pb.DownloadOutputRequest, context: Context
    ) -> AsyncIterator[pb.DownloadOutputResponse]:
        """Send an output: one file, or all files of a folder."""
        job, steps = await self._job(request.job_id, context)
        name, paths = self._output_paths(job, steps, request.output)
        path = paths.outputs.get(name)
        if path is not None and is_remote(path):
            await errors.abort(
                context,
                grpc.StatusCode.FAILED_PRECONDITION,
                "OUTPUT_REMOTE",
                f"The output {request.output!r} of job {job.job_id} is in a store, at {path}. Fetch it from "
                "there with the store's own tools.",
            )
            return
        place = Path(path) if path is not None else None
        try:
            output = None
            if place is not None:
                look = partial(open_output, self._outputs, place, paths)
                output = await in_thread(look, kind=Kind.DATASTORES, drop=_close)
        except OSError as error:
            await self._unreadable(context, job, request.output, error)
            return
        if place is None or output is None:
            names = ", ".join(sorted(self._output_names(job, steps))) or "(none)"
            await errors.abort(
                context,
                grpc.StatusCode.NOT_FOUND,
                "OUTPUT_UNKNOWN",
                f"Job {job.job_id} has no output {request.output!r} that exists yet. Its outputs: {names}.",
            )
            return
        wanted = request.path.decode(errors="surrogateescape")
        first = request.from_path.decode(errors="surrogateescape")
        offset = request.offset
        with output.folder:
            rows_file = None if paths.append_row is None else Path(paths.append_row)
            written = [] if rows_file is None else await in_thread(self._jobs.reader.outputs_at, str(rows_file))
            for name, length in output.files:
                below = os.fsdecode(output.path_of(name))
                if (wanted and below != wanted) or below < first:
                    continue
                # A file that is not the one asked for (it is gone) is sent from its beginning.
                offset = min(offset, length) if below in (wanted, first) else 0
                file = place / below if below else place
                known = written if file == rows_file else ()
                pieces = pieces_of(output, name, file, length, offset, known)
                try:
                    while (piece := await in_thread(next, pieces, None, kind=Kind.DATASTORES)) is not None:
                        yield piece
                except OSError as error:
                    await self._unreadable(context, job, request.output, error)
                offset = 0

    async def GetMaster(self, request: pb.GetMasterRequest, context: Context) -> pb.GetMasterResponse:
        """Describe this master."""
        response = pb.GetMasterResponse(
            master_incarnation=self._incarnation,
            windrow_version=windrow.__version__,
            read_only_reason=self._standby.refusal,
            embedded=self._embedded,
            datastores={name: str(path) for name, path in self._datastores.items()},
        )
        if self._certificates is not None and self._certificates.good_until is not None:
            response.certificate_good_until.FromSeconds(int(self._certificates.good_until))
        return response

    @staticmethod
    async def _unreadable(context: Context, job: JobRow, output: str, error: OSError) -> None:
        """End a call because an output cannot be read."""
        await errors.abort(
            context,
            grpc.StatusCode.FAILED_PRECONDITION,
            errors.OUTPUT_UNREADABLE,
            f"The output {output!r} of job {job.job_id} cannot be read: {error.strerror}.",
        )

    async def _reports_of(self, job: JobRow) -> None:
        """Wait for the last of the logs of a job that has ended."""
        if self._reporter is not None and job.state in ENDED_JOBS:
            await self._reporter.settled(job.job_key)

    def _output_names(self, job: JobRow, steps: list[StepRow]) -> dict[str, tuple[str, str]]:
        """Every name that DownloadOutput takes -> (step, output)."""
        names = {
            f"{step.name}.{output}": (step.name, output)
            for step in steps
            for output in StepPaths.from_json(step.paths).outputs
        }
        names.update(self._jobs.pipeline_outputs(job))
        return names

    def _output_paths(self, job: JobRow, steps: list[StepRow], name: str) -> tuple[str, StepPaths]:
        """The output's name in its step, and that step's paths; empty if there is no such output."""
        step_name, output = self._output_names(job, steps).get(name, ("", ""))
        paths = next((step.paths for step in steps if step.name == step_name), b"")
        return output, StepPaths.from_json(paths)


def _no_log(job: JobRow, path: str) -> str:
    if path.endswith("job_result.txt") and job.state not in ENDED_JOBS:
        instead = f"Until then: `windrow job explain {job.job_id}`."
        return f"Job {job.job_id} has not ended; {path} is written when it has. {instead}"
    return f"Job {job.job_id} has no log file {path!r}. `windrow job logs {job.job_id}` names them."


async def _deadline_of(request: pb.SubmitJobRequest | pb.UpdateJobRequest, context: Context) -> float | None:
    """The deadline that a request names, in seconds since 1970; None if it names none. Ends the call if it is none."""
    try:
        return seconds_of(request, "deadline")
    except ValueError:
        why = "The deadline is not a moment: it must be from the year 1 to 9999."
        await errors.abort(context, grpc.StatusCode.INVALID_ARGUMENT, errors.REQUEST_INVALID, why)


def _close(output: OpenOutput | None) -> None:
    if output is not None:
        output.folder.close()
