"""What a client makes of a master that misbehaves: a real gRPC server whose answers the tests script."""

from __future__ import annotations

import hashlib
import json
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from windrow.cli.display.jsonlines import JsonDisplay
from windrow.cli.follow import Follower
from windrow.client import Client
from windrow.errors import MasterUnreachable, RequestRefused, TransferFailed, UsageError, WindrowError
from windrow.rpc import errors
from windrow.rpc.address import grpc_target
from windrow.rpc.connection import Connection
from windrow.rpc.v1 import (
    artifact_service_pb2,
    artifact_service_pb2_grpc,
    job_pb2,
    job_service_pb2,
    job_service_pb2_grpc,
)
from windrow.transfer import Download, FileSource, read_output_file, safe_parts, upload_artifact

Piece = job_service_pb2.DownloadOutputResponse


@dataclass
class Script(job_service_pb2_grpc.JobServiceServicer, artifact_service_pb2_grpc.ArtifactServiceServicer):
    """Answers as told; remembers what it was asked."""

    failures: list[grpc.StatusCode] = field(default_factory=list)
    """Codes for the next calls, before any answer."""
    refusal: tuple[grpc.StatusCode, str] | None = None
    files: dict[bytes, bytes] = field(default_factory=dict)
    damage: int = 0
    """Not 0: checksums are wrong by it."""
    break_after: list[int] = field(default_factory=list)
    """After so many bytes, the next downloads break."""
    moments: list[list[job_pb2.Job]] = field(default_factory=list)
    """What the next streams of WatchJob tell before they break; the last one ends well."""
    artifact: bytearray = field(default_factory=bytearray)
    break_upload_after: list[int] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)
    read_only: list[str] = field(default_factory=list)
    """Reasons that the next GetMaster calls tell; when all were told, the job ends."""
    all_told: threading.Event = field(default_factory=threading.Event)

    def _take(self, request: Any, context: Any) -> None:
        self.asked.append(request)
        if self.refusal is not None:
            errors.abort_sync(context, self.refusal[0], self.refusal[1], f"Refused for {self.refusal[1]}.")
        if self.failures:
            context.abort(self.failures.pop(0), "not now")

    def GetMaster(self, request: Any, context: Any) -> job_service_pb2.GetMasterResponse:
        self._take(request, context)
        reason = self.read_only.pop(0) if self.read_only else ""
        if not self.read_only:
            self.all_told.set()
        return job_service_pb2.GetMasterResponse(windrow_version="7", read_only_reason=reason)

    def SubmitJob(self, request: Any, context: Any) -> job_service_pb2.SubmitJobResponse:
        self._take(request, context)
        return job_service_pb2.SubmitJobResponse(job=job_pb2.Job(job_id="j", state=job_pb2.JOB_STATE_QUEUED))

    def GetJob(self, request: Any, context: Any) -> job_service_pb2.GetJobResponse:
        return job_service_pb2.GetJobResponse(job=job_pb2.Job(job_id="j", state=job_pb2.JOB_STATE_COMPLETED, seq=9))

    def WatchJob(self, request: Any, context: Any) -> Iterator[job_service_pb2.WatchJobResponse]:
        self._take(request, context)
        for job in self.moments.pop(0):
            if job.state == job_pb2.JOB_STATE_COMPLETED and self.read_only:
                self.all_told.wait(30)
            if job.seq > request.after_seq:
                yield job_service_pb2.WatchJobResponse(job=job)
        if self.moments:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the master was killed")

    def DownloadOutput(self, request: Any, context: Any) -> Iterator[Piece]:
        self._take(request, context)
        budget = self.break_after.pop(0) if self.break_after else None
        offset = request.offset
        for path, content in sorted(self.files.items()):
            if path < request.from_path or (request.path and path != request.path):
                continue
            offset = min(offset, len(content)) if path in (request.from_path, request.path) else 0
            yield Piece(path=path, begins=True, length=len(content), offset=offset)
            for start in range(offset, len(content), 4):
                chunk = content[start : start + 4]
                if budget is not None:
                    budget -= len(chunk)
                    if budget < 0:
                        context.abort(grpc.StatusCode.UNAVAILABLE, "the cable was cut")
                yield Piece(content=chunk)
            yield Piece(crc32=zlib.crc32(content) ^ self.damage)
            offset = 0

    def GetArtifact(self, request: Any, context: Any) -> artifact_service_pb2.GetArtifactResponse:
        complete = hashlib.sha256(self.artifact).hexdigest() == request.digest
        return artifact_service_pb2.GetArtifactResponse(length=len(self.artifact), complete=complete)

    def UploadArtifact(self, requests: Any, context: Any) -> artifact_service_pb2.UploadArtifactResponse:
        budget = self.break_upload_after.pop(0) if self.break_upload_after else None
        digest = ""
        for request in requests:
            if request.digest:
                digest = request.digest
                assert request.offset == len(self.artifact)
            self.artifact += request.chunk
            if budget is not None and len(self.artifact) >= budget:
                context.abort(grpc.StatusCode.UNAVAILABLE, "the cable was cut")
        if hashlib.sha256(self.artifact).hexdigest() != digest:
            self.artifact.clear()
            errors.abort_sync(context, grpc.StatusCode.DATA_LOSS, errors.DIGEST_MISMATCH, "wrong digest")
        return artifact_service_pb2.UploadArtifactResponse(length=len(self.artifact))


