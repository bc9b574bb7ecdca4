"""What the master tells clients and agents: only what is durable, and only what is theirs."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, BinaryIO

import grpc
import pytest
from master_bench import MasterBench, NoStreams, drive
from windrow.rpc.errors import read_failure
from windrow.rpc.v1 import agent_service_pb2, artifact_service_pb2, job_pb2, job_service_pb2, work_pb2
from windrow_master.core import commands, nodes
from windrow_master.core.core import HANDLERS
from windrow_master.core.ids import LeaseId, NodeId, StepId
from windrow_master.core.leases import Lease
from windrow_master.core.states import Cause
from windrow_master.rpc import agent_service, job_service
from windrow_master.rpc.agent_service import CREDENTIAL_KEY
from windrow_master.rpc.files import file_below
from windrow_master.shell.writer import moment
from windrow_master.step_paths import StepPaths
from windrow_master.threads import in_thread


def logs_of(bench: MasterBench, job_id: str) -> Path:
    return bench.state / "jobs" / job_id / "logs"


async def refusal(call: grpc.aio.UnaryUnaryCall) -> str:
    """The reason of a call that must be refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return read_failure(caught.value).reason


def test_a_job_is_told_of_when_it_is_durable(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        bench.committer.open.clear()
        first = asyncio.ensure_future(bench.jobs.SubmitJob(bench.request("r")))
        await bench.held_up()
        job_id = next(iter(bench.core.state.job_keys))
        assert await refusal(bench.jobs.GetJob(job_service_pb2.GetJobRequest(job_id=job_id))) == "JOB_UNKNOWN"
        again = asyncio.ensure_future(bench.jobs.SubmitJob(bench.request("r")))
        await bench.jobs.GetMaster(job_service_pb2.GetMasterRequest())  # what was sent before it has arrived
        assert not first.done() and not again.done()
        bench.committer.open.set()
        assert (await first).job.job_id == (await again).job.job_id == job_id
        assert len((await bench.jobs.ListJobs(job_service_pb2.ListJobsRequest())).jobs) == 1

    drive(tmp_path, scenario)


@pytest.mark.parametrize(
    ("most_bytes", "size", "pages"), [(1, 50, [1] * 12), (1 << 30, 50, [12]), (1 << 30, 5, [5, 5, 2])]
)
def test_a_page_of_jobs_ends_where_their_documents_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_bytes: int, size: int, pages: list[int]
) -> None:
    monkeypatch.setattr(job_service, "PAGE_DOCUMENTS_BYTES", most_bytes)

    async def scenario(bench: MasterBench) -> None:
        made = [await bench.submitted(f"r{number}") for number in range(12)]
        found, token = list[list[str]](), ""
        while not found or token:
            request = job_service_pb2.ListJobsRequest(page_size=size, page_token=token)
            answer = await bench.jobs.ListJobs(request)
            found.append([job.job_id for job in answer.jobs])
            token = answer.next_page_token
        assert [job_id for page in found for job_id in page] == made[::-1]
        assert [len(page) for page in found] == pages

    drive(tmp_path, scenario)


