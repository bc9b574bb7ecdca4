"""Data that clients bring along: what the master takes, where it puts it, and what it refuses."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import os
import tarfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import pytest
from file_damage import cut, flip_middle
from master_bench import MasterBench, drive
from windrow.common.archives import DATA_LIMITS, PAX_BYTES_MAX, data_preamble
from windrow.rpc.errors import read_failure
from windrow.rpc.v1 import artifact_service_pb2 as pb
from windrow.transfer.data_archive import DataArchive
from windrow_master.files.artifacts import ArtifactFolder
from windrow_master.files.checked_records import RecordWriter
from windrow_master.files.upload_lists import UploadedFile, read_list, write_file
from windrow_master.uploaded_data import UploadedData, _locked

Build = Callable[[tarfile.TarFile], None]


def member(name: str, content: bytes = b"x", **fields: object) -> Build:
    def build(tar: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        for field, value in fields.items():
            setattr(info, field, value)
        tar.addfile(info, io.BytesIO(content) if info.isreg() else None)

    return build


def tar_of(*builds: Build) -> bytes:
    out = io.BytesIO()
    mark = {"comment": "windrow data"}
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers=mark) as tar:
        for build in builds:
            build(tar)
    return out.getvalue()


def says_another_length(size: int) -> bytes:
    """A tar whose one file claims to be longer than the archive."""
    info = tarfile.TarInfo("huge")
    info.size = size
    return data_preamble() + info.tobuf(tarfile.PAX_FORMAT) + bytes(10240)


def header_of(kind: bytes, size: int) -> bytes:
    """A tar that begins with a further header of so many bytes."""
    info = tarfile.TarInfo("header")
    info.type, info.size = kind, size
    return data_preamble() + info.tobuf(tarfile.USTAR_FORMAT) + b"0" * 4096


async def upload(bench: MasterBench, content: bytes) -> str:
    """Upload an archive as it is; return its digest."""
    digest = hashlib.sha256(content).hexdigest()

    async def requests() -> AsyncIterator[pb.UploadArtifactRequest]:
        yield pb.UploadArtifactRequest(digest=digest, length=len(content))
        for at in range(0, len(content), 1 << 20):
            yield pb.UploadArtifactRequest(chunk=content[at : at + (1 << 20)])

    assert (await bench.uploads.UploadArtifact(requests())).length == len(content)
    return digest


async def placed(bench: MasterBench, digest: str) -> Path:
    """What PlaceData names at last."""
    messages = [message async for message in bench.uploads.PlaceData(pb.PlaceDataRequest(digest=digest))]
    assert not any(message.path for message in messages[:-1])
    return Path(messages[-1].path)


async def refused(bench: MasterBench, digest: str) -> tuple[grpc.StatusCode, str, str]:
    """Code, reason and message of a PlaceData that must be refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await placed(bench, digest)
    failure = read_failure(caught.value)
    return failure.code, failure.reason, failure.message


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_data_is_placed_once_readable_by_all_and_its_archive_is_dropped(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "b").write_bytes(b"bb")
    (source / "a").write_bytes(b"a")
    archive = DataArchive(source)
    content = archive.read_at(0, archive.length)

    async def scenario(bench: MasterBench) -> None:
        digest = await upload(bench, content)
        folder = await placed(bench, digest)
        assert folder == bench.datastore / "uploads" / digest
        assert tree(folder) == {"a", "sub", "sub/b"}
        assert (folder / "sub" / "b").read_bytes() == b"bb"
        for path in (folder.parent, folder, folder / "sub"):
            assert path.stat().st_mode & 0o777 == 0o755
        assert not (await bench.uploads.GetArtifact(pb.GetArtifactRequest(digest=digest))).length
        mark = folder / "a"
        before = mark.stat()
        assert await placed(bench, digest) == folder
        # Sent once more, by a client that did not ask: taken for what it is, and not stored again.
        assert await upload(bench, content) == digest
        assert bench.artifacts.path(digest) is None
        assert mark.stat().st_ino == before.st_ino
        assert tree(folder.parent) == {digest, *(f"{digest}/{name}" for name in tree(folder))}

    umask = os.umask(0o077)
    try:
        drive(tmp_path, scenario)
    finally:
        os.umask(umask)