@pytest.fixture
def script() -> Script:
    """An empty script."""
    return Script()


@pytest.fixture
def address(script: Script, tmp_path: Path) -> Iterator[str]:
    """Where the script is served."""
    server = grpc.server(ThreadPoolExecutor(4))
    job_service_pb2_grpc.add_JobServiceServicer_to_server(script, server)
    artifact_service_pb2_grpc.add_ArtifactServiceServicer_to_server(script, server)
    address = f"unix:{tmp_path}/s"
    server.add_insecure_port(address)
    server.start()
    yield address
    server.stop(0).wait()


def test_a_short_absence_is_outlived(script: Script, address: str) -> None:
    script.failures = [grpc.StatusCode.UNAVAILABLE] * 3
    with Client(address, patience_s=30) as client:
        assert client.master().windrow_version == "7"
    assert len(script.asked) == 4


def test_a_repeated_submission_has_one_request_id(script: Script, address: str) -> None:
    script.failures = [grpc.StatusCode.UNAVAILABLE] * 2

    class Effective:
        def to_json(self) -> str:
            return "{}"

    with Client(address, patience_s=30) as client:
        client.submit_effective(Effective())  # type: ignore[arg-type]
        client.submit_effective(Effective())  # type: ignore[arg-type]
    ids = [request.request_id for request in script.asked]
    assert len(ids) == 4
    assert len(set(ids[:3])) == 1
    assert ids[3] not in ids[:3]


def test_a_long_absence_is_told(script: Script, address: str) -> None:
    script.failures = [grpc.StatusCode.UNAVAILABLE] * 1000
    with Client(address, patience_s=0.1) as client, pytest.raises(MasterUnreachable, match="not now"):
        client.master()


def test_waiting_ends_when_it_is_useless(script: Script, address: str) -> None:
    script.failures = [grpc.StatusCode.UNAVAILABLE] * 1000
    with Client(address, patience_s=1000) as client:
        client.connection.why_gone = lambda: WindrowError("cannot be started")
        with pytest.raises(WindrowError, match="cannot be started"):
            client.master()


@pytest.mark.parametrize(
    ("code", "reason", "kind", "exit_code"),
    [
        (grpc.StatusCode.NOT_FOUND, errors.JOB_UNKNOWN, RequestRefused, 2),
        (grpc.StatusCode.INVALID_ARGUMENT, errors.JOB_INVALID, RequestRefused, 2),
        (grpc.StatusCode.ALREADY_EXISTS, errors.JOB_EXISTS, RequestRefused, 2),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.STORAGE_FULL, WindrowError, 1),
        (grpc.StatusCode.INTERNAL, errors.INTERNAL, WindrowError, 1),
        (grpc.StatusCode.UNAVAILABLE, "A_REASON_OF_A_NEWER_MASTER", MasterUnreachable, 5),
    ],
)
def test_reasons_become_errors(
    script: Script, address: str, code: grpc.StatusCode, reason: str, kind: type[WindrowError], exit_code: int
) -> None:
    script.refusal = (code, reason)
    with Client(address, patience_s=0.05) as client, pytest.raises(kind, match=reason) as caught:
        client.master()
    assert caught.value.exit_code == exit_code


