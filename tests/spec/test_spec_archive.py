"""Code archives: equal folders give equal digests, and nothing leaves the folder it is unpacked into."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import random
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec_workspace import unhurried
from windrow.common.archives import CODE_LIMITS, ArchiveError, ArchiveLimits, not_packed, unpack_code
from windrow.common.trees import walk
from windrow.errors import UsageError
from windrow.sdk.submission import pack_folder
from windrow.transfer.code_archive import CodeArchive, pack


def fill(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def names_in(archive: Path) -> list[str]:
    with tarfile.open(archive) as tar:
        return tar.getnames()


FILES = {"score.py": b"def run(x): ...", "pkg/__init__.py": b"", "pkg/z.py": b"z", "a-b.txt": b"x" * 5000}


def packed_into(folder: Path, archive: Path, **options: Any) -> CodeArchive:
    with archive.open("wb") as file:
        return pack(folder, file, **options)


def packed(folder: Path, files: dict[str, bytes] | None = None) -> tuple[Path, CodeArchive]:
    source = fill(folder / "src", FILES if files is None else files)
    return folder / "code.tar", packed_into(source, folder / "code.tar")


def test_an_archive_is_what_its_digest_says_and_unpacks_to_the_same_files(tmp_path: Path) -> None:
    archive, info = packed(tmp_path)
    content = archive.read_bytes()
    assert info == CodeArchive(hashlib.sha256(content).hexdigest(), len(content), 4, sum(map(len, FILES.values())))
    unpack_code(archive, tmp_path / "out")
    assert {
        str(p.relative_to(tmp_path / "out")): p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()
    } == FILES


def test_equal_folders_give_equal_archives_whatever_their_times_owners_and_order(tmp_path: Path) -> None:
    first = packed(tmp_path / "a")[1]
    order = list(FILES.items())
    random.Random(7).shuffle(order)
    fill(tmp_path / "b" / "src", dict(order))
    for path in (tmp_path / "b" / "src").rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(0o700 if path.is_dir() else 0o600)
    (tmp_path / "b" / "src" / "empty").mkdir()
    assert packed_into(tmp_path / "b" / "src", tmp_path / "other").digest == first.digest


def test_the_format_does_not_change_unnoticed(tmp_path: Path) -> None:
    # Equal on all machines: a run is continued by what its code folder packs to.
    assert packed(tmp_path)[1].digest == "71d7846b10b4e5e1602152870ad8340cca9f34c579f792e3be159d7d97e52409"


@pytest.mark.parametrize("change", ["content", "name", "mode"])
def test_another_folder_gives_another_digest(tmp_path: Path, change: str) -> None:
    archive, first = packed(tmp_path)
    script = tmp_path / "src" / "score.py"
    match change:
        case "content":
            script.write_bytes(b"def run(x): ..,")
        case "name":
            script.rename(script.with_name("scorf.py"))
        case "mode":
            script.chmod(0o755)
    assert packed_into(tmp_path / "src", archive).digest != first.digest


def test_the_x_bit_is_kept_and_nothing_else_of_the_mode(tmp_path: Path) -> None:
    fill(tmp_path / "src", {"tool.sh": b"", "data": b""})
    (tmp_path / "src" / "tool.sh").chmod(0o4777)
    (tmp_path / "src" / "data").chmod(0o666)
    packed_into(tmp_path / "src", tmp_path / "archive")
    unpack_code(tmp_path / "archive", tmp_path / "out")
    assert (tmp_path / "out" / "tool.sh").stat().st_mode & 0o7111 == 0o0111 & ~_umask()
    assert (tmp_path / "out" / "data").stat().st_mode & 0o7111 == 0


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_what_changes_by_itself_is_always_left_out(tmp_path: Path) -> None:
    noise = dict.fromkeys(
        (
            "state/windrow.db",
            "state/lock",
            ".git/config",
            "__pycache__/score.pyc",
            "pkg/__pycache__/z.pyc",
            ".windrow/windrow.db",
            "workspaceblobstore/data.csv",
            "old.pyc",
        ),
        b"x",
    )
    archive, _ = packed(tmp_path, FILES | noise)
    assert names_in(archive) == sorted(FILES)


def test_only_a_default_datastore_of_windrow_is_left_out(tmp_path: Path) -> None:
    archive, _ = packed(tmp_path, {"workspaceblobstore/data.csv": b"x", "pkg/workspaceblobstore/a": b"x"})
    assert names_in(archive) == ["pkg/workspaceblobstore/a", "workspaceblobstore/data.csv"]


@pytest.mark.parametrize(
    ("ignore", "left"),
    [
        ({".amlignore": b"data/\n*.bin\n!keep.bin\n"}, [".amlignore", "keep.bin", "score.py", "sub/deep.txt"]),
        ({".gitignore": b"/sub\n# comment\n\n"}, [".gitignore", "big.bin", "data/x.csv", "keep.bin", "score.py"]),
        ({".amlignore": b"data/\n", ".gitignore": b"*.py\n"},
         [".amlignore", ".gitignore", "big.bin", "keep.bin", "score.py", "sub/deep.txt"]),
        ({".gitignore": b"**/deep.*\n"}, [".gitignore", "big.bin", "data/x.csv", "keep.bin", "score.py"]),
    ],
)  # fmt: skip
def test_ignore_files_are_honoured_and_amlignore_comes_first(
    tmp_path: Path, ignore: dict[str, bytes], left: list[str]
) -> None:
    files = dict.fromkeys(("score.py", "big.bin", "keep.bin", "data/x.csv", "sub/deep.txt"), b"x")
    archive, _ = packed(tmp_path, files | ignore)
    assert names_in(archive) == left


def test_a_required_file_that_is_ignored_is_an_error(tmp_path: Path) -> None:
    fill(tmp_path / "src", {"score.py": b"", ".amlignore": b"*.py\n"})
    with pytest.raises(ArchiveError, match=r"score\.py is left out .* \.amlignore"):
        packed_into(tmp_path / "src", tmp_path / "archive", required=["score.py"])


def test_a_link_to_a_file_inside_is_followed(tmp_path: Path) -> None:
    fill(tmp_path / "src", FILES)
    (tmp_path / "src" / "linked.py").symlink_to("pkg/z.py")
    packed_into(tmp_path / "src", tmp_path / "archive")
    unpack_code(tmp_path / "archive", tmp_path / "out")
    linked = tmp_path / "out" / "linked.py"
    assert (linked.read_bytes(), linked.is_symlink()) == (b"z", False)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("../outside.py", "points outside the code folder"),
        ("nowhere", "is broken"),
        ("pkg", "not a file"),
        ("bad", "is broken"),
    ],
)
def test_other_links_are_errors_unless_they_are_ignored(tmp_path: Path, target: str, said: str) -> None:
    fill(tmp_path, {"outside.py": b""})
    fill(tmp_path / "src", FILES)
    (tmp_path / "src" / "bad").symlink_to(target)
    with pytest.raises(ArchiveError, match=said):
        packed_into(tmp_path / "src", tmp_path / "archive")
    fill(tmp_path / "src", {".amlignore": b"bad\n"})
    assert packed_into(tmp_path / "src", tmp_path / "archive").file_count == 5


def test_a_folder_that_is_itself_a_link_is_packed(tmp_path: Path) -> None:
    _, first = packed(tmp_path)
    (tmp_path / "link").symlink_to("src")
    assert packed_into(tmp_path / "link", tmp_path / "archive").digest == first.digest


def test_pipes_and_missing_folders_are_errors(tmp_path: Path) -> None:
    fill(tmp_path / "src", {"score.py": b""})
    os.mkfifo(tmp_path / "src" / "pipe")
    with pytest.raises(ArchiveError, match="neither a file nor a folder"):
        packed_into(tmp_path / "src", tmp_path / "archive")
    with pytest.raises(ArchiveError, match="does not exist"):
        packed_into(tmp_path / "none", tmp_path / "archive")


def test_limits_hold_when_packing(tmp_path: Path) -> None:
    fill(tmp_path / "src", FILES)
    with pytest.raises(ArchiveError, match="more than 3 files"):
        packed_into(tmp_path / "src", tmp_path / "archive", limits=CODE_LIMITS._replace(files_max=3))
    with pytest.raises(ArchiveError, match="give data as inputs"):
        packed_into(tmp_path / "src", tmp_path / "archive", limits=CODE_LIMITS._replace(bytes_max=100))


names = st.binary(min_size=1, max_size=120).filter(
    lambda raw: (
        not {b"/", b"\0"} & {raw[i : i + 1] for i in range(len(raw))}
        and raw not in (b".", b"..")
        and raw[-4:] != b".pyc"
    )
)


@given(st.dictionaries(names, st.binary(max_size=2000), max_size=6), st.lists(names, max_size=3))
@settings(unhurried, max_examples=60)
def test_any_names_and_contents_survive(
    tmp_path_factory: pytest.TempPathFactory, files: dict[bytes, bytes], way: list[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    source = os.fsencode(folder) + b"/src"
    deep = b"/".join([source, *way])
    os.makedirs(deep)  # noqa: PTH103
    for name, content in files.items():
        if name in (b".amlignore", b".gitignore"):
            continue
        with open(deep + b"/" + name, "wb") as file:
            file.write(content)
    packed_into(folder / "src", folder / "archive")
    unpack_code(folder / "archive", folder / "out")
    out = os.fsencode(folder) + b"/out"
    for name, content in files.items():
        if name not in (b".amlignore", b".gitignore"):
            with open(b"/".join([out, *way, name]), "rb") as file:
                assert file.read() == content


def archive_of(path: Path, build: Callable[[tarfile.TarFile], None]) -> Path:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        build(tar)
    return path


def member(name: str, content: bytes = b"x", **fields: object) -> Callable[[tarfile.TarFile], None]:
    def build(tar: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        for field, value in fields.items():
            setattr(info, field, value)
        tar.addfile(info, io.BytesIO(content) if info.isreg() else None)

    return build


def both(*builds: Callable[[tarfile.TarFile], None]) -> Callable[[tarfile.TarFile], None]:
    def build(tar: tarfile.TarFile) -> None:
        for one in builds:
            one(tar)

    return build


@pytest.mark.parametrize(
    "build",
    [
        member("/etc/evil"),
        member("../evil"),
        member("a/../../evil"),
        member("./evil"),
        member("a//evil"),
        member("."),
        member("link", type=tarfile.SYMTYPE, linkname="../evil"),
        member("link", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
        member("folder", type=tarfile.DIRTYPE),
        member("device", type=tarfile.CHRTYPE),
        member("pipe", type=tarfile.FIFOTYPE),
        both(member("a"), member("a")),
        both(member("a"), member("a/b")),
        both(member("a/b"), member("a")),
        both(member("link", type=tarfile.SYMTYPE, linkname=".."), member("link/evil")),
    ],
)
def test_an_archive_with_anything_but_files_below_the_folder_is_refused(
    tmp_path: Path, build: Callable[[tarfile.TarFile], None]
) -> None:
    (tmp_path / "inner").mkdir()
    archive = archive_of(tmp_path / "bad.tar.gz", build)
    with pytest.raises(ArchiveError, match="is refused"):
        unpack_code(archive, tmp_path / "inner" / "out")
    assert not list(tmp_path.rglob("evil"))
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))


def test_limits_hold_when_unpacking(tmp_path: Path) -> None:
    archive, _ = packed(tmp_path)
    with pytest.raises(ArchiveError, match="more than 3 files"):
        unpack_code(archive, tmp_path / "few", CODE_LIMITS._replace(files_max=3))
    with pytest.raises(ArchiveError, match="100 bytes"):
        unpack_code(archive, tmp_path / "small", CODE_LIMITS._replace(bytes_max=100))


def test_paths_that_need_more_folders_than_there_may_be_are_refused(tmp_path: Path) -> None:
    """Each path of 4,000 bytes can name two thousand: a small archive would fill a disk."""
    members = [member(f"{number}/" + "a/" * 200 + "f") for number in range(25)]
    archive = archive_of(tmp_path / "deep", both(*members))
    limits = CODE_LIMITS._replace(files_max=1000)
    with pytest.raises(ArchiveError, match=r"more than 4,000 folders\. Nest them less deep"):
        unpack_code(archive, tmp_path / "out", limits)
    assert sum(1 for _ in walk(tmp_path / "out")) == 1 + limits.folders_max
    unpack_code(archive, tmp_path / "all", CODE_LIMITS)


def test_as_many_folders_as_there_may_be_are_unpacked(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "deep", both(member("a/b/c/d/f"), member("e/f"), member("a/b/g")))
    unpack_code(archive, tmp_path / "out", ArchiveLimits(files_max=3, bytes_max=20_000))
    deeper = archive_of(tmp_path / "deeper", member("a/b/c/d/e/f"))
    with pytest.raises(ArchiveError, match="more than 4 folders"):
        unpack_code(deeper, tmp_path / "none", ArchiveLimits(files_max=1, bytes_max=20_000))


def test_a_bomb_in_the_headers_is_refused(tmp_path: Path) -> None:
    pax = member("x", b"", pax_headers={"comment": "0" * 20_000_000})
    archive = archive_of(tmp_path / "bomb", pax)
    with pytest.raises(ArchiveError, match="larger than Windrow"):
        unpack_code(archive, tmp_path / "out", ArchiveLimits(files_max=1, bytes_max=1_000_000))


@pytest.mark.parametrize("damage", ["truncated", "header", "compressed", "no tar", "empty"])
def test_a_damaged_archive_is_refused(tmp_path: Path, damage: str) -> None:
    archive, _ = packed(tmp_path, FILES | {"noise": random.Random(1).randbytes(50_000)})
    content = archive.read_bytes()
    match damage:
        case "truncated":
            content = content[: len(content) // 2]
        case "header":
            content = b"PK" + content[2:]
        case "compressed":
            content = gzip.compress(content)
        case "no tar":
            content = b"hello" * 1000
        case "empty":
            content = b""
    archive.write_bytes(content)
    with pytest.raises(ArchiveError):
        unpack_code(archive, tmp_path / "out")


def test_code_is_only_unpacked_into_a_fresh_folder(tmp_path: Path) -> None:
    archive, _ = packed(tmp_path)
    fill(tmp_path / "out", {"mine": b""})
    with pytest.raises(ArchiveError, match="not empty"):
        unpack_code(archive, tmp_path / "out")


def test_a_folder_that_cannot_be_packed_says_what_to_do(request: pytest.FixtureRequest) -> None:
    """Root becomes another user, who may not read all of it."""
    folder = Path(tempfile.mkdtemp())
    request.addfinalizer(lambda: shutil.rmtree(folder))
    folder.chmod(0o755)
    shut = folder / "shut file.py"
    shut.touch(0o000)
    if os.geteuid() == 0:
        os.seteuid(65534)
        request.addfinalizer(lambda: os.seteuid(0))
    with tempfile.TemporaryFile() as archive, pytest.raises(UsageError) as refused:
        pack_folder(str(folder), archive)
    assert str(refused.value) == (
        f"The code folder {folder} cannot be packed: {shut}: Permission denied. Let your user read it "
        f"(chmod u+rX '{shut}'), or list it in .amlignore."
    )
    missing = str(folder / "missing")
    with tempfile.TemporaryFile() as archive, pytest.raises(UsageError, match="name one that exists"):
        pack_folder(missing, archive)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOENT, "Something removes it meanwhile: wait for the end of that, and try again, or list"),
        (errno.ENOSPC, "Make room on that disk, or set TMPDIR"),
        (errno.EIO, "Check that disk, or list it in .amlignore."),
    ],
)
def test_whatever_keeps_a_file_from_being_packed_the_message_says_what_to_do(number: int, words: str) -> None:
    told = not_packed("/code", OSError(number, os.strerror(number), "/code/a.py"))
    assert told.startswith(f"the code folder /code cannot be packed: /code/a.py: {os.strerror(number)}. ")
    assert words in told