def test_the_end_of_a_job_is_told_when_it_is_durable(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        job_id = await bench.submitted()
        watch = bench.jobs.WatchJob(job_service_pb2.WatchJobRequest(job_id=job_id))
        seen = await watch.read()
        bench.committer.open.clear()
        bench.writer.submit(commands.CancelJob(job_id))
        await bench.held_up()
        told = (await bench.jobs.GetJob(job_service_pb2.GetJobRequest(job_id=job_id))).job
        assert (told.state, told.seq) == (job_pb2.JOB_STATE_RUNNING, seen.job.seq)
        bench.committer.open.set()
        assert (await watch.read()).job.state == job_pb2.JOB_STATE_CANCELLED
        assert await watch.read() is grpc.aio.EOF

    drive(tmp_path, scenario)


def test_two_submissions_of_one_request_at_once_make_one_job(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        answers = await asyncio.gather(*(bench.jobs.SubmitJob(bench.request("r")) for _ in range(4)))
        assert len({answer.job.job_id for answer in answers}) == 1

    drive(tmp_path, scenario)


def test_a_refused_submission_begins_no_work(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        bad = job_service_pb2.SubmitJobRequest(request_id="r", document=b"{}")
        assert await refusal(bench.jobs.SubmitJob(bad)) == "JOB_INVALID"
        await bench.writer.drain()
        assert bench.core.state.held
        await bench.submitted()
        await bench.writer.drain()
        assert not bench.core.state.held

    drive(tmp_path, scenario, held=True)


def test_a_master_short_of_space_says_why_it_refuses(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        bench.committer.short_of_space = "The disk is full."
        assert await refusal(bench.jobs.SubmitJob(bench.request("r"))) == "STORAGE_FULL"
        master = await bench.jobs.GetMaster(job_service_pb2.GetMasterRequest())
        assert master.read_only_reason == "The disk is full."

    drive(tmp_path, scenario)


def test_a_failure_of_a_worker_is_acknowledged_once_it_is_durable(tmp_path: Path) -> None:
    failures = [
        agent_service_pb2.WorkerFailure(step_id=1, cause=work_pb2.CAUSE_INIT_FAILED, message="no", number=number)
        for number in (1, 2)
    ]

    async def scenario(bench: MasterBench) -> None:
        await bench.submitted()
        await bench.writer.submit(commands.StartStep(StepId(1), StepPaths({}, {}, None).to_json()))
        state = bench.core.state
        has = agent_service_pb2.HeldStep(step_id=1, identity=state.identity_of(state.steps[StepId(1)]))
        node = agent_service_pb2.RegisterRequest(node_id="n1", node_incarnation="i", held_steps=[has])
        admitted = await bench.agents.Register(node)

        async def send() -> grpc.aio.StreamStreamCall:
            work = bench.agents.Work(metadata=[(CREDENTIAL_KEY, admitted.node_credential)])
            hello = agent_service_pb2.WorkHello()
            await work.write(agent_service_pb2.WorkRequest(hello=hello))
            await work.write(agent_service_pb2.WorkRequest(worker_failures=failures))
            return work

        def counted() -> int:
            return bench.core.state.steps[StepId(1)].counters.failed_attempts[str(int(Cause.INIT_FAILED))]

        await bench.writer.drain()
        bench.committer.open.clear()
        work = await send()
        answer = asyncio.ensure_future(work.read())
        await bench.held_up()
        await bench.jobs.GetMaster(job_service_pb2.GetMasterRequest())
        assert not answer.done()
        bench.committer.open.set()
        while (response := await answer).worker_failures_acknowledged < 2:
            answer = asyncio.ensure_future(work.read())
        assert (response.worker_failures_acknowledged, counted()) == (2, 2)
        work.cancel()
        work = await send()  # the stream broke before the agent had read the answer
        while not (response := await work.read()).worker_failures_acknowledged:
            pass
        while response.worker_failures_acknowledged < 2:
            response = await work.read()
        assert counted() == 2

    drive(tmp_path, scenario)


def test_the_output_that_holds_the_rows_is_told_by_its_name(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        job_id = await bench.submitted()
        paths = StepPaths({}, {"other": "/data/out", "rows": "/data/out/rows.txt"}, "/data/out/rows.txt")
        await bench.writer.submit(commands.StartStep(StepId(1), paths.to_json()))
        (step,) = (await bench.jobs.GetJob(job_service_pb2.GetJobRequest(job_id=job_id))).job.steps
        assert {output.name: output.append_row for output in step.outputs} == {"other": False, "rows": True}

    drive(tmp_path, scenario)


def test_the_event_loop_never_waits_for_the_disk_that_an_output_lies_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, looked = tmp_path / "share" / "rows.txt", set[threading.Thread]()
    place.parent.mkdir()
    place.write_bytes(b"row\n")
    stat = os.stat

    def recorded(path: Any, **how: Any) -> os.stat_result:
        if str(path).startswith(str(place.parent)) or (path == place.name and "dir_fd" in how):
            looked.add(threading.current_thread())
        return stat(path, **how)

    async def scenario(bench: MasterBench) -> None:
        job_id = await bench.submitted()
        await bench.writer.submit(commands.StartStep(StepId(1), StepPaths({}, {"rows": str(place)}, None).to_json()))
        request = job_service_pb2.DownloadOutputRequest(job_id=job_id, output="score.rows")
        monkeypatch.setattr(os, "stat", recorded)
        assert [piece.content async for piece in bench.jobs.DownloadOutput(request)] == [b"row\n"]
        assert looked and threading.current_thread() not in looked

    drive(tmp_path, scenario)


def test_a_log_is_followed_from_before_it_is_there(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        job_id = await bench.submitted()
        path = "score/user/stdout/n1/process000.stdout.txt"
        follow = bench.jobs.ReadLog(job_service_pb2.ReadLogRequest(job_id=job_id, path=path, follow=True))
        file = logs_of(bench, job_id) / path
        file.parent.mkdir(parents=True)
        file.write_bytes(b"one\n")
        first = await follow.read()
        assert (first.offset, first.content) == (0, b"one\n")
        with file.open("ab") as more:
            more.write(b"two\n")
        second = await follow.read()
        assert (second.offset, second.content) == (4, b"two\n")
        await bench.jobs.CancelJob(job_service_pb2.CancelJobRequest(job_id=job_id))
        assert await follow.read() is grpc.aio.EOF

    drive(tmp_path, scenario)


@pytest.mark.parametrize("path", ["etc/passwd", "../../../windrow.db", "/etc/passwd", "", "link", "folder/../real"])
def test_no_log_is_looked_for_outside_the_logs(tmp_path: Path, path: str) -> None:
    async def scenario(bench: MasterBench) -> None:
        job_id = await bench.submitted()
        logs = logs_of(bench, job_id)
        (logs / "folder").mkdir(parents=True)
        (logs / "real").write_text("real")
        (logs / "link").symlink_to("/etc/passwd")
        follow = bench.jobs.ReadLog(job_service_pb2.ReadLogRequest(job_id=job_id, path=path, follow=True))
        await bench.jobs.CancelJob(job_service_pb2.CancelJobRequest(job_id=job_id))
        assert await follow.read() is grpc.aio.EOF
        once = bench.jobs.ReadLog(job_service_pb2.ReadLogRequest(job_id=job_id, path=path))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await once.read()
        assert read_failure(caught.value).reason == "LOG_UNKNOWN"

    drive(tmp_path, scenario)


def test_a_file_below_a_folder_that_is_a_link_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("")
    (tmp_path / "link").symlink_to("real")
    assert file_below(tmp_path, "real/file") == tmp_path / "real" / "file"
    assert file_below(tmp_path, "link/file") is None
    assert file_below(tmp_path, "real") is None


def test_nothing_is_kept_of_nodes_that_are_lost(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        async def register(name: str) -> list[tuple[str, str]]:
            admitted = await bench.agents.Register(
                agent_service_pb2.RegisterRequest(node_id=name, node_incarnation="i")
            )
            return [(CREDENTIAL_KEY, admitted.node_credential)]

        gone = await register("gone")
        await bench.agents.Heartbeat(agent_service_pb2.HeartbeatRequest(), metadata=gone)
        nodes.lose_node(bench.core.state, bench.core.state.nodes[NodeId("gone")], "Lost.", moment())
        kept = await register("kept")
        late = bench.agents.Heartbeat(agent_service_pb2.HeartbeatRequest(), metadata=gone)
        assert await refusal(late) == "CREDENTIAL_INVALID"
        await bench.agents.Heartbeat(agent_service_pb2.HeartbeatRequest(), metadata=kept)

    drive(tmp_path, scenario)


def test_logs_for_which_the_disk_has_no_room_are_refused_by_that_name_and_come_again(
    tmp_path: Path, small_disk: Path
) -> None:
    ballast = small_disk / "ballast"

    def fill() -> None:
        (tmp_path / "logs").symlink_to(small_disk)
        with pytest.raises(OSError, match="No space left"), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))

    async def scenario(bench: MasterBench) -> None:
        fill()
        admitted = await bench.agents.Register(agent_service_pb2.RegisterRequest(node_id="n1", node_incarnation="i"))
        chunk = agent_service_pb2.LogChunk(
            step_id=1, kind=agent_service_pb2.LOG_KIND_STDOUT, content=b"a line\n" * 10_000
        )

        def push() -> grpc.aio.UnaryUnaryCall:
            request = agent_service_pb2.PushLogsRequest(chunks=[chunk])
            return bench.agents.PushLogs(request, metadata=[(CREDENTIAL_KEY, admitted.node_credential)])

        assert await refusal(push()) == "STORAGE_FULL"
        ballast.unlink()
        await push()

    drive(tmp_path, scenario)
    (written,) = small_disk.rglob("process000.stdout.txt")
    assert written.read_bytes() == b"a line\n" * 10_000


def test_rows_whose_file_is_gone_are_not_taken_for_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent sends again what found no room, for ever."""
    monkeypatch.setattr(NoStreams, "staging_folder", lambda *_: tmp_path)

    async def scenario(bench: MasterBench) -> None:
        admitted = await bench.agents.Register(agent_service_pb2.RegisterRequest(node_id="n1", node_incarnation="i"))
        bench.core.state.leases[LeaseId(7)] = Lease(LeaseId(7), StepId(1), 0, 1, NodeId("n1"), 0.0)

        async def named() -> AsyncIterator[agent_service_pb2.UploadRowsRequest]:
            yield agent_service_pb2.UploadRowsRequest(lease_id=7, rows_file=b"/gone/rows")

        metadata = [(CREDENTIAL_KEY, admitted.node_credential)]
        assert await refusal(bench.agents.UploadRows(named(), metadata=metadata)) == "ROWS_UNREADABLE"

    drive(tmp_path, scenario)
    assert not list(tmp_path.glob("*.partial"))


def test_a_stream_whose_results_raise_in_the_core_ends_so_that_they_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setitem(HANDLERS, commands.CompleteAttempts, broken)

    async def scenario(bench: MasterBench) -> None:
        admitted = await bench.agents.Register(agent_service_pb2.RegisterRequest(node_id="n1", node_incarnation="i"))
        work = bench.agents.Work(metadata=[(CREDENTIAL_KEY, admitted.node_credential)])
        await work.write(agent_service_pb2.WorkRequest(hello=agent_service_pb2.WorkHello()))
        await work.write(agent_service_pb2.WorkRequest(completions=[work_pb2.Completion(lease_id=1)]))
        assert await work.read() is grpc.aio.EOF

    drive(tmp_path, scenario)


def test_rows_that_cannot_be_committed_are_not_taken_in_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_service, "UNACKNOWLEDGED_BYTES_MAX", 1000)
    rows = b"x" * 600

    async def scenario(bench: MasterBench) -> None:
        taken: list[int] = []
        complete = HANDLERS[commands.CompleteAttempts]

        def counted(*arguments: Any) -> Any:
            taken.extend(result.lease_id for result in arguments[1].results)
            return complete(*arguments)

        monkeypatch.setitem(HANDLERS, commands.CompleteAttempts, counted)
        streams = []
        for name in ("n1", "n2"):
            admitted = await bench.agents.Register(
                agent_service_pb2.RegisterRequest(node_id=name, node_incarnation="i")
            )
            work = bench.agents.Work(metadata=[(CREDENTIAL_KEY, admitted.node_credential)])
            await work.write(agent_service_pb2.WorkRequest(hello=agent_service_pb2.WorkHello()))
            streams.append(work)
        bench.committer.open.clear()
        submitted = asyncio.ensure_future(bench.jobs.SubmitJob(bench.request("r")))
        await bench.held_up()
        for first, work in enumerate(streams):
            for lease_id in range(10 * first + 1, 10 * first + 6):
                result = work_pb2.Completion(lease_id=lease_id, rows=rows, rows_length=len(rows))
                await work.write(agent_service_pb2.WorkRequest(completions=[result]))
        for _ in range(20):
            await bench.jobs.GetMaster(job_service_pb2.GetMasterRequest())
        assert len(taken) <= 3, "two that fit, and one of each stream at most"
        bench.committer.open.set()
        for work in streams:
            answered = 0
            while answered < 5:
                answered += sum(len(answer.lease_ids) for answer in (await work.read()).acknowledgements)
        await submitted
        assert sorted(taken) == [1, 2, 3, 4, 5, 11, 12, 13, 14, 15]

    drive(tmp_path, scenario)


def test_two_uploads_of_one_artifact_do_not_write_over_each_other(tmp_path: Path) -> None:
    content = b"right"
    digest = hashlib.sha256(content).hexdigest()

    async def scenario(bench: MasterBench) -> None:
        half, whole = asyncio.Event(), asyncio.Event()

        async def right() -> AsyncIterator[artifact_service_pb2.UploadArtifactRequest]:
            yield artifact_service_pb2.UploadArtifactRequest(digest=digest, length=5, chunk=content[:2])
            half.set()
            await whole.wait()
            yield artifact_service_pb2.UploadArtifactRequest(chunk=content[2:])

        async def wrong() -> AsyncIterator[artifact_service_pb2.UploadArtifactRequest]:
            yield artifact_service_pb2.UploadArtifactRequest(digest=digest, length=5, chunk=b"wro")
            whole.set()
            yield artifact_service_pb2.UploadArtifactRequest(chunk=b"ng")

        first = asyncio.ensure_future(bench.uploads.UploadArtifact(right()))
        await half.wait()
        while (await bench.uploads.GetArtifact(artifact_service_pb2.GetArtifactRequest(digest=digest))).length < 2:
            pass
        assert (await bench.uploads.UploadArtifact(wrong())).length == 5, "it is here by then"
        assert (await first).length == 5
        path = bench.artifacts.path(digest)
        assert path is not None and path.read_bytes() == content

    drive(tmp_path, scenario)


def test_a_cancelled_call_ends_after_its_thread() -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go_on.wait(20)
        ended.set()
        raise OSError("nobody is left to be told")

    async def main() -> None:
        call = asyncio.ensure_future(in_thread(work))
        assert await asyncio.get_running_loop().run_in_executor(None, begun.wait, 20)
        for _ in range(2):
            call.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not call.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert ended.is_set()

    asyncio.run(main())


def test_what_a_thread_has_opened_for_a_cancelled_call_is_closed(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()
    opened: list[BinaryIO] = []

    def work() -> BinaryIO:
        begun.set()
        assert go_on.wait(20)
        opened.append((tmp_path / "opened").open("wb"))
        return opened[0]

    async def main() -> None:
        call = asyncio.ensure_future(in_thread(work, drop=lambda file: file.close()))
        assert await asyncio.get_running_loop().run_in_executor(None, begun.wait, 20)
        call.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert opened[0].closed

    asyncio.run(main())