def test_progress_goes_on_after_a_break_and_repeats_nothing(script: Script, address: str) -> None:
    def moment(seq: int, state: job_pb2.JobState = job_pb2.JOB_STATE_RUNNING) -> job_pb2.Job:
        return job_pb2.Job(job_id="j", seq=seq, state=state)

    end = job_pb2.JOB_STATE_COMPLETED
    script.moments = [[moment(1), moment(2)], [], [moment(2), moment(3), moment(4, end)]]
    with Client(address, patience_s=30) as client:
        assert [job.seq for job in client.progress("j")] == [1, 2, 3, 4]


def test_a_full_disk_is_told_while_a_job_is_followed(
    script: Script, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    script.read_only = ["STORAGE_FULL: no room on the disk. Make some.", ""]
    running = job_pb2.Job(job_id="j", seq=1, state=job_pb2.JOB_STATE_RUNNING)
    script.moments = [[running, job_pb2.Job(job_id="j", seq=2, state=job_pb2.JOB_STATE_COMPLETED)]]
    with Client(address) as client:
        follower = Follower(client, "j", after_seq=0, with_nodes=False)
        last = follower.run(JsonDisplay(), lambda: None)
        follower.close()
    assert last.state.ended
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert any("STORAGE_FULL" in event.get("message", "") for event in events)


def test_a_stream_that_the_master_cancelled_is_opened_again(script: Script, address: str) -> None:
    """What an ending master does with its streams is no end of the job's."""
    script.failures = [grpc.StatusCode.CANCELLED, grpc.StatusCode.CANCELLED]
    script.moments = [[job_pb2.Job(job_id="j", seq=1, state=job_pb2.JOB_STATE_COMPLETED)]]
    with Client(address, patience_s=30) as client:
        assert [job.seq for job in client.progress("j")] == [1]


def test_progress_of_a_job_that_has_ended_before(script: Script, address: str) -> None:
    script.moments = [[]]
    with Client(address) as client:
        assert [job.seq for job in client.progress("j", after_seq=9)] == [9]


def test_an_upload_goes_on_where_it_broke(script: Script, address: str, tmp_path: Path) -> None:
    content = bytes(range(256)) * 20_000
    archive = tmp_path / "archive"
    archive.write_bytes(content)
    script.break_upload_after = [1 << 20, 3 << 20]
    connection = Connection(address, patience_s=30)
    with archive.open("rb") as file:
        upload_artifact(connection, hashlib.sha256(content).hexdigest(), FileSource(file))
    assert bytes(script.artifact) == content
    connection.close()


def test_a_damaged_upload_begins_anew(script: Script, address: str, tmp_path: Path) -> None:
    script.artifact += b"of somebody else"
    archive = tmp_path / "archive"
    archive.write_bytes(b"of somebody else and then something different"[10:])
    connection = Connection(address, patience_s=30)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    with archive.open("rb") as file:
        upload_artifact(connection, digest, FileSource(file))
    assert bytes(script.artifact) == archive.read_bytes()
    connection.close()


FILES = {b"a": b"first file", b"sub/b": b"the second file, longer", b"sub/c": b"", b"z\xff": b"no utf-8 in its name"}


@pytest.mark.parametrize("breaks", [[], [0], [3], [12, 8], [10, 0, 9, 1, 5]])
def test_a_download_that_breaks_goes_on(script: Script, address: str, tmp_path: Path, breaks: list[int]) -> None:
    script.files = dict(FILES)
    script.break_after = list(breaks)
    received: list[int] = []
    download(address, tmp_path / "out", received.append)
    assert tree(tmp_path / "out") == FILES
    assert sum(received) >= sum(map(len, FILES.values()))
    # What was whole is not sent again: every new stream begins at the file that was broken.
    assert [request.from_path for request in script.asked][1:] == sorted(r.from_path for r in script.asked[1:])


def test_a_download_goes_on_in_a_later_command(script: Script, address: str, tmp_path: Path) -> None:
    script.files = dict(FILES)
    script.break_after = [15]
    with pytest.raises(MasterUnreachable):
        download(address, tmp_path / "out", patience_s=0)
    assert set(tree(tmp_path / "out")) == {b"a"}
    received: list[int] = []
    download(address, tmp_path / "out", received.append)
    assert tree(tmp_path / "out") == FILES
    assert script.asked[-1].from_path == b"sub/b"
    assert script.asked[-1].offset > 0
    assert sum(received) < sum(map(len, FILES.values()))


def test_a_download_of_a_file_that_was_replaced_by_one_of_the_same_length_is_refused_once(
    script: Script, address: str, tmp_path: Path
) -> None:
    script.files = {b"a": b"what it was, some 30 bytes long"}
    script.break_after = [20]
    with pytest.raises(MasterUnreachable):
        download(address, tmp_path / "out", patience_s=0)
    script.files = {b"a": b"what it is, also 30 bytes long."}
    with pytest.raises(TransferFailed, match="changed while it was read"):
        download(address, tmp_path / "out")
    assert tree(tmp_path / "out") == {}
    download(address, tmp_path / "out")
    assert tree(tmp_path / "out") == script.files


def test_what_is_damaged_on_the_way_is_refused(script: Script, address: str, tmp_path: Path) -> None:
    script.files = {b"a": b"content"}
    script.damage = 1
    with pytest.raises(TransferFailed, match="its checksum is not the master's"):
        download(address, tmp_path / "out")
    assert tree(tmp_path / "out") == {}
    connection = Connection(address, patience_s=30)
    with pytest.raises(TransferFailed, match="its checksum is not the master's"):
        list(read_output_file(connection, "j", "rows", b"a"))
    connection.close()


def test_a_single_file_has_the_name_of_the_output(script: Script, address: str, tmp_path: Path) -> None:
    script.files = {b"": b"some rows\n" * 10}
    script.break_after = [30]
    download(address, tmp_path / "out")
    assert tree(tmp_path / "out") == {b"rows.txt": b"some rows\n" * 10}
    assert [request.offset for request in script.asked] == [0, 28]


@pytest.mark.parametrize("path", [b"../evil", b"/etc/evil", b"a/../../evil", b"a//b", b".", b"a\0b", b"a/"])
def test_a_download_never_leaves_its_folder(script: Script, address: str, tmp_path: Path, path: bytes) -> None:
    with pytest.raises(TransferFailed, match="outside"):
        safe_parts(path)
    script.files = {path: b"evil"}
    with pytest.raises(TransferFailed, match="outside"):
        download(address, tmp_path / "in" / "out")
    assert [found for found in tmp_path.rglob("*evil*") if "socket" not in found.name] == []


def test_a_download_does_not_write_through_links(script: Script, address: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "sub").symlink_to(tmp_path / "elsewhere")
    script.files = {b"sub/file": b"content"}
    with pytest.raises(TransferFailed, match="is a link"):
        download(address, tmp_path / "out")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_told(script: Script, address: str, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file in the way")
    script.files = {b"a": b"content"}
    with pytest.raises(TransferFailed, match="cannot be written"):
        download(address, tmp_path / "out")


def test_rows_are_read_across_breaks(script: Script, address: str) -> None:
    script.files = {b"rows": b"0123456789" * 10}
    script.break_after = [7, 40]
    connection = Connection(address, patience_s=30)
    assert b"".join(read_output_file(connection, "j", "rows", b"rows")) == b"0123456789" * 10
    connection.close()


def test_rows_that_change_while_they_are_read_are_an_error(script: Script, address: str) -> None:
    script.files = {b"rows": b"0123456789" * 10}
    script.break_after = [40]
    connection = Connection(address, patience_s=30)
    chunks = read_output_file(connection, "j", "rows", b"rows")
    next(chunks)
    script.files = {b"rows": b"9876543210"}
    script.break_after = []
    with pytest.raises(TransferFailed, match="changed"):
        list(chunks)
    connection.close()


@pytest.mark.parametrize(
    "text", ["", "host", "host:", ":80", "host:port", "host:70000", "unix:relative", "http://host:80", "/path"]
)
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="no address"):
        grpc_target(text)


@pytest.mark.parametrize("text", ["host:80", "127.0.0.1:8470", "[::1]:8470", "unix:/run/w"])
def test_addresses(text: str) -> None:
    assert grpc_target(text) == text


def download(
    address: str, folder: Path, on_bytes: Callable[[int], None] = lambda count: None, *, patience_s: float = 30
) -> list[Path]:
    connection = Connection(address, patience_s=patience_s)
    try:
        return Download(connection, "j", 1, "rows", folder, single_name="rows.txt", on_bytes=on_bytes).run()
    finally:
        connection.close()


def tree(folder: Path) -> dict[bytes, bytes]:
    """All whole files below a folder: what stands under its own name."""
    import os

    return {
        os.fsencode(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(".partial")
    }
