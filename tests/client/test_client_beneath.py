"""Files below a folder that scripts can write: no link is followed, whatever the kernel can do."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from windrow.common import beneath
from windrow.common.beneath import Folder, LinkRefused, NotAFile

DEADLINE_S = 60.0


@pytest.fixture(params=["openat2", "part by part"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of scripts beside a secret, on a kernel that has openat2 and on one that does not."""
    if request.param == "part by part":
        monkeypatch.setattr(beneath, "_openat2", lambda at, name, flags: None)
    there = tmp_path.resolve()
    (there / "secret").mkdir()
    (there / "secret" / "token").write_text("secret")
    (there / "place" / "sub" / "deep").mkdir(parents=True)
    (there / "place" / "sub" / "deep" / "file").write_text("mine")
    yield there / "place"
    assert [path.name for path in (there / "secret").iterdir()] == ["token"]
    assert (there / "secret" / "token").read_text() == "secret"


def content(folder: Folder, name: str) -> str:
    with os.fdopen(folder.read(name)) as file:
        return file.read()


def test_what_is_there_is_read_made_renamed_and_removed(place: Path) -> None:
    with Folder.open(place) as folder:
        assert content(folder, "sub/deep/file") == "mine"
        os.close(folder.create("sub/new", 0o640))
        assert folder.has_file("sub/new") and not folder.has_file("sub") and not folder.has_file("none")
        folder.rename("sub/new", "other")
        folder.make("made")
        folder.make("made")
        folder.sync()
        assert folder.files() == [("other", 0), ("sub/deep/file", 4)]
        folder.remove("other")
        folder.remove("other")
        shutil.rmtree(place / "sub")
        assert folder.names() == ["made"]
        assert folder.real_path() == str(place)


@pytest.mark.parametrize("name", ["", ".", "..", "a/../../secret", "/etc/passwd", "a//b", "a\0b"])
def test_a_name_that_leads_elsewhere_is_an_error(place: Path, name: str) -> None:
    with Folder.open(place) as folder, pytest.raises(ValueError, match="is not a name below a folder"):
        folder.read(name)


def test_no_link_is_on_the_way_to_a_folder(place: Path) -> None:
    (place / "link").symlink_to(place.parent / "secret")
    (place.parent / "way").symlink_to(place)
    for path, link in ((place / "link", place / "link"), (place.parent / "way" / "sub", place.parent / "way")):
        with pytest.raises(LinkRefused) as refused:
            Folder.open(path)
        assert str(refused.value).startswith(f"{link} is a link, and Windrow follows no link where scripts can write.")


DEEDS: dict[str, Callable[[Folder, str], object]] = {
    "folder": lambda folder, name: folder.folder(name),
    "make": lambda folder, name: folder.make(f"{name}/made"),
    "create": lambda folder, name: folder.create(f"{name}/made"),
    "read": lambda folder, name: folder.read(f"{name}/token"),
    "status": lambda folder, name: folder.status(f"{name}/token"),
    "rename to": lambda folder, name: folder.rename("file", f"{name}/made"),
    "rename from": lambda folder, name: folder.rename(f"{name}/token", "made"),
    "remove": lambda folder, name: folder.remove(f"{name}/token"),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_no_link_is_on_the_way_below_a_folder(place: Path, deed: str) -> None:
    (place / "file").touch()
    (place / "sub" / "link").symlink_to(place.parent / "secret")
    with Folder.open(place) as folder, pytest.raises(LinkRefused, match="place/sub/link is a link"):
        DEEDS[deed](folder, "sub/link")


def test_a_link_in_the_last_place_is_not_followed(place: Path) -> None:
    link = place / "link"
    link.symlink_to(place.parent / "secret" / "token")
    with Folder.open(place) as folder:
        with pytest.raises(LinkRefused):
            folder.read("link")
        with pytest.raises(FileExistsError):
            folder.create("link")
        assert not folder.has_file("link")
        assert folder.files() == [("sub/deep/file", 4)]
        folder.rename("sub/deep/file", "link")
        assert link.read_text() == "mine" and not link.is_symlink()
        link.unlink()
        link.symlink_to(place.parent / "secret")
        with pytest.raises(LinkRefused):
            folder.make("link")
        folder.remove("link")
        assert not os.path.lexists(link)
        (place / "sub" / "link").symlink_to(place.parent / "secret")
        shutil.rmtree(place / "sub")


def test_what_is_no_file_is_neither_read_nor_waited_for(place: Path) -> None:
    os.mkfifo(place / "pipe")
    with Folder.open(place) as folder:
        for name in ("pipe", "sub"):
            with pytest.raises(NotAFile, match=f"place/{name} is not a plain file"):
                folder.read(name)
        assert ("pipe", 0) not in folder.files()


@pytest.mark.skipif(os.geteuid() != 0, reason="making a device needs root")
def test_a_device_is_not_opened(place: Path) -> None:
    try:
        os.mknod(place / "zero", 0o20666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("making a device needs more rights")
    with Folder.open(place) as folder, pytest.raises(NotAFile):
        folder.read("zero")


def test_names_and_depths_of_all_kinds(place: Path) -> None:
    # Deeper than any path can name.
    deep = Folder.open(place)
    for _ in range(30):
        with deep:
            deep.make("ä" * 100)
            deep = deep.folder("ä" * 100)
    with deep:
        os.close(deep.create("deep"))
    names = ["-rf", " ", "a\nb", "\udcff", ".hidden"]
    for name in names:
        (place / name).write_text("x")
    with Folder.open(place) as folder:
        below = "/".join(["ä" * 100] * 30 + ["deep"])
        assert folder.files() == sorted([("sub/deep/file", 4), (below, 0), *((name, 1) for name in names)])
        assert content(folder, below) == ""
        assert content(folder, "\udcff") == "x"


def test_a_folder_knows_whether_it_is_still_in_its_place(place: Path) -> None:
    with Folder.open(place) as folder:
        assert folder.is_in_place()
        place.rename(place.with_name("aside"))
        with pytest.raises(FileNotFoundError):
            folder.is_in_place()
        place.symlink_to("aside")
        with pytest.raises(LinkRefused):
            folder.is_in_place()
        place.unlink()
        place.mkdir()
        assert not folder.is_in_place()


def test_a_kernel_or_a_filter_without_openat2_is_no_obstacle(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Libc:
        """As a filter of system calls makes it."""

        @staticmethod
        def syscall(*_: object) -> int:
            return -1

    monkeypatch.setattr(beneath.ctypes, "CDLL", lambda *_, **__: Libc)
    for number in (errno.ENOSYS, errno.EPERM):
        monkeypatch.setattr(beneath.ctypes, "get_errno", lambda number=number: number)
        with Folder.open(place) as folder:
            assert content(folder, "sub/deep/file") == "mine"


def test_a_folder_that_is_swapped_for_a_link_all_the_time_never_leads_to_the_secret(place: Path) -> None:
    sub, aside, stop = place / "sub", place / "aside", threading.Event()
    (sub / "token").write_text("mine")

    def swap() -> None:
        while not stop.is_set():
            sub.rename(aside)
            sub.symlink_to(place.parent / "secret")
            sub.unlink()
            aside.rename(sub)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        found = set()
        with Folder.open(place) as folder:
            for number in range(3000):
                with contextlib.suppress(OSError):
                    found.add(content(folder, "sub/token"))
                with contextlib.suppress(OSError):
                    os.close(folder.create(f"sub/made{number}"))
                    folder.remove(f"sub/made{number}")
    finally:
        stop.set()
        swapping.join(DEADLINE_S)
    assert found <= {"mine"}