@pytest.mark.parametrize(
    "content",
    [
        tar_of(member("../evil")),
        tar_of(member("good"), member("a/../../evil")),
        tar_of(member("/tmp/windrow-evil")),
        tar_of(member("link", type=tarfile.SYMTYPE, linkname=".."), member("link/evil")),
        tar_of(member("link", type=tarfile.LNKTYPE, linkname="/etc/passwd")),
        tar_of(member("same"), member("same")),
        tar_of(member("a"), member("a/b")),
        tar_of(member("device", type=tarfile.CHRTYPE, devmajor=1, devminor=3)),
        tar_of(member("pipe", type=tarfile.FIFOTYPE)),
        tar_of(member("folder", type=tarfile.DIRTYPE)),
        tar_of(member("sparse", type=tarfile.GNUTYPE_SPARSE)),
        tar_of(member("sparse", pax_headers={"GNU.sparse.major": "1", "GNU.sparse.realsize": str(1 << 50)})),
        tar_of(member("owner", pax_headers={"comment": "x" * 2 * PAX_BYTES_MAX})),
        tar_of(member("x" * 300)),
        says_another_length(1 << 20),
        says_another_length(1 << 60),
        header_of(tarfile.XHDTYPE, 8**11 - 1),
        header_of(tarfile.XGLTYPE, 100),
        header_of(tarfile.GNUTYPE_LONGNAME, 8**11 - 1),
        data_preamble() * 2 + bytes(10240),
        data_preamble(),
        data_preamble() + b"no tar at all" * 1000,
    ],
)  # fmt: skip
def test_an_archive_with_tricks_is_refused_and_leaves_nothing(tmp_path: Path, content: bytes) -> None:
    async def scenario(bench: MasterBench) -> None:
        digest = await upload(bench, content)
        code, reason, message = await refused(bench, digest)
        assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "ARCHIVE_INVALID")
        assert digest in message
        assert not list((bench.datastore / "uploads").iterdir())
        assert bench.artifacts.path(digest) is None
        assert (await refused(bench, digest))[1] == "ARTIFACT_MISSING"

    drive(tmp_path, scenario)
    assert not list(tmp_path.rglob("*evil*"))
    assert not Path("/tmp/windrow-evil").exists()


