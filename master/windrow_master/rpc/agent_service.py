"""AgentService: the calls of node agents."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import math
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import grpc
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from windrow.common.allocation_name import is_allocation_name
from windrow.common.journal import Repeated, say
from windrow.rpc import errors
from windrow.rpc.v1 import agent_service_pb2 as pb
from windrow.rpc.v1 import agent_service_pb2_grpc, node_pb2, work_pb2

from windrow_master.core import commands
from windrow_master.core.bounds import keep_heartbeat_in_bounds, too_much_for_a_node
from windrow_master.core.commands import HeldLease
from windrow_master.core.ids import LeaseId, NodeId, StepId
from windrow_master.core.pools import pools_of
from windrow_master.core.states import AttemptState, Verdict
from windrow_master.identity.principals import TokenRefused, caller, digest_of
from windrow_master.limits import Limits, how_to_raise
from windrow_master.output.staging import RowsFileUnreadable, StagedSegment, staged_fits
from windrow_master.reports.worker_logs import WorkerLogs
from windrow_master.rpc.names import NAME
from windrow_master.rpc.node_views import NodeViews
from windrow_master.rpc.refusals import refuse
from windrow_master.rpc.script_file_calls import READING_MAX, ScriptFileCalls
from windrow_master.rpc.views import seconds_of
from windrow_master.rpc.worker_reports import gpu_uses, idle_workers, running_leases
from windrow_master.run_values import RunValues
from windrow_master.script_files import ScriptFiles
from windrow_master.shell.work_session import RESPONSE_BYTES_MAX, WorkSession
from windrow_master.shell.writer import Writer
from windrow_master.store.errors import StorePostponed
from windrow_master.threads import in_thread

if TYPE_CHECKING:
    from windrow_master.core.records import AttemptRow

CREDENTIAL_KEY = "windrow-credential"
SECRET_KEY = "windrow-secret"
CREDENTIAL_REFUSED = "The call carries no valid node credential. The agent registers again automatically."
INLINE_ROWS_BYTES_MAX = 256 << 10
UNACKNOWLEDGED_MESSAGES_MAX = 16
"""How many messages with completions may wait for their commit before a stream is read on."""
UNACKNOWLEDGED_BYTES_MAX = 64 << 20
"""While more bytes of rows than this wait, over all streams, each stream is read one message at a time: a slow or full
disk holds the fleet back instead of filling the memory."""
COMMANDS_AT_ONCE = 500
"""After so many entries of one message, others have their turn: an agent sends a few, and a rogue what it likes."""
NOTE_PROGRESS_S = 10.0
"""While large rows arrive, their step is noted as making progress this often."""
DROPPED = (Verdict.SUPERSEDED, Verdict.JOB_ENDED, Verdict.UNKNOWN)
"""Verdicts on results that do not count."""
_RESULTS = Repeated(in_all=30)
"""Those results: a node could send as many as it likes."""
_CUT = Repeated(in_all=30)
"""Nodes that ask for more than one node gets."""
READY_PHASES = frozenset(
    (
        node_pb2.WORKER_PHASE_IDLE,
        node_pb2.WORKER_PHASE_LOADING,
        node_pb2.WORKER_PHASE_RUNNING,
        node_pb2.WORKER_PHASE_RETURNING,
    )
)
"""Phases that a worker reaches only after `init()`."""


class Sessions(Protocol):
    """Keeps the open Work streams of the nodes."""

    def open_session(self, node_id: NodeId, session: WorkSession) -> None:
        """Note that a stream begins."""

    def close_session(self, node_id: NodeId, session: WorkSession) -> None:
        """Note that a stream has ended."""

    def logs_of(self, step_id: int) -> Path | None:
        """The folder of a step's logs; None if there is no such step."""

    def staging_folder(self, lease_id: LeaseId) -> Path | None:
        """Where large rows of a live lease are staged; None if the lease is not live."""


