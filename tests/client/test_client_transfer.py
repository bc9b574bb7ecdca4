"""Uploads and downloads that break, are damaged, or lead elsewhere."""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from scripted_service import Script
from windrow.errors import MasterUnreachable, TransferFailed
from windrow.rpc.connection import Connection
from windrow.rpc.v1 import asset_service_pb2, job_pb2
from windrow.sdk.asset import asset_from_message
from windrow.sdk.client import Client
from windrow.sdk.job import job_from_message
from windrow.sdk.packages import fetch
from windrow.transfer import download as download_module
from windrow.transfer.download import Download, read_output_file, safe_parts
from windrow.transfer.upload import FileSource, upload_artifact


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
    with pytest.raises(TransferFailed, match="its checksum does not match the master's"):
        download(address, tmp_path / "out")
    assert tree(tmp_path / "out") == {}
    connection = Connection(address, patience_s=30)
    with pytest.raises(TransferFailed, match="its checksum does not match the master's"):
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
    return {
        os.fsencode(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(".partial")
    }


NO_NAMES = ["../up", "/root", "..", ".hidden", "a/b", "a\0b"]


@pytest.mark.parametrize("name", NO_NAMES)
@pytest.mark.parametrize("what", ["job", "step", "output", "asset", "version"])
def test_what_a_master_names_is_a_name(what: str, name: str) -> None:
    with pytest.raises(TransferFailed, match="Do not trust this master"):
        if what == "asset":
            asset_from_message(asset_service_pb2.Asset(name=name, version="1"))
        elif what == "version":
            asset_from_message(asset_service_pb2.Asset(name="a", version=name))
        else:
            job = job_pb2.Job(job_id=name if what == "job" else "j")
            step = job.steps.add(name=name if what == "step" else "work")
            step.outputs.add(name=name if what == "output" else "out")
            job_from_message(job)


def test_a_master_does_not_choose_where_a_download_goes(
    script: Script, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a folder, it goes into one of the job's name: as the master tells it, whatever the user has typed."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    script.files = dict(FILES)
    with Client(address) as client:
        assert client.download("j")
        script.job_id = str(tmp_path / "home")
        with pytest.raises(TransferFailed, match="which is no name"):
            client.download("j")
    assert not (tmp_path / "home").exists()


def test_a_code_archive_without_end_does_not_fill_the_disk(
    script: Script, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download_module, "ARCHIVE_BYTES_MAX", 1 << 20)
    with Client(address) as client, pytest.raises(TransferFailed, match="which none can have"):
        client.download_code("0" * 64, tmp_path / "code")
    assert (tmp_path / "code").stat().st_size < 2 << 20


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "link"])
def test_a_package_that_would_be_unpacked_elsewhere_is_refused_in_words(
    script: Script, address: str, tmp_path: Path, name: str
) -> None:
    member, content = tarfile.TarInfo(name), b"evil"
    member.size = len(content)
    if name == "link":
        member.type, member.linkname, member.size = tarfile.SYMTYPE, "/etc", 0
    script.archive = member.tobuf() + content.ljust(512, b"\0") * (member.size > 0) + bytes(1024)
    message = asset_service_pb2.Asset(name="a", version="1", path=hashlib.sha256(script.archive).hexdigest())
    with Client(address) as client, pytest.raises(TransferFailed, match=r"cannot be unpacked: .* is refused"):
        fetch(client, asset_from_message(message), tmp_path / "here")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
