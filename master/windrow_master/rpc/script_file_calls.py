"""The part of AgentService that takes what scripts hand in, and answers what they ask for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NoReturn

import grpc
from windrow.rpc import errors
from windrow.rpc.v1 import run_files_pb2 as pb

from windrow_master.assets import AssetRefused, message_of
from windrow_master.core.ids import NodeId, StepId
from windrow_master.datastores import UnknownDatastore
from windrow_master.limits import how_to_raise
from windrow_master.rpc.files import read_file_chunks
from windrow_master.rpc.refusals import CODES, Context
from windrow_master.run_values import RunValues, ValuesRefused
from windrow_master.script_files import FileRefused, FileUnknown, KeptFiles, ScriptFiles, ScriptRun, TooMuch
from windrow_master.shell.writer import Writer
from windrow_master.store.errors import StorePostponed
from windrow_master.threads import Kind, in_thread

MODELS_MAX = 1000
READING_MAX = 2
"""Calls of ReadLogged that read at a time."""


class ScriptFileCalls:
    """The calls, for AgentService."""

    _writer: Writer
    _logs_of: Callable[[int], Path | None]
    """The folder of a step's logs; None if there is no such step."""
    _script_files: ScriptFiles
    _script_files_max: int
    _run_values: RunValues
    _keeping = 0
    """Calls of KeepFiles under way."""
    _reading: asyncio.Semaphore
    """Held by calls of ReadLogged while they read."""

    async def _identify(self, context: Context) -> tuple[NodeId, str]:
        """The node that calls, and its incarnation."""
        raise NotImplementedError

    def _may_send_logs(self, node_id: NodeId, step_id: StepId) -> bool:
        """Whether a node was offered a step."""
        raise NotImplementedError

    async def KeepFiles(
        self, request_iterator: AsyncIterator[pb.KeepFilesRequest], context: Context
    ) -> pb.KeepFilesResponse:
        """Keep files of a run, or register a model."""
        node_id, _ = await self._identify(context)
        if self._keeping >= self._script_files_max:
            await errors.abort(
                context,
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                errors.LIMIT_REACHED,
                f"{self._keeping} uploads of scripts' files arrive at this master, which is its limit script_files. "
                f"The agent tries again. To take more at a time, {how_to_raise('script_files')}.",
            )
        if self._writer.refusal:
            await errors.abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, errors.STORAGE_FULL, self._writer.refusal)
        self._keeping += 1
        try:
            requests = aiter(request_iterator)
            first = await anext(requests, None)
            if first is None or not first.HasField("head"):
                await _refuse_request(context, "The upload does not say what it is for.")
            run = await self._run(node_id, first.head.run, context)
            return await self._keep(first.head, run, requests, context)
        finally:
            self._keeping -= 1

    async def _keep(
        self, head: pb.KeepFilesHead, run: ScriptRun, requests: AsyncIterator[pb.KeepFilesRequest], context: Context
    ) -> pb.KeepFilesResponse:
        is_model = head.HasField("model")
        files = self._script_files
        async with _refusing(context):
            opened = files.model_content(run, head.model) if is_model else files.keeping(run)
            kept: KeptFiles = await in_thread(
                opened.__enter__, kind=Kind.DATASTORES, drop=lambda _: opened.__exit__(None, None, None)
            )
            try:
                if is_model and head.run_path:
                    await in_thread(files.copy, run, head.run_path, kept, kind=Kind.DATASTORES)
                async for request in requests:
                    if request.name:
                        await in_thread(kept.begin, request.name, kind=Kind.DATASTORES)
                    if request.chunk:
                        await in_thread(kept.write, request.chunk, kind=Kind.DATASTORES)
                if is_model:
                    row = await in_thread(files.register, run, head.model, kept, kind=Kind.DATASTORES)
                    return pb.KeepFilesResponse(model=message_of(row))
                await in_thread(kept.end, kind=Kind.DATASTORES)
                return pb.KeepFilesResponse()
            finally:
                await in_thread(opened.__exit__, None, None, None, kind=Kind.DATASTORES)

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:
        """Return the models that a script may use."""
        node_id, _ = await self._identify(context)
        await self._run(node_id, request.run, context)
        rows = await in_thread(self._script_files.models, request.name, MODELS_MAX, kind=Kind.STATE)
        return pb.ListModelsResponse(models=[message_of(row) for row in rows])

    async def ListRunFiles(self, request: pb.ListRunFilesRequest, context: Context) -> pb.ListRunFilesResponse:
        """Return the names of what scripts have uploaded for a run."""
        node_id, _ = await self._identify(context)
        run = await self._run(node_id, request.run, context)
        return pb.ListRunFilesResponse(names=await in_thread(self._script_files.names, run))

    async def ReadRunFile(
        self, request: pb.ReadRunFileRequest, context: Context
    ) -> AsyncIterator[pb.ReadRunFileResponse]:
        """Return the bytes of such a file."""
        node_id, _ = await self._identify(context)
        run = await self._run(node_id, request.run, context)
        async with _refusing(context):
            path: Path = await in_thread(self._script_files.path, run, request.name)
            chunks = read_file_chunks(path, 0)
            while chunk := await in_thread(next, chunks, b""):
                yield pb.ReadRunFileResponse(chunk=chunk)

    async def ReadLogged(self, request: pb.ReadLoggedRequest, context: Context) -> AsyncIterator[pb.ReadLoggedResponse]:
        """Return what scripts have logged for a run, and its tags."""
        node_id, _ = await self._identify(context)
        run = await self._run(node_id, request.run, context)
        values, of_job = self._run_values, request.run.of_job
        pieces = values.rows(run, of_job=of_job, only_tags=request.only_tags)
        async with _refusing(context):
            while True:
                # It reads all that a run has logged: scripts that ask all the time must not keep others from the disk.
                async with self._reading:
                    rows = await in_thread(next, pieces, b"")
                if not rows:
                    return
                yield pb.ReadLoggedResponse(rows=rows)

    async def FindData(self, request: pb.FindDataRequest, context: Context) -> pb.FindDataResponse:
        """Return a data asset that a script names."""
        node_id, _ = await self._identify(context)
        await self._run(node_id, request.run, context)
        async with _refusing(context):
            row = await in_thread(self._script_files.data, request.name, request.version)
        return pb.FindDataResponse(data=message_of(row))

    async def ListDatastores(self, request: pb.ListDatastoresRequest, context: Context) -> pb.ListDatastoresResponse:
        """Return where the datastores are."""
        node_id, _ = await self._identify(context)
        await self._run(node_id, request.run, context)
        return pb.ListDatastoresResponse(places=self._script_files.datastores)

    async def _run(self, node_id: NodeId, wanted: pb.RunOfScript, context: Context) -> ScriptRun:
        step_id = StepId(wanted.step_id)
        if not self._may_send_logs(node_id, step_id):
            await errors.abort(
                context,
                grpc.StatusCode.PERMISSION_DENIED,
                errors.STEP_NOT_OFFERED,
                f"Node {node_id} was never offered the step {step_id}, so none of its scripts hands in anything.",
            )
        state = self._writer.core.state
        logs, step = self._logs_of(step_id), state.steps.get(step_id)
        if logs is None or step is None:
            await errors.abort(
                context,
                grpc.StatusCode.FAILED_PRECONDITION,
                errors.STEP_UNKNOWN,
                f"This master has no step {step_id} that runs. What its script hands in is not kept.",
            )
        job = state.jobs[step.job_key]
        folder = logs.parent if wanted.of_job else logs
        return ScriptRun(job.job_id, job.queue, step_id, logs.name, folder, logs.parent)


