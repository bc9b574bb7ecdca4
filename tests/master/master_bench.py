"""The master's services over a real store and a real gRPC server, in the test's own event loop."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2_grpc
from opened_store import open_store
from windrow.rpc.health import Health
from windrow.rpc.v1 import (
    agent_service_pb2_grpc,
    artifact_service_pb2_grpc,
    job_service_pb2,
    job_service_pb2_grpc,
)
from windrow.spec import EffectiveJob, build_effective, load_job
from windrow_master.assets import Assets
from windrow_master.config import MasterConfig
from windrow_master.core.core import Core
from windrow_master.core.effects import Effect, NotifyJob
from windrow_master.core.ids import LeaseId, NodeId
from windrow_master.core.records import Dirty
from windrow_master.datastores import Datastores
from windrow_master.files.artifacts import ArtifactFolder
from windrow_master.files.reserve import Reserve
from windrow_master.files.state_files import StateFiles
from windrow_master.jobs import Jobs
from windrow_master.limits import Limits
from windrow_master.output.segments import SegmentWriter
from windrow_master.output_places import OutputPlaces
from windrow_master.reports.worker_logs import WorkerLogs
from windrow_master.roots import Roots
from windrow_master.rpc.agent_service import AgentService
from windrow_master.rpc.artifact_service import ArtifactService
from windrow_master.rpc.job_service import JobService
from windrow_master.rpc.node_views import NodeViews
from windrow_master.rpc.stream_limits import StreamLimits
from windrow_master.run_values import RunValues
from windrow_master.script_files import ScriptFiles
from windrow_master.shell.changes import Changes
from windrow_master.shell.committer import Committer
from windrow_master.shell.keeping import make_keeper
from windrow_master.shell.retrying import Retries
from windrow_master.shell.sorted_rows import SortedRows
from windrow_master.shell.standby import Standby
from windrow_master.shell.submission import Submissions
from windrow_master.shell.work_session import WorkSession
from windrow_master.shell.writer import Writer
from windrow_master.store.sqlite.store import SqliteStore
from windrow_master.uploaded_data import UploadedData
from windrow_master.watchers import Watchers

DEADLINE_S = 180.0
CODE_DIGEST = "a" * 64
JOB = """\
type: pipeline
jobs:
  score:
    type: parallel
    inputs: {files: {type: uri_folder, path: ./data}}
    outputs: {rows: {type: uri_file}}
    input_data: ${{inputs.files}}
    task: {type: run_function, code: ./code, entry_script: entry.py, append_row_to: "${{outputs.rows}}"}
