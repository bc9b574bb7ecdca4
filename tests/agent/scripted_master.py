"""A master that a test scripts: a real gRPC server on a unix socket."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from windrow.rpc import errors
from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import agent_service_pb2_grpc, artifact_service_pb2, artifact_service_pb2_grpc
from windrow.rpc.v1 import work_pb2 as work
from windrow.transfer import code_archive

DEADLINE_S = 180.0
STEP = 7


class ScriptedMaster(agent_service_pb2_grpc.AgentServiceServicer, artifact_service_pb2_grpc.ArtifactServiceServicer):
    """Records everything an agent says; sends what the test wants. `seen` outlives a restart of the server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"unix:{folder / 'master.sock'}"
        self.incarnation = 1
        self.foreign_step_ids: list[int] = []
        self.acknowledge = True
        self.register_error: tuple[grpc.StatusCode, str] | None = None
        self.lease_ttl_s = 10.0
        self.registrations: list[rpc.RegisterRequest] = []
        self.authorizations: list[str] = []
        self.hellos: list[rpc.WorkHello] = []
        self.completions: dict[int, list[work.Completion]] = defaultdict(list)
        self.released: list[int] = []
        self.cut_short: list[rpc.CutShort] = []
        """Of those, what workers had begun."""
        self.failures: list[rpc.WorkerFailure] = []
        self.ended: list[rpc.EndedStep] = []
        self.capacities: dict[int, rpc.StepCapacity] = {}
        self.heartbeats: list[rpc.HeartbeatRequest] = []
        self.logs: dict[tuple[int, int], bytearray] = defaultdict(bytearray)
        self.logs_may_come = asyncio.Event()
        self.logs_may_come.set()
        self.uploads: dict[str, bytes] = {}
        self.upload_errors: list[grpc.StatusCode] = []
        self.uploads_refused: set[int] = set()
        self.uploads_hang = False
        self.uploads_begun = 0
        self.downloads = 0
        self.draining = False
        self.answers_drain = True
        self.unknown = False
        self.reopen = False
        self.specs: dict[int, work.StepSpec] = {}
        self.archives: dict[str, Path] = {}
        self._changed = asyncio.Condition()
        self._down: asyncio.Queue[rpc.WorkResponse | None] | None = None
        self._server: grpc.aio.Server | None = None
        self._credentials: set[str] = set()
        self._leases = 0

    async def start(self) -> None:
        """Listens."""
        self._credentials.clear()
        self._server = grpc.aio.server(options=[("grpc.max_receive_message_length", 64 << 20)])
        agent_service_pb2_grpc.add_AgentServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        artifact_service_pb2_grpc.add_ArtifactServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self._server.add_insecure_port(self.address)
        await self._server.start()

    async def stop(self) -> None:
        """Vanishes: all streams break."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None
            self._down = None
            (self.folder / "master.sock").unlink(missing_ok=True)

    async def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Waits until the condition holds, looked at whenever the agent says something; fails after DEADLINE_S."""

        async def wait() -> None:
            async with self._changed:
                await self._changed.wait_for(lambda: bool(condition()))

        try:
            await asyncio.wait_for(wait(), DEADLINE_S)
        except TimeoutError:
            raise AssertionError(f"not within {DEADLINE_S} s: {what or condition}; {self.summary()}") from None

    def summary(self) -> str:
        """For messages of failed tests."""
        log = next(iter(self.folder.glob("**/agent.log")), None)
        return (
            f"completions {dict(self.completions)!s:.2000}, released {self.released}, failures {self.failures}, "
            f"capacities {self.capacities}, agent.log:\n{log.read_text()[-4000:] if log else ''}"
        )

    # What a test sends.

    def step(self, code: Path, step_id: int = STEP, **fields: Any) -> work.StepSpec:
        """A step over a folder of code; sent with the stream, or at once when one is open."""
        archive = self.folder / f"{code.name}.tar"
        with archive.open("wb") as file:
            packed = code_archive.pack(code, file)
        self.archives[packed.digest] = archive
        run_s = fields.pop("run_s", 60)
        load_s = fields.pop("load_s", 600)
        values: dict[str, Any] = {
            "step_id": step_id,
            "job_id": "job-1",
            "step_name": "score",
            "generation": 1,
            "code_digest": packed.digest,
            "entry_script": "script.py",
            "reader": json.dumps({"kind": "files", "root": ""}).encode(),
            "rows": json.dumps({"action": "append_row", "dataframe_to_csv": {}, "dataframe_header": False}).encode(),
            "logging_level": "INFO",
            "weight": 1,
        }
        spec = work.StepSpec(**(values | fields))
        spec.run_invocation_timeout.FromMilliseconds(int(run_s * 1000))
        spec.task_overhead_timeout.FromMilliseconds(int(load_s * 1000))
        self.specs[step_id] = spec
        if self._down is not None:
            self.send(rpc.WorkResponse(steps=[spec]))
        return spec

    def send(self, response: rpc.WorkResponse) -> None:
        """One message down the stream."""
        assert self._down is not None, "no Work stream is open"
        self._down.put_nowait(response)

    def assign(self, count: int = 1, *, step_id: int = STEP, recipe: bytes = b"item", **fields: Any) -> list[int]:
        """Assigns new mini-batches; returns their lease ids. `recipe`: one for all, `%d` in it is the lease id."""
        ids = list(range(self._leases + 1, self._leases + 1 + count))
        self._leases += count
        self.send(
            rpc.WorkResponse(
                assignments=[
                    work.StepAssignments(
                        step_id=step_id,
                        generation=self.specs[step_id].generation,
                        assignments=[
                            work.Assignment(
                                lease_id=i,
                                mini_batch_index=i,
                                item_first=i,
                                item_count=1,
                                recipe=recipe.replace(b"%d", str(i).encode()),
                                attempt=1,
                                **fields,
                            )
                            for i in ids
                        ],
                    )
                ]
            )
        )
        return ids

    def done(self, ids: Iterable[int]) -> bool:
        """Whether all have completed."""
        return all(i in self.completions for i in ids)

    # What an agent says.

    async def _note(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _identify(self, context: Any) -> None:
        credential = dict(context.invocation_metadata()).get("windrow-credential")
        if self.unknown:
            await errors.abort(context, grpc.StatusCode.NOT_FOUND, errors.NODE_UNKNOWN, "unknown node")
        if credential not in self._credentials:
            await errors.abort(context, grpc.StatusCode.UNAUTHENTICATED, errors.CREDENTIAL_INVALID, "no credential")

    async def Register(self, request: rpc.RegisterRequest, context: Any) -> rpc.RegisterResponse:
        self.registrations.append(request)
        self.unknown = False
        self.authorizations.append(dict(context.invocation_metadata()).get("authorization", ""))
        await self._note()
        if self.register_error is not None:
            await errors.abort(context, *self.register_error, "as the test wants it")
        credential = f"credential-{len(self.registrations)}"
        self._credentials.add(credential)
        response = rpc.RegisterResponse(
            node_credential=credential,
            master_incarnation=self.incarnation,
            master_addresses=[self.address],
            foreign_step_ids=self.foreign_step_ids,
            message_bytes_max=1 << 20,
            inline_rows_bytes_max=256 << 10,
        )
        response.heartbeat_interval.FromMilliseconds(200)
        response.lease_ttl.FromMilliseconds(int(self.lease_ttl_s * 1000))
        return response

    async def Heartbeat(self, request: rpc.HeartbeatRequest, context: Any) -> rpc.HeartbeatResponse:
        await self._identify(context)
        self.heartbeats.append(request)
        await self._note()
        reopen, self.reopen = self.reopen, False
        return rpc.HeartbeatResponse(master_incarnation=self.incarnation, reopen_work=reopen)

    async def Work(self, requests: AsyncIterator[rpc.WorkRequest], context: Any) -> AsyncIterator[rpc.WorkResponse]:
        await self._identify(context)
        down: asyncio.Queue[rpc.WorkResponse | None] = asyncio.Queue()

        async def read() -> None:
            async for request in requests:
                await self._take(request, down)
            down.put_nowait(None)

        reader = asyncio.create_task(read())
        try:
            while (response := await down.get()) is not None:
                yield response
        finally:
            reader.cancel()

    async def _take(self, request: rpc.WorkRequest, down: asyncio.Queue[rpc.WorkResponse | None]) -> None:
        if request.HasField("hello"):
            self.hellos.append(request.hello)
            self._down = down
            if self.specs:
                down.put_nowait(rpc.WorkResponse(steps=self.specs.values()))
        for completion in request.completions:
            self.completions[completion.lease_id].append(completion)
        self.released += request.released_lease_ids
        self.cut_short += request.cut_short
        self.failures += request.worker_failures
        if request.worker_failures and self.acknowledge:
            acknowledged = request.worker_failures[-1].number
            down.put_nowait(rpc.WorkResponse(worker_failures_acknowledged=acknowledged))
        self.ended += request.ended_steps
        if request.draining:
            self.draining = True
            if self.answers_drain:
                down.put_nowait(rpc.WorkResponse(drain=True))
        for capacity in request.capacities:
            self.capacities[capacity.step_id] = capacity
        if request.completions and self.acknowledge:
            self.accept(c.lease_id for c in request.completions)
        await self._note()

    def accept(self, lease_ids: Iterable[int], verdict: work.Verdict.ValueType = work.VERDICT_ACCEPTED) -> None:
        """Answers completions."""
        self.send(rpc.WorkResponse(acknowledgements=[work.Acknowledgement(verdict=verdict, lease_ids=lease_ids)]))

    async def UploadRows(self, requests: AsyncIterator[rpc.UploadRowsRequest], context: Any) -> rpc.UploadRowsResponse:
        await self._identify(context)
        if self.upload_errors:
            await context.abort(self.upload_errors.pop(), "as the test wants it")
        self.uploads_begun += 1
        await self._note()
        if self.uploads_hang:
            await asyncio.Event().wait()
        rows = bytearray()
        lease_id = 0
        async for request in requests:
            assert len(request.chunk) <= 1 << 20
            lease_id = lease_id or request.lease_id
            rows += request.chunk
        if lease_id in self.uploads_refused:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "as the test wants it")
        name = f"staged-{lease_id}-0-{zlib.crc32(rows):08x}.rows"
        self.uploads[name] = bytes(rows)
        return rpc.UploadRowsResponse(staged_segment=name, length=len(rows), crc32=zlib.crc32(rows))

    async def PushLogs(self, request: rpc.PushLogsRequest, context: Any) -> rpc.PushLogsResponse:
        await self._identify(context)
        await self.logs_may_come.wait()
        assert sum(len(chunk.content) for chunk in request.chunks) <= 1 << 20
        for chunk in request.chunks:
            log = self.logs[chunk.kind, chunk.process_number]
            assert chunk.offset <= len(log), "a gap in a log"
            log[chunk.offset : chunk.offset + len(chunk.content)] = chunk.content
        await self._note()
        return rpc.PushLogsResponse()

    async def DownloadArtifact(
        self, request: artifact_service_pb2.DownloadArtifactRequest, context: Any
    ) -> AsyncIterator[artifact_service_pb2.DownloadArtifactResponse]:
        await self._identify(context)
        self.downloads += 1
        archive = self.archives.get(request.digest)
        if archive is None:
            await errors.abort(context, grpc.StatusCode.NOT_FOUND, errors.ARTIFACT_MISSING, "no such archive")
            return
        content = archive.read_bytes()[request.offset :]
        for at in range(0, len(content), 1000):
            yield artifact_service_pb2.DownloadArtifactResponse(chunk=content[at : at + 1000])
