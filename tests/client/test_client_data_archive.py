"""Archives that are nowhere written down: the same bytes as a tar made by tarfile, from any offset."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from windrow.common.archives import DATA_LIMITS, ArchiveError, ArchiveLimits, data_preamble, unpack
from windrow.transfer.data_archive import DataArchive

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)

names = st.binary(min_size=1, max_size=130).filter(
    lambda raw: not set(raw) & {0, ord("/")} and raw not in (b".", b"..")
)
contents = st.one_of(st.binary(max_size=1500), st.sampled_from([b"", b"x" * 512, b"y" * 513, b"z" * 20_000]))


def real_tar(folder: bytes) -> bytes:
    """What tarfile makes of a folder, with the same fixed fields."""
    found = [
        os.path.relpath(os.path.join(place, file), folder)
        for place, _, files in os.walk(folder)
        for file in files
    ]  # fmt: skip
    out = io.BytesIO()
    mark = {"comment": "windrow data"}
    with tarfile.open(
        fileobj=out, mode="w", format=tarfile.PAX_FORMAT, errors="surrogateescape", pax_headers=mark
    ) as tar:
        for name in sorted(found):
            info = tarfile.TarInfo(name.decode("utf-8", "surrogateescape"))
            with open(os.path.join(folder, name), "rb") as file:
                content = file.read()
            info.size = len(content)
            info.mode = 0o755 if os.access(os.path.join(folder, name), os.X_OK) else 0o644
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


@given(
    files=st.dictionaries(names, contents, max_size=6),
    way=st.lists(names, max_size=3),
    reads=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 30_000)), max_size=8),
)
@unhurried
def test_it_is_the_tar_that_tarfile_makes_from_any_offset(
    tmp_path_factory: pytest.TempPathFactory,
    files: dict[bytes, bytes],
    way: list[bytes],
    reads: list[tuple[float, int]],
) -> None:
    root = os.fsencode(tmp_path_factory.mktemp("data"))
    deep = b"/".join([root, *way])
    os.makedirs(deep, exist_ok=True)
    for number, (name, content) in enumerate(files.items()):
        place = b"/".join([root if number % 2 else deep, name])
        if not os.path.exists(place):
            with open(place, "wb") as file:
                file.write(content)
            os.chmod(place, 0o755 if number % 3 == 0 else 0o644)
    expected = real_tar(root)
    archive = DataArchive(os.fsdecode(root))
    assert archive.length == len(expected)
    assert archive.digest() == hashlib.sha256(expected).hexdigest()
    for part, size in reads:
        offset = int(part * archive.length)
        assert archive.read_at(offset, size) == expected[offset : offset + size]


def test_it_unpacks_to_the_same_files_for_everybody(tmp_path: Path) -> None:
    files = {"a": b"1", "sub/b c": b"22", "sub/.hidden/__pycache__": b"", "é" * 60: b"long", "d" * 200: b"longer"}
    for name, content in files.items():
        place = tmp_path / "data" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    (tmp_path / "data" / "a").chmod(0o700)
    archive = DataArchive(tmp_path / "data")
    (tmp_path / "tar").write_bytes(archive.read_at(0, archive.length))
    umask = os.umask(0o077)
    try:
        unpack(tmp_path / "tar", tmp_path / "out", DATA_LIMITS, what="data", preamble=data_preamble(), for_all=True)
    finally:
        os.umask(umask)
    found = {str(p.relative_to(tmp_path / "out")): p for p in (tmp_path / "out").rglob("*") if p.is_file()}
    assert {name: path.read_bytes() for name, path in found.items()} == files
    assert {name: path.stat().st_mode & 0o777 for name, path in found.items()} == {
        name: 0o755 if name == "a" else 0o644 for name in files
    }
    assert all(p.stat().st_mode & 0o777 == 0o755 for p in (tmp_path / "out").rglob("*") if p.is_dir())


def test_a_state_folder_does_not_go_along(tmp_path: Path) -> None:
    for name in ("a", "b/x", ".windrow/windrow.db", ".windrow/logs/x"):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).touch()
    assert DataArchive(tmp_path / "data").file_count == 2


def test_one_file_is_an_archive_of_its_own_also_by_way_of_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"content")
    (tmp_path / "link.csv").symlink_to("elsewhere")
    archive = DataArchive(tmp_path / "link.csv")
    with tarfile.open(fileobj=io.BytesIO(archive.read_at(0, archive.length))) as tar:
        (member,) = tar.getmembers()
        assert (member.name, member.isreg(), member.size) == ("link.csv", True, 7)


def test_a_file_of_more_than_8_gib_has_its_length_in_a_further_header(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(9 << 30)
    archive = DataArchive(tmp_path / "large")
    info = tarfile.TarInfo("large")
    info.size = 9 << 30
    header = info.tobuf(tarfile.PAX_FORMAT)
    assert archive.read_at(len(data_preamble()), len(header) + 5) == header + bytes(5)
    assert archive.length >= len(header) + (9 << 30)


@pytest.mark.parametrize("change", ["content", "longer", "shorter", "gone", "pipe"])
def test_a_file_that_changes_meanwhile_is_named(tmp_path: Path, change: str) -> None:
    file = tmp_path / "data" / "b.txt"
    file.parent.mkdir()
    file.write_bytes(b"0123456789")
    (tmp_path / "data" / "a.txt").write_bytes(b"at rest")
    archive = DataArchive(tmp_path / "data")
    match change:
        case "content":
            file.write_bytes(b"9876543210")
            os.utime(file, ns=(1, 1))
        case "longer":
            file.write_bytes(b"01234567890")
        case "shorter":
            file.write_bytes(b"0")
        case _:
            file.unlink()
    if change == "pipe":
        os.mkfifo(file)
    assert archive.read_at(len(data_preamble()) + 512, 7) == b"at rest"
    with pytest.raises(ArchiveError, match=r"b\.txt was changed while it was read"):
        archive.digest()


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("../outside", "points outside the folder"),
        ("nowhere", "is broken"),
        ("sub", "which is not a file"),
        ("bad", "is broken"),
    ],
)
def test_links_that_lead_elsewhere_are_refused(tmp_path: Path, target: str, said: str) -> None:
    (tmp_path / "outside").touch()
    (tmp_path / "data" / "sub").mkdir(parents=True)
    (tmp_path / "data" / "sub" / "real").write_bytes(b"real")
    (tmp_path / "data" / "good").symlink_to("sub/real")
    assert DataArchive(tmp_path / "data").file_count == 2
    (tmp_path / "data" / "bad").symlink_to(target)
    with pytest.raises(ArchiveError, match=said):
        DataArchive(tmp_path / "data")


def test_special_files_and_too_much_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(b"x" * 2000)
    with pytest.raises(ArchiveError, match=r"more than 2 files, too many .* absolute path"):
        DataArchive(tmp_path, ArchiveLimits(2, 1 << 30))
    with pytest.raises(ArchiveError, match=r"GiB, too much .* absolute path"):
        DataArchive(tmp_path, ArchiveLimits(3, 5000))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ArchiveError, match="pipe is neither a file nor a folder"):
        DataArchive(tmp_path)


def test_many_files_need_little_memory(tmp_path: Path) -> None:
    for number in range(5000):
        (tmp_path / f"item{number:06d}").touch()
    tracemalloc.start()
    try:
        archive = DataArchive(tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert archive.file_count == 5000
    assert peak < 5000 * 250