"""


def effective_job(folder: Path, text: str = JOB) -> EffectiveJob:
    """A job file with its data and code, in a folder, as it is submitted."""
    for name in ("data", "code"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "code" / "entry.py").write_text("def run(mini_batch): return mini_batch\n")
    (folder / "job.yml").write_text(text)
    loaded = load_job(folder / "job.yml", (), embedded=True)
    return build_effective(loaded, dict.fromkeys(loaded.code_folders.values(), CODE_DIGEST))


class HeldCommitter(Committer):
    """A real committer whose commits can be held up."""

    def __init__(self, store: SqliteStore, segments: SegmentWriter, reserve: Reserve) -> None:
        super().__init__(store, segments, reserve)
        self.open = threading.Event()
        self.open.set()
        self.begun = threading.Event()
        """A commit is held up."""

    def commit(self, dirty: Dirty) -> None:
        if not self.open.is_set():
            self.begun.set()
        assert self.open.wait(DEADLINE_S)
        super().commit(dirty)


class NoStreams:
    """Streams that the carrier would know; these tests carry no effects out."""

    def open_session(self, node_id: NodeId, session: WorkSession) -> None:
        """See rpc.agent_service.Sessions."""

    def close_session(self, node_id: NodeId, session: WorkSession) -> None:
        """See rpc.agent_service.Sessions."""

    def staging_folder(self, lease_id: LeaseId) -> Path | None:
        """See rpc.agent_service.Sessions."""
        return None

    def logs_of(self, step_id: int) -> Path | None:
        """See rpc.agent_service.Sessions."""
        return None


class MasterBench:
    """All services of one master. Effects but notifications go nowhere: no planner and no worker ever starts."""

    def __init__(
        self,
        folder: Path,
        sockets: Path,
        *,
        held: bool = False,
        embedded: bool = False,
        limits: Limits | None = None,
    ) -> None:
        limits = limits or Limits()
        self.folder = folder
        self.state = folder / "state"
        self.files = StateFiles(self.state)
        self.store = open_store(self.state)
        self.core = Core(self.store.incarnation, self.store.lease_prefix, held=held, limits=limits)
        self.fatal: list[BaseException] = []
        segments = SegmentWriter(self.store.incarnation, lambda *_: folder)
        self.committer = HeldCommitter(self.store, segments, Reserve(self.files.reserve, 0))
        self.watchers = Watchers()
        self.writer = Writer(self.core, self.committer, self._carry_out, on_fatal=self.fatal.append)
        self.artifacts = ArtifactFolder(self.files.artifacts)
        (self.files.artifacts / CODE_DIGEST).write_bytes(b"")
        self.server = grpc.aio.server(interceptors=[StreamLimits(limits)])
        assets = Assets(
            self.store.reader(), self.store.record_asset, Datastores({}), None, self.artifacts, limits or Limits()
        )
        run_values = RunValues(self.store.reader())
        jobs = Jobs(self.store.reader())
        submissions = Submissions(jobs, self.artifacts, self.files.outputs, Datastores({}))
        sorted_rows = SortedRows(self.files, None, embedded=True)
        outputs = OutputPlaces(self.files.outputs, [], None)
        self.retries = Retries(jobs, self.store, self.writer, submissions, sorted_rows, outputs)
        standby = Standby(lambda: Changes(self.writer, submissions, self.retries))
        standby.changes()
        self.nodes = nodes = NodeViews(standby)
        agents = self.agent_service = AgentService(
            self.writer,
            NoStreams(),
            WorkerLogs(lambda step_id: folder / "logs"),
            ScriptFiles(self.files.outputs, assets, Datastores({}), limits),
            run_values,
            nodes,
            [],
            embedded=True,
            attempts_with=self.store.reader().attempts_with,
            limits=limits,
        )
        self.keeper = make_keeper(
            MasterConfig(self.state, "", embedded),
            self.store,
            self.files,
            self.artifacts,
            sorted_rows,
            self.writer,
            None,
            self.retries,
            lambda: time.time(),  # noqa: PLW0108  tests change it
        )
        job_service_pb2_grpc.add_JobServiceServicer_to_server(
            JobService(
                standby,
                jobs,
                self.watchers,
                nodes,
                self.files,
                outputs,
                incarnation=self.store.incarnation,
                embedded=embedded,
                datastores={},
                run_values=run_values,
                keeper=lambda: self.keeper,
            ),
            self.server,
        )
        self.datastore = folder / "datastore"
        self.datastore.mkdir(exist_ok=True)
        uploads = self.artifact_service = ArtifactService(
            self.artifacts,
            UploadedData(self.artifacts, self.datastore, self.files.uploads),
            Roots([self.datastore]),
            lambda node, digest: True,
            limits,
        )
        artifact_service_pb2_grpc.add_ArtifactServiceServicer_to_server(uploads, self.server)
        agent_service_pb2_grpc.add_AgentServiceServicer_to_server(agents, self.server)
        health_pb2_grpc.add_HealthServicer_to_server(Health([], lambda: True), self.server)
        address = f"unix:{sockets}/master"
        self.server.add_insecure_port(address)
        self.channel = grpc.aio.insecure_channel(address)
        self.jobs = job_service_pb2_grpc.JobServiceStub(self.channel)
        self.uploads = artifact_service_pb2_grpc.ArtifactServiceStub(self.channel)
        self.agents = agent_service_pb2_grpc.AgentServiceStub(self.channel)

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, NotifyJob):
                self.watchers.notify(effect.job_key, ended=effect.ended)

    def request(self, request_id: str) -> job_service_pb2.SubmitJobRequest:
        """A submission of a job without a name of its own."""
        job = effective_job(self.folder)
        return job_service_pb2.SubmitJobRequest(request_id=request_id, document=job.to_json().encode())

    async def submitted(self, request_id: str = "r") -> str:
        """Submit a job; return its name."""
        return (await self.jobs.SubmitJob(self.request(request_id))).job.job_id

    async def held_up(self) -> None:
        """Wait until a commit is held up."""
        assert await asyncio.get_running_loop().run_in_executor(None, self.committer.begun.wait, DEADLINE_S)

    async def close(self) -> None:
        """End everything."""
        self.committer.open.set()
        await self.channel.close()
        await self.server.stop(None)
        if not self.fatal:
            await self.writer.drain()
        await self.writer.close()
        self.store.close()


def drive(
    folder: Path,
    scenario: Callable[[MasterBench], Awaitable[None]],
    *,
    held: bool = False,
    embedded: bool = False,
    limits: Limits | None = None,
) -> None:
    """Run a scenario over a fresh master."""

    async def main() -> None:
        sockets = Path(tempfile.mkdtemp(prefix="windrow-test-"))
        bench = MasterBench(folder, sockets, held=held, embedded=embedded, limits=limits)
        try:
            await bench.server.start()
            await asyncio.wait_for(scenario(bench), DEADLINE_S)
            assert not bench.fatal
        finally:
            await bench.close()
            shutil.rmtree(sockets)

    asyncio.run(main())
