"""Floods of calls: what one client, and all of them, may have under way; and what is left of them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from master_bench import DEADLINE_S, JOB, MasterBench, drive, effective_job
from windrow.rpc.errors import read_failure
from windrow.rpc.v1 import agent_service_pb2, job_service_pb2
from windrow.rpc.v1 import artifact_service_pb2 as pb
from windrow_master.files.artifacts import ArtifactFolder
from windrow_master.limits import Limits
from windrow_master.rpc import artifact_service, job_service
from windrow_master.rpc.artifact_service import ArtifactService
from windrow_master.rpc.files import read_file_chunks

GIB = 1 << 30


def digest_of(number: int) -> str:
    return hashlib.sha256(b"%d" % number).hexdigest()


class Upload:
    """An upload that has sent its first message, and waits."""

    def __init__(self, bench: MasterBench, number: int, length: int, chunk: bytes = b"begun") -> None:
        self.digest = digest_of(number)
        self._length, self._chunk = length, chunk
        self._goes_on = asyncio.Event()
        self.call = bench.uploads.UploadArtifact(self._requests())

    async def _requests(self) -> AsyncIterator[pb.UploadArtifactRequest]:
        yield pb.UploadArtifactRequest(digest=self.digest, length=self._length, chunk=self._chunk)
        await self._goes_on.wait()

    async def begun(self, bench: MasterBench, bytes_here: int = 5) -> None:
        """Wait until its first message has been written."""
        request = pb.GetArtifactRequest(digest=self.digest)
        while (await bench.uploads.GetArtifact(request)).length < bytes_here:  # noqa: ASYNC110  # no event tells
            await asyncio.sleep(0)

    async def refusal(self) -> str:
        """The message with which it is refused."""
        try:
            await self.call
        except grpc.aio.AioRpcError as error:
            failure = read_failure(error)
            assert (failure.code, failure.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED")
            return failure.message
        raise AssertionError("it was taken")

    async def broken(self) -> None:
        """Break it off, and wait until the master has noticed."""
        self.call.cancel()
        await asyncio.gather(self.call, return_exceptions=True)


def partials(bench: MasterBench) -> list[Path]:
    return list((bench.state / "artifacts").glob("*.partial"))


async def until(condition: Any) -> None:
    """Wait for what no event tells."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def test_uploads_that_announce_more_than_they_may_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        first, second = Upload(bench, 0, 4 * GIB), Upload(bench, 1, 4 * GIB)
        await first.begun(bench)
        await second.begun(bench)
        refused = [await Upload(bench, number, 4 * GIB).refusal() for number in range(2, 100)]
        assert "bytes announced" in refused[0] and "limit upload_bytes_per_client" in refused[0]
        assert "windrow master --limit upload_bytes_per_client=NUMBER" in refused[0]
        assert len(partials(bench)) == 2
        await first.broken()
        await until(lambda: len(bench_promises(bench)) == 1)
        third = Upload(bench, 200, 4 * GIB)
        await third.begun(bench)
        await second.broken()
        await third.broken()

    drive(tmp_path, scenario, limits=Limits(upload_bytes_per_client=10 * GIB))


def bench_promises(bench: MasterBench) -> set[str]:
    """Digests of the uploads under way."""
    return bench.artifact_service._promises.digests()