def test_the_code_of_a_job_is_no_data_and_stays(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            member("entry.py")(tar)
        digest = await upload(bench, packed.getvalue())
        assert "different kind of archive" in (await refused(bench, digest))[2]
        assert bench.artifacts.path(digest) is not None

    drive(tmp_path, scenario)


def test_more_files_than_the_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windrow_master.uploaded_data.DATA_LIMITS", DATA_LIMITS._replace(files_max=3))

    async def scenario(bench: MasterBench) -> None:
        digest = await upload(bench, tar_of(*(member(f"f{number}") for number in range(4))))
        assert "more than 3 files" in (await refused(bench, digest))[2]
        assert not list((bench.datastore / "uploads").iterdir())

    drive(tmp_path, scenario)


def test_uploads_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()

    async def scenario(bench: MasterBench) -> None:
        (bench.datastore / "uploads").symlink_to(tmp_path / "elsewhere")
        digest = await upload(bench, tar_of(member("a")))
        assert "is a link" in (await refused(bench, digest))[2]

    drive(tmp_path, scenario)
    assert not tree(tmp_path / "elsewhere")


def test_too_large_a_chunk_and_an_upload_that_ends_early(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        content = os.urandom(3 << 20)
        digest = hashlib.sha256(content).hexdigest()

        async def send(*chunks: bytes, offset: int = 0) -> str:
            async def requests() -> AsyncIterator[pb.UploadArtifactRequest]:
                yield pb.UploadArtifactRequest(digest=digest, length=len(content), offset=offset, chunk=chunks[0])
                for chunk in chunks[1:]:
                    yield pb.UploadArtifactRequest(chunk=chunk)

            try:
                await bench.uploads.UploadArtifact(requests())
            except grpc.aio.AioRpcError as error:
                return read_failure(error).reason
            return ""

        assert await send(content[: (1 << 20) + 1]) == "REQUEST_INVALID"
        # What came before an early end is kept.
        assert await send(content[: 1 << 20], content[1 << 20 : 1_500_000]) == "OFFSET_MISMATCH"
        has = await bench.uploads.GetArtifact(pb.GetArtifactRequest(digest=digest))
        assert (has.length, has.complete) == (1_500_000, False)
        assert await send(content[1_500_000 : 2 << 20], content[2 << 20 :], offset=1_500_000) == ""
        assert bench.artifacts.path(digest) is not None

    drive(tmp_path, scenario)


def test_a_master_without_a_default_datastore_takes_no_data(tmp_path: Path) -> None:
    data = UploadedData(ArtifactFolder(tmp_path / "artifacts"), None, tmp_path / "lists")
    with pytest.raises(Exception, match=r"no datastore named default.*--datastore default=PATH"):
        data.place("0" * 64, lambda done, total: None)


def test_nothing_is_told_of_what_lies_outside_the_datastores(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        store = bench.datastore
        (store / "file").write_bytes(b"12345")
        (store / "out").symlink_to("/etc")
        (store / "inside").symlink_to("file")

        async def look(path: bytes) -> pb.StatDataResponse | str:
            try:
                return await bench.uploads.StatData(pb.StatDataRequest(path=path))
            except grpc.aio.AioRpcError as error:
                return read_failure(error).reason

        status = (store / "file").stat()
        there = pb.StatDataResponse(exists=True, inode=status.st_ino, mtime_ns=status.st_mtime_ns, length=5)
        assert await look(os.fsencode(store / "file")) == there
        assert await look(os.fsencode(store / "inside")) == there
        folder = await look(os.fsencode(store))
        assert isinstance(folder, pb.StatDataResponse)
        assert (folder.is_folder, folder.length) == (True, 0)
        assert await look(os.fsencode(store / "missing" / "file")) == pb.StatDataResponse()
        for path in (b"/etc/passwd", b"/", os.fsencode(store) + b"2", os.fsencode(store / "out" / "passwd")):
            assert await look(path) == "PATH_OUTSIDE"
        assert await look(os.fsencode(store) + b"/../../etc/passwd") == "PATH_OUTSIDE"
        for path in (b"", b"relative", os.fsencode(store) + b"/nul\0"):
            assert await look(path) == "REQUEST_INVALID"

    drive(tmp_path, scenario)


def test_an_upload_leaves_room_for_the_masters_state(small_disk: Path) -> None:
    content = os.urandom(5 << 20)
    digest = hashlib.sha256(content).hexdigest()
    ballast = small_disk / "ballast"

    async def scenario(bench: MasterBench) -> None:
        async def send(length: int, after_first: Callable[[], object] = lambda: None) -> str:
            async def taken(count: int) -> None:
                # Who writes on while a call is being refused may hear of the broken write instead.
                request = pb.GetArtifactRequest(digest=digest)
                while (await bench.uploads.GetArtifact(request)).length < count:  # noqa: ASYNC110  no event tells
                    await asyncio.sleep(0)

            async def requests() -> AsyncIterator[pb.UploadArtifactRequest]:
                yield pb.UploadArtifactRequest(digest=digest, length=length, chunk=content[: 1 << 20])
                await taken(1 << 20)
                after_first()
                for at in range(1 << 20, length, 1 << 20):
                    yield pb.UploadArtifactRequest(chunk=content[at : at + (1 << 20)])
                    await taken(min(at + (1 << 20), length))

            try:
                await bench.uploads.UploadArtifact(requests())
            except grpc.aio.AioRpcError as error:
                failure = read_failure(error)
                assert failure.code == grpc.StatusCode.RESOURCE_EXHAUSTED
                return failure.reason
            return ""

        def fill() -> None:
            # Unbuffered: closing must have nothing left to write.
            with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(1 << 16))

        assert await send(16 << 20) == "STORAGE_FULL"
        assert not list((bench.state / "artifacts").glob("*.partial"))
        assert await send(len(content), fill) == "STORAGE_FULL"
        assert not list((bench.state / "artifacts").glob("*.partial"))
        ballast.unlink()
        assert await send(len(content)) == ""

    drive(small_disk, scenario)


def test_uploads_that_nobody_goes_on_with_are_removed_after_a_week(tmp_path: Path) -> None:
    old, young, whole = tmp_path / f"{'0' * 64}.partial", tmp_path / f"{'1' * 64}.partial", tmp_path / ("2" * 64)
    for path, days in ((old, 8), (young, 6), (whole, 8)):
        path.touch()
        os.utime(path, (time.time() - days * 86400,) * 2)
    ArtifactFolder(tmp_path)
    assert sorted(tmp_path.iterdir()) == [young, whole]


def test_leftovers_are_removed_but_for_those_of_a_live_master(tmp_path: Path) -> None:
    uploads = tmp_path / "store" / "uploads"
    dead, live = uploads / f".{'0' * 64}.partial-dead", uploads / f".{'1' * 64}.partial-live"
    for folder in (dead / "sub", live, uploads / ("2" * 64)):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    data = UploadedData(ArtifactFolder(tmp_path / "artifacts"), tmp_path / "store", tmp_path / "lists")
    with _locked(live):
        data.remove_leftovers()
    assert sorted(path.name for path in uploads.iterdir()) == [live.name, "2" * 64]


def test_an_archive_that_was_damaged_is_told_removed_and_comes_anew(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        content = b"the code of a job" * 1000
        digest = await upload(bench, content)
        path = bench.artifacts.path(digest)
        assert path is not None
        flip_middle(path)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in bench.uploads.DownloadArtifact(pb.DownloadArtifactRequest(digest=digest)):
                raise AssertionError("a damaged byte was sent")
        failure = read_failure(caught.value)
        assert (failure.code, failure.reason) == (grpc.StatusCode.DATA_LOSS, "DIGEST_MISMATCH")
        assert str(path) in failure.message and "submit the job again" in failure.message
        assert not path.exists()
        for damage in (flip_middle, cut):
            await upload(bench, content)
            damage(path)
            has = await bench.uploads.GetArtifact(pb.GetArtifactRequest(digest=digest))
            assert (has.length, has.complete) == (0, False)
        await upload(bench, content)
        flip_middle(path)
        await upload(bench, content)
        assert path.read_bytes() == content

    drive(tmp_path, scenario)


def test_data_is_never_unpacked_from_an_archive_that_was_damaged(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        content = tar_of(member("a", b"x" * 5000))
        digest = await upload(bench, content)
        path = bench.artifacts.path(digest)
        assert path is not None
        flip_middle(path)
        assert (await refused(bench, digest))[1] == "ARTIFACT_MISSING"
        await upload(bench, content)
        assert (await placed(bench, digest) / "a").read_bytes() == b"x" * 5000

    drive(tmp_path, scenario)


def test_a_damaged_list_of_an_upload_says_less_and_nothing_wrong(tmp_path: Path) -> None:
    files = [UploadedFile(b"name%d" % number, bytes([number]) * 32, number) for number in range(5)]
    path = tmp_path / "list"
    with path.open("wb") as out:
        records = RecordWriter(out)
        for file in files:
            write_file(records, file)
    whole = path.read_bytes()
    assert list(read_list(path)) == files
    damaged = [whole[:at] + bytes([byte ^ 1 << at % 8]) + whole[at + 1 :] for at, byte in enumerate(whole)]
    damaged += [whole[:length] for length in range(len(whole))] + [whole + b"\0" * 100, bytes(len(whole))]
    record = len(whole) // 5
    damaged.append(whole[:record] + whole[2 * record :])
    for content in damaged:
        path.write_bytes(content)
        found = list(read_list(path))
        assert found == files[: len(found)]