@contextlib.asynccontextmanager
async def _refusing(context: Context) -> AsyncIterator[None]:
    try:
        yield
    except FileUnknown as error:
        await errors.abort(context, grpc.StatusCode.NOT_FOUND, errors.RUN_FILE_UNKNOWN, str(error))
    except TooMuch as error:
        # Not for another try, as RESOURCE_EXHAUSTED would be.
        await errors.abort(context, grpc.StatusCode.FAILED_PRECONDITION, errors.LIMIT_REACHED, str(error))
    except (FileRefused, UnknownDatastore, ValuesRefused) as error:
        await _refuse_request(context, str(error))
    except AssetRefused as error:
        code = CODES.get(error.reason, grpc.StatusCode.FAILED_PRECONDITION)
        if error.reason == errors.LIMIT_REACHED:
            # As above.
            code = grpc.StatusCode.FAILED_PRECONDITION
        await errors.abort(context, code, error.reason, str(error))
    except StorePostponed as error:
        await errors.abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, errors.STORAGE_FULL, str(error))
    except OSError as error:
        await errors.abort(
            context,
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            errors.STORAGE_FULL,
            f"The master cannot store what a script hands in: {error.strerror}. The agent tries again.",
        )


async def _refuse_request(context: Context, message: str) -> NoReturn:
    await errors.abort(context, grpc.StatusCode.INVALID_ARGUMENT, errors.REQUEST_INVALID, message)