def test_no_more_uploads_at_a_time_than_the_limit(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        first = Upload(bench, 0, 10)
        await first.begun(bench)
        assert "limit uploads of this master is 1" in await Upload(bench, 1, 10).refusal()
        await first.broken()

    drive(tmp_path, scenario, limits=Limits(uploads=1))


def test_an_announcement_is_a_promise_of_room_on_the_disk(small_disk: Path) -> None:
    """Two that fit each, but not together."""

    async def scenario(bench: MasterBench) -> None:
        first = Upload(bench, 0, 8 << 20)
        await first.begun(bench)
        second = Upload(bench, 1, 8 << 20)
        try:
            await second.call
        except grpc.aio.AioRpcError as error:
            failure = read_failure(error)
            assert failure.reason == "STORAGE_FULL"
            assert f"{(8 << 20) - 5} bytes that other uploads have announced" in failure.message
        else:
            raise AssertionError("it was taken")
        await first.broken()
        await until(lambda: not bench_promises(bench))
        third = Upload(bench, 1, 8 << 20)
        await third.begun(bench)
        await third.broken()

    drive(small_disk, scenario)


def test_of_uploads_that_broke_off_the_last_few_are_kept_and_none_that_is_empty(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        for number in range(6):
            upload = Upload(bench, number, 10)
            await upload.begun(bench)
            await upload.broken()
            await until(lambda: not bench_promises(bench))
        empty = Upload(bench, 6, 10, b"")
        await until(lambda: bench_promises(bench) == {empty.digest})
        await until((bench.state / "artifacts" / f"{empty.digest}.partial").exists)
        await empty.broken()
        await until(lambda: not bench_promises(bench))
        assert {path.stem for path in partials(bench)} == {digest_of(4), digest_of(5)}

    drive(tmp_path, scenario, limits=Limits(left_uploads=2))


def test_an_upload_that_breaks_off_while_its_file_is_opened_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = ArtifactFolder.begin
    begun, go_on = threading.Event(), threading.Event()

    def slowly(*arguments: Any, **settings: Any) -> int:
        descriptor = begin(*arguments, **settings)
        begun.set()
        assert go_on.wait(DEADLINE_S)
        return descriptor

    monkeypatch.setattr(ArtifactFolder, "begin", slowly)

    async def scenario(bench: MasterBench) -> None:
        upload = Upload(bench, 0, 10, b"")
        assert await asyncio.to_thread(begun.wait, DEADLINE_S)
        assert [str(partials(bench)[0])] == open_below(bench.state / "artifacts")
        await upload.broken()
        go_on.set()
        await until(lambda: not bench_promises(bench))
        assert not open_below(bench.state / "artifacts")
        assert not partials(bench)

    drive(tmp_path, scenario)


def open_below(folder: Path) -> list[str]:
    """Files in a folder that this process has open."""
    found = []
    for number in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(number.readlink()))
    return [path for path in found if Path(path).parent == folder]


def test_streams_of_a_client_are_bounded_and_it_may_open_one_when_another_has_ended(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        job_id = await bench.submitted()
        watched = [bench.jobs.WatchJob(job_service_pb2.WatchJobRequest(job_id=job_id)) for _ in range(3)]
        for call in watched:
            await call.read()
        one_more = bench.jobs.WatchJob(job_service_pb2.WatchJobRequest(job_id=job_id))
        try:
            await one_more.read()
        except grpc.aio.AioRpcError as error:
            failure = read_failure(error)
            assert failure.reason == "LIMIT_REACHED" and "limit streams_per_client" in failure.message
        else:
            raise AssertionError("it was taken")
        assert (await bench.jobs.GetJob(job_service_pb2.GetJobRequest(job_id=job_id))).job.job_id == job_id
        watched[0].cancel()

        async def opens() -> bool:
            call = bench.jobs.WatchJob(job_service_pb2.WatchJobRequest(job_id=job_id))
            try:
                await call.read()
            except grpc.aio.AioRpcError:
                return False
            call.cancel()
            return True

        while not await opens():
            pass
        for call in watched:
            call.cancel()

    drive(tmp_path, scenario, limits=Limits(streams_per_client=3))


def test_uploads_of_large_rows_are_bounded(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        request = agent_service_pb2.RegisterRequest(node_id="n1", node_incarnation="a")
        metadata = (("windrow-credential", (await bench.agents.Register(request)).node_credential),)
        open_ = asyncio.Event()

        async def waiting() -> AsyncIterator[agent_service_pb2.UploadRowsRequest]:
            await open_.wait()
            yield agent_service_pb2.UploadRowsRequest(lease_id=7)

        async def reason(call: Any) -> str:
            try:
                await call
            except grpc.aio.AioRpcError as error:
                return read_failure(error).reason
            return ""

        first = bench.agents.UploadRows(waiting(), metadata=metadata)
        await until(lambda: bench.agent_service._row_uploads == 1)
        assert await reason(bench.agents.UploadRows(waiting(), metadata=metadata)) == "LIMIT_REACHED"
        open_.set()
        assert await reason(first) == "LEASE_NOT_LIVE"
        assert await reason(bench.agents.UploadRows(waiting(), metadata=metadata)) == "LEASE_NOT_LIVE"

    drive(tmp_path, scenario, limits=Limits(row_uploads=1))


def test_a_folder_that_does_not_answer_holds_up_only_who_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    look = ArtifactService._look

    def hung(self: ArtifactService, path: bytes) -> pb.StatDataResponse:
        assert answers.wait(DEADLINE_S)
        return look(self, path)

    async def scenario(bench: MasterBench) -> None:
        monkeypatch.setattr(ArtifactService, "_look", hung)
        request = pb.StatDataRequest(path=bytes(bench.datastore))
        calls = [bench.uploads.StatData(request) for _ in range(50)]
        try:
            job_id = await bench.submitted()
            node = agent_service_pb2.RegisterRequest(node_id="n1", node_incarnation="a")
            assert (await bench.agents.Register(node)).node_credential
            assert (await bench.jobs.GetJob(job_service_pb2.GetJobRequest(job_id=job_id))).job.job_id == job_id
            assert not any(call.done() for call in calls)
        finally:
            answers.set()
        assert all([(await call).is_folder for call in calls])

    drive(tmp_path, scenario)


def test_a_log_and_an_archive_are_read_beside_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()

    def hung(path: Path, offset: int) -> Iterator[bytes]:
        assert answers.wait(DEADLINE_S)
        yield from read_file_chunks(path, offset)

    async def scenario(bench: MasterBench) -> None:
        for module in (job_service, artifact_service):
            monkeypatch.setattr(module, "read_file_chunks", hung)
        job_id = await bench.submitted()
        log = bench.files.logs(job_id) / "log.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"said")
        content = b"archive"
        digest = hashlib.sha256(content).hexdigest()
        (bench.files.artifacts / digest).write_bytes(content)
        reading = bench.jobs.ReadLog(job_service_pb2.ReadLogRequest(job_id=job_id, path="log.txt"))
        loading = bench.uploads.DownloadArtifact(pb.DownloadArtifactRequest(digest=digest))
        both = asyncio.gather(reading.read(), loading.read())
        try:
            for _ in range(20):
                await bench.jobs.GetJob(job_service_pb2.GetJobRequest(job_id=job_id))
            assert not both.done()
        finally:
            answers.set()
        said, archive = await both
        assert (said.content, archive.chunk) == (b"said", content)

    drive(tmp_path, scenario)


def test_clients_see_no_secrets_in_the_documents_of_jobs_and_the_job_keeps_them(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        text = JOB + "    environment_variables: {SERVICE_TOKEN: do-not-tell, MODE: fast}\n"
        document = effective_job(bench.folder, text).to_json().encode()
        request = job_service_pb2.SubmitJobRequest(request_id="r", document=document)
        job_id = (await bench.jobs.SubmitJob(request)).job.job_id
        answer = await bench.jobs.GetJob(job_service_pb2.GetJobRequest(job_id=job_id))
        shown = json.loads(answer.document)["steps"][0]["environment_variables"]
        assert shown == {"SERVICE_TOKEN": "left-out", "MODE": "fast"}
        row = bench.store.reader().job_by_id(job_id)
        assert row is not None and b"do-not-tell" in row.document

    drive(tmp_path, scenario)


def test_health_checks_which_need_no_token_take_no_stream_from_clients(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        job_id = await bench.submitted()
        checks = [health_pb2_grpc.HealthStub(bench.channel).Watch(health_pb2.HealthCheckRequest()) for _ in range(3)]
        ends = [check.read() for check in checks]
        refused = await asyncio.gather(*ends, return_exceptions=True)
        assert len([one for one in refused if isinstance(one, grpc.aio.AioRpcError)]) == 1
        watch = bench.jobs.WatchJob(job_service_pb2.WatchJobRequest(job_id=job_id))
        assert await watch.read()
        for call in (*checks, watch):
            call.cancel()

    drive(tmp_path, scenario, limits=Limits(streams_per_client=2))