class AgentService(ScriptFileCalls, agent_service_pb2_grpc.AgentServiceServicer):
    """Turns requests into commands for the writer."""

    def __init__(
        self,
        writer: Writer,
        sessions: Sessions,
        logs: WorkerLogs,
        script_files: ScriptFiles,
        run_values: RunValues,
        nodes: NodeViews,
        addresses: list[str],
        *,
        embedded: bool,
        attempts_with: Callable[[Sequence[int]], list[AttemptRow]],
        limits: Limits | None = None,
    ) -> None:
        """`embedded`: all agents run on this machine, as this user. `identity.needs` says who may join.
        `attempts_with`: the stored attempts under leases (`StoreReader.attempts_with`)."""
        self._attempts_with = attempts_with
        self._embedded = embedded
        self._script_files = script_files
        self._run_values = run_values
        self._reading = asyncio.Semaphore(READING_MAX)
        self._logs_of = sessions.logs_of
        self._limits = limits = limits or Limits()
        self._script_files_max = limits.script_files
        self._row_uploads_max = limits.row_uploads
        self._row_uploads = 0
        self._writer = writer
        self._sessions = sessions
        self._logs = logs
        self._addresses = addresses
        self._streams = itertools.count(1)
        self._unacknowledged_bytes = 0
        self.admission: Callable[[str, Callable[[], Awaitable[None]]], Awaitable[None]] = _admit
        """Has the join token with a digest admit a node: `identity.tokens.Tokens.admit`."""
        self._credentials: dict[str, tuple[NodeId, str]] = {}
        self._nodes = nodes

    async def Register(
        self, request: pb.RegisterRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.RegisterResponse:
        """Admit a node."""
        if not NAME.fullmatch(request.node_id) or not 0 < len(request.node_incarnation) <= 64:
            await errors.abort(
                context,
                grpc.StatusCode.INVALID_ARGUMENT,
                "NODE_INVALID",
                f"{request.node_id[:80]!r} is not a valid node name: use at most 64 letters, digits, '_', '.' and '-'.",
            )
        labels = json.dumps({**dict(request.labels), "windrow_version": request.windrow_version}).encode()
        if too_much := too_much_for_a_node(request.resources, len(pools_of(labels))):
            await errors.abort(
                context,
                grpc.StatusCode.INVALID_ARGUMENT,
                "NODE_INVALID",
                f"The node {request.node_id} {too_much}. Start its agent with fewer: windrow agent --help",
            )
        if request.allocation and not is_allocation_name(request.allocation):
            await errors.abort(
                context,
                grpc.StatusCode.INVALID_ARGUMENT,
                "NODE_INVALID",
                f"{request.allocation[:80]!r} is not a valid name of an allocation: use at most 40 lower-case letters, "
                "digits and '-'.",
            )
        node_id = NodeId(request.node_id)
        # Agents of runs on this machine are known by their socket.
        secret = "" if self._embedded else str(dict(context.invocation_metadata() or ()).get(SECRET_KEY, ""))
        lifetime_s = seconds_of(request, "lifetime")
        register = commands.RegisterNode(
            node_id,
            request.node_incarnation,
            request.replaced_incarnation,
            json_format.MessageToJson(request.resources, indent=None).encode(),
            labels,
            digest_of(secret) if secret else "",
            tuple((StepId(held.step_id), held.identity) for held in request.held_steps),
            math.inf if lifetime_s is None else max(0.0, lifetime_s),
            request.allocation,
        )

        async def admit() -> None:
            await refuse(context, await self._writer.submit(register))

        token = caller().digest
        # A node that is known may come back, also when the token that admitted it has ended.
        if not token or self._writer.core.state.knows_secret(node_id, register.secret_digest):
            await admit()
        else:
            try:
                await self.admission(token, admit)
            except TokenRefused as error:
                await errors.abort(context, grpc.StatusCode.UNAUTHENTICATED, error.reason, str(error))
            except StorePostponed as error:
                await errors.abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, errors.STORAGE_FULL, str(error))
        credential = secrets.token_hex(32)
        # Nodes may come and go under ever new names: drop what was kept of those that are lost.
        state = self._writer.core.state
        here = state.nodes.keys() - {node_id}
        self._credentials = {known: owner for known, owner in self._credentials.items() if owner[0] in here}
        self._credentials[credential] = (node_id, request.node_incarnation)
        self._nodes.forget_others(here)
        timing = state.timing
        foreign = [held.step_id for held in request.held_steps if state.is_foreign(StepId(held.step_id), held.identity)]
        if foreign:
            say(
                logging.WARNING,
                "a node has steps that this state does not know: the state was restored from a backup, or "
                "belongs to another master. The node drops these steps",
                node=node_id,
                steps=foreign,
            )
        response = pb.RegisterResponse(
            node_credential=credential,
            master_incarnation=state.incarnation,
            master_addresses=self._addresses,
            message_bytes_max=RESPONSE_BYTES_MAX,
            inline_rows_bytes_max=INLINE_ROWS_BYTES_MAX,
            takes_rows_files=self._embedded,
            foreign_step_ids=foreign,
        )
        response.heartbeat_interval.FromMilliseconds(int(timing.heartbeat_s * 1000))
        response.idle_heartbeat_interval.FromMilliseconds(int(timing.idle_heartbeat_s * 1000))
        response.lease_ttl.FromMilliseconds(int(timing.lease_ttl_s * 1000))
        return response

    async def Heartbeat(
        self, request: pb.HeartbeatRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.HeartbeatResponse:
        """Note that a node lives, and what it uses."""
        node_id, incarnation = await self._identify(context)
        keep_heartbeat_in_bounds(request)
        reply = await self._writer.submit(
            commands.HeartbeatNode(
                node_id,
                incarnation,
                request.lease_count,
                request.lease_digest,
                list({StepId(worker.step_id) for worker in request.workers if worker.phase in READY_PHASES}),
                request.next_heartbeat.seconds + request.next_heartbeat.nanos / 1e9,
                request.gpu_count if request.HasField("gpu_count") else None,
                idle_workers(request.workers),
                gpu_uses(request.workers),
                running_leases(request.workers),
            )
        )
        await refuse(context, reply)
        self._nodes.note(node_id, request)
        state = self._writer.core.state
        return pb.HeartbeatResponse(
            master_incarnation=state.incarnation, reopen_work=bool(reply), awaited=node_id in state.shares.awaited
        )

    async def Work(  # type: ignore[override]  # a coroutine that writes to its context
        self, request_iterator: AsyncIterator[pb.WorkRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        """Serve the stream of a node: leases down, completions up."""
        node_id, incarnation = await self._identify(context)
        requests = aiter(request_iterator)
        first = await anext(requests, None)
        if first is None:
            return
        session = WorkSession(next(self._streams))
        self._sessions.open_session(node_id, session)
        try:
            held = await self._claims(node_id, first.hello.held_leases)
            steps = tuple(map(StepId, first.hello.step_ids))
            most = self._limits.workers_per_node
            workers = tuple(
                (step_id, min(count, most))
                for step_id, count in zip(steps, first.hello.step_workers, strict=False)
                if count
            )
            reply = await self._writer.submit(
                commands.OpenWork(node_id, incarnation, session.stream, held, steps, workers)
            )
            await refuse(context, reply)
            reader = asyncio.create_task(self._read(first, requests, node_id, session))
            try:
                while (response := await session.next_response()) is not None:
                    await context.write(response)
            finally:
                reader.cancel()
                (problem,) = await asyncio.gather(reader, return_exceptions=True)
            if isinstance(problem, DecodeError):
                raise problem
        finally:
            self._sessions.close_session(node_id, session)
            self._writer.submit(commands.CloseWork(node_id, session.stream))

    async def _claims(self, node_id: NodeId, claimed: Sequence[pb.HeldLease]) -> tuple[HeldLease, ...]:
        """The leases that a node claims to hold. Those of earlier masters are compared with what is stored of them: a
        lease is the key of an attempt, so one that has ended must not be taken up for another mini-batch."""
        state = self._writer.core.state
        earlier = [lease.lease_id for lease in claimed if state.may_be_adopted(lease.lease_id)]
        rows = await in_thread(self._attempts_with, earlier) if earlier else []
        stored = {row.lease_id: row for row in rows}

        def is_contradicted(lease: pb.HeldLease) -> bool:
            row = stored.get(LeaseId(lease.lease_id))
            return row is not None and (
                row.state != AttemptState.RUNNING
                or (row.node_id, row.step_id, row.mini_batch, row.generation)
                != (node_id, lease.step_id, lease.mini_batch_index, lease.generation)
            )

        claims: list[HeldLease] = []
        for at, lease in enumerate(claimed, 1):
            if not at % COMMANDS_AT_ONCE:
                await asyncio.sleep(0)
            claims.append(
                HeldLease(
                    LeaseId(lease.lease_id),
                    StepId(lease.step_id),
                    lease.mini_batch_index,
                    lease.generation,
                    lease.identity,
                    is_contradicted(lease),
                )
            )
        return tuple(claims)

    async def _read(
        self,
        first: pb.WorkRequest,
        requests: AsyncIterator[pb.WorkRequest],
        node_id: NodeId,
        session: WorkSession,
    ) -> None:
        """Handle the messages of an agent until it ends the stream."""
        waiting: set[asyncio.Future[Any]] = set()
        request: pb.WorkRequest | None = first
        try:
            while request is not None:
                await self._take(request, node_id, session, waiting)
                while len(waiting) >= UNACKNOWLEDGED_MESSAGES_MAX or (
                    waiting and self._unacknowledged_bytes > UNACKNOWLEDGED_BYTES_MAX
                ):
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                await session.room()
                request = await anext(requests, None)
            if waiting:
                await asyncio.wait(waiting)
        finally:
            session.close()

    async def _take(
        self, request: pb.WorkRequest, node_id: NodeId, session: WorkSession, waiting: set[asyncio.Future[Any]]
    ) -> None:
        submit = self._writer.submit
        # Each iteration over a field of a protobuf message makes its objects anew: once is enough.
        if completions := list(request.completions):
            size = 0
            staged: list[work_pb2.Completion] = []
            for completion in completions:
                if completion.staged_segment:
                    staged.append(completion)
                else:
                    size += completion.rows_length
            if staged:
                self._release_lost_rows(staged, node_id)
            self._unacknowledged_bytes += size
            future = submit(commands.CompleteAttempts(node_id, completions))
            waiting.add(future)

            def acknowledge(done: asyncio.Future[Any]) -> None:
                waiting.discard(done)
                self._unacknowledged_bytes -= size
                if done.cancelled():
                    return
                if done.exception() is None:
                    session.send_acknowledgements(done.result())
                    _tell_dropped(node_id, done.result())
                else:
                    # A bug in the core, reported there. On its next stream the agent sends again what has no answer:
                    # the results of other jobs in the same message must not wait forever.
                    session.close()

            future.add_done_callback(acknowledge)
        if request.released_lease_ids:
            cut_short = {
                one.lease_id: commands.CutShort(one.elapsed_us, one.process_number) for one in request.cut_short
            }
            submit(commands.ReleaseLeases(node_id, list(request.released_lease_ids), cut_short))
        for at, failure in enumerate(request.worker_failures, 1):
            if not at % COMMANDS_AT_ONCE:
                await asyncio.sleep(0)
            counted = submit(
                commands.ReportWorkerFailure(
                    node_id,
                    StepId(failure.step_id),
                    failure.cause,
                    failure.message,
                    failure.detail,
                    failure.process_number,
                    failure.number,
                )
            )
            counted.add_done_callback(partial(_acknowledge_worker_failure, session, failure.number))
        for at, ended in enumerate(request.ended_steps, 1):
            if not at % COMMANDS_AT_ONCE:
                await asyncio.sleep(0)
            submit(
                commands.ConfirmStepEnd(
                    node_id,
                    session.stream,
                    StepId(ended.step_id),
                    generation=ended.generation,
                    asked_generation=ended.asked_generation,
                    unsaved=ended.unsaved,
                    shutdown_failures=ended.shutdown_failures,
                    shutdown_failure=ended.shutdown_failure,
                )
            )
        if request.capacities or request.draining:
            self._tell_cuts(request.capacities, node_id)
            capacities = tuple(
                (StepId(capacity.step_id), capacity.leases_max, capacity.workers) for capacity in request.capacities
            )
            given_up = tuple(StepId(capacity.step_id) for capacity in request.capacities if capacity.given_up)
            submit(commands.SetCapacity(node_id, session.stream, capacities, request.draining, given_up))

    def _tell_cuts(self, capacities: Sequence[pb.StepCapacity], node_id: NodeId) -> None:
        """Log what a node asks for beyond the limits of one node: the core gives it no more than those."""
        limits = self._limits
        for name, most, asked in (
            ("leases_per_node", limits.leases_per_node, max((one.leases_max for one in capacities), default=0)),
            ("workers_per_node", limits.workers_per_node, max((one.workers for one in capacities), default=0)),
        ):
            if asked > most:
                _CUT.say(
                    (node_id, name), logging.WARNING,
                    f"a node asks for more than this master's limit {name}: it gets that much",
                    node=node_id, asked=asked, limit=most, to_give_more=how_to_raise(name),
                )  # fmt: skip

    def _release_lost_rows(self, completions: Sequence[work_pb2.Completion], node_id: NodeId) -> None:
        """Give back leases whose staged rows are missing on the master: their mini-batches run again, at no charge.
        `completions`: those with staged rows.

        Must come before the completions are handed over, so that those find the leases gone.
        """
        lost: list[int] = []
        for completion in completions:
            lease_id = LeaseId(completion.lease_id)
            folder = self._sessions.staging_folder(lease_id)
            if folder is not None and not staged_fits(
                folder, completion.staged_segment, lease_id, completion.rows_length, completion.rows_crc32
            ):
                lost.append(lease_id)
        if lost:
            say(logging.WARNING, "staged rows are missing; their mini-batches run again", node=node_id, leases=lost)
            self._writer.submit(commands.ReleaseLeases(node_id, lost))

    async def UploadRows(
        self, request_iterator: AsyncIterator[pb.UploadRowsRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.UploadRowsResponse:
        """Stage large rows of a live lease in a segment of their own."""
        node_id, _ = await self._identify(context)
        if self._row_uploads >= self._row_uploads_max:
            await errors.abort(
                context,
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                errors.LIMIT_REACHED,
                f"{self._row_uploads} uploads of large rows arrive at this master, which is its limit row_uploads. The "
                f"agent tries again. To take more at a time, {how_to_raise('row_uploads')}.",
            )
        self._row_uploads += 1
        try:
            return await self._stage(node_id, request_iterator, context)
        finally:
            self._row_uploads -= 1

    async def _stage(
        self,
        node_id: NodeId,
        request_iterator: AsyncIterator[pb.UploadRowsRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> pb.UploadRowsResponse:
        staged: StagedSegment | None = None
        step_id, note_s = StepId(0), 0.0
        try:
            async for request in request_iterator:
                if staged is None:
                    lease_id = LeaseId(request.lease_id)
                    lease = self._writer.core.state.leases.get(lease_id)
                    folder = self._sessions.staging_folder(lease_id)
                    if lease is None or lease.node_id != node_id or folder is None:
                        await errors.abort(
                            context,
                            grpc.StatusCode.FAILED_PRECONDITION,
                            "LEASE_NOT_LIVE",
                            f"Lease {lease_id:#x} does not belong, or no longer belongs, to node {node_id}. "
                            "Drop its rows.",
                        )
                    staged = await in_thread(StagedSegment, folder, lease_id, drop=StagedSegment.close)
                    step_id = lease.step_id
                    if request.rows_file and self._embedded:
                        await in_thread(staged.take, Path(os.fsdecode(request.rows_file)))
                if time.monotonic() >= note_s:
                    note_s = time.monotonic() + NOTE_PROGRESS_S
                    self._writer.submit(commands.NoteProgress(step_id))
                if request.chunk:
                    await in_thread(staged.write, request.chunk)
            if staged is None:
                await errors.abort(
                    context, grpc.StatusCode.INVALID_ARGUMENT, "ROWS_EMPTY", "The upload does not name a lease."
                )
            await in_thread(staged.finish)
        except RowsFileUnreadable as error:
            await errors.abort(
                context,
                grpc.StatusCode.FAILED_PRECONDITION,
                errors.ROWS_UNREADABLE,
                f"The file of large rows cannot be used: {error}. Their mini-batch must run again.",
            )
        except OSError as error:
            await errors.abort(
                context,
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "STORAGE_FULL",
                f"The master cannot store large rows: {error.strerror}. The agent tries again.",
            )
        finally:
            if staged is not None:
                staged.close()
        return pb.UploadRowsResponse(staged_segment=staged.name, length=staged.length, crc32=staged.crc32)

    async def PushLogs(
        self, request: pb.PushLogsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.PushLogsResponse:
        """Append to log files what is new in them."""
        node_id, incarnation = await self._identify(context)
        foreign = {chunk.step_id for chunk in request.chunks if not self._may_send_logs(node_id, StepId(chunk.step_id))}
        if foreign:
            await errors.abort(
                context,
                grpc.StatusCode.PERMISSION_DENIED,
                errors.STEP_NOT_OFFERED,
                f"Node {node_id} was never offered the steps with the numbers {', '.join(map(str, sorted(foreign)))}, "
                "so it has no logs of them. Nothing was written.",
            )
        try:
            await in_thread(self._logs.append, node_id, incarnation, list(request.chunks))
        except OSError as error:
            await errors.abort(
                context,
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "STORAGE_FULL",
                f"The master cannot store logs: {error.strerror}. The agent keeps them, and tries again.",
            )
        return pb.PushLogsResponse()

    def _may_send_logs(self, node_id: NodeId, step_id: StepId) -> bool:
        """Whether a node was offered a step. Logs of steps that are gone are left out anyway."""
        state = self._writer.core.state
        return self._embedded or step_id not in state.steps or step_id in state.nodes[node_id].told_steps

    def node_of(self, credential: str) -> str:
        """The node that has registered with this master and holds this credential; empty if there is none."""
        owner = self._owner_of(credential)
        return "" if owner is None else owner[0]

    def _owner_of(self, credential: str) -> tuple[NodeId, str] | None:
        """The node and its incarnation. A credential ends with the node: when that is lost or removed."""
        owner = self._credentials.get(credential)
        if owner is None:
            return None
        node = self._writer.core.state.nodes.get(owner[0])
        return owner if node is not None and node.node_incarnation == owner[1] else None

    async def _identify(self, context: grpc.aio.ServicerContext[Any, Any]) -> tuple[NodeId, str]:
        metadata = dict(context.invocation_metadata() or ())
        owner = self._owner_of(str(metadata.get(CREDENTIAL_KEY, "")))
        if owner is None:
            # After a restart of the master no credential is known: the agent registers again, which is what it must do.
            await errors.abort(
                context,
                grpc.StatusCode.UNAUTHENTICATED,
                "CREDENTIAL_INVALID",
                CREDENTIAL_REFUSED,
            )
        return owner


async def _admit(digest: str, admission: Callable[[], Awaitable[None]]) -> None:
    await admission()


def _tell_dropped(node_id: NodeId, verdicts: dict[Verdict, list[int]]) -> None:
    """Log results that do not count. They belong to the course of things (a node was away, a mini-batch ran twice), or
    the node lies."""
    dropped = {verdict.name.lower(): len(leases) for verdict, leases in verdicts.items() if verdict in DROPPED}
    if dropped:
        _RESULTS.say(
            node_id, logging.INFO, "results were dropped: their leases are not the node's, or no longer",
            node=node_id, **dropped,
        )  # fmt: skip


def _acknowledge_worker_failure(session: WorkSession, number: int, counted: asyncio.Future[Any]) -> None:
    # After a bug in the core (reported there), there is no acknowledgement, and the next stream brings it again.
    if not counted.cancelled() and counted.exception() is None:
        session.acknowledge_worker_failures(number)
