"""Each family of whole files after a loss of power, cut at every sync and every change of a name: the file that was
there before, or the new one; and once the call has returned, the new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from power_cut import PowerCut, PowerLost
from windrow.common.beneath import Folder
from windrow.common.durable import put_in_place, write_whole
from windrow.common.notes import NoteDamaged, read_note, write_note
from windrow_agent.environments.cache import Cache
from windrow_master.core.ids import StepId
from windrow_master.files.artifacts import ArtifactFolder
from windrow_master.files.state_files import StateFiles
from windrow_master.files.upload_lists import UploadedFile, read_list
from windrow_master.reports.failed_items import copy_list
from windrow_master.reuse.notes import ReuseNote, ReuseNotes
from windrow_master.setup.owned_files import write_secret
from windrow_master.uploaded_data import UploadedData

OLD, NEW = b"old" * 1000, b"new" * 2000
ARCHIVE = b"archive" * 3000
DIGEST = hashlib.sha256(ARCHIVE).hexdigest()


class Family(NamedTuple):
    """Files of one kind: how they come to be, and what is read of them (None: nothing is there)."""

    prepare: Callable[[Path], object]
    write: Callable[[Path], object]
    read: Callable[[Path], Any]


def test_a_link_in_the_way_of_a_whole_file_is_not_followed(tmp_path: Path) -> None:
    """Somebody else may write into that folder, such as a package into its environment."""
    victim, target = tmp_path / "victim", tmp_path / "there" / "file"
    target.parent.mkdir()
    victim.write_bytes(OLD)
    for name in ("given", ".file.windrow-partial"):
        (target.parent / name).symlink_to(victim)
    write_whole(target, NEW, partial=target.parent / "given")
    assert target.read_bytes() == NEW
    write_whole(target, OLD[:7])
    assert (target.read_bytes(), victim.read_bytes()) == (OLD[:7], OLD)
    assert [path.name for path in target.parent.iterdir()] == ["file"]


def upload(folder: Path) -> None:
    artifacts = ArtifactFolder(StateFiles(folder).artifacts)
    with open(artifacts.begin(DIGEST, len(ARCHIVE), 0), "wb") as file:
        file.write(ARCHIVE)
    artifacts.finish(DIGEST, len(ARCHIVE))


def uploaded(folder: Path) -> bytes | None:
    path = ArtifactFolder(StateFiles(folder).artifacts).path(DIGEST)
    return None if path is None else path.read_bytes()


def reused(folder: Path, job_id: str) -> None:
    ReuseNotes(folder).add("key", ReuseNote(job_id, 1, {}, {}, "{}"))


def list_upload(folder: Path) -> None:
    data = UploadedData(ArtifactFolder(folder / "artifacts"), None, folder / "lists")
    with data._file_list(DIGEST) as on_file:
        for number in range(50):
            on_file(b"%d" % number, bytes(32), Path(__file__).stat())


def listed(folder: Path) -> list[UploadedFile] | None:
    path = folder / "lists" / DIGEST
    return list(read_list(path)) if path.exists() else None


def mark(folder: Path) -> None:
    cache = Cache(folder)
    (folder / DIGEST).mkdir(exist_ok=True)
    cache.finish(DIGEST, {"python": "3.11"})


def content_of(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def note_of(path: Path) -> Any:
    try:
        return read_note(path)
    except NoteDamaged:
        return "damaged"


def copied(folder: Path, content: bytes) -> None:
    (folder / "source").write_bytes(content)
    with Folder.open(folder) as opened:
        copy_list(folder / "source", opened, "target", StepId(1), before=lambda status: None)


FAMILIES = {
    "a whole file": Family(
        lambda folder: write_whole(folder / "file", OLD),
        lambda folder: write_whole(folder / "file", NEW),
        lambda folder: content_of(folder / "file"),
    ),
    "a note": Family(
        lambda folder: write_note(folder / "note", {"x": "old"}, durable=True),
        lambda folder: write_note(folder / "note", {"x": "new" * 500}, durable=True),
        lambda folder: note_of(folder / "note"),
    ),
    "a note for reuse": Family(
        lambda folder: reused(folder / "made", "one"),
        lambda folder: reused(folder / "made", "two"),
        lambda folder: note_of(folder / "made" / "key.json"),
    ),
    "an archive": Family(lambda folder: StateFiles(folder).artifacts.mkdir(), upload, uploaded),
    "a list of an upload": Family(lambda folder: (folder / "lists").mkdir(), list_upload, listed),
    "the note of an environment": Family(
        lambda folder: (folder / DIGEST).mkdir(), mark, lambda folder: content_of(Cache(folder).note(DIGEST))
    ),
    "a secret": Family(
        lambda folder: write_secret(folder / "secret", OLD, None),
        lambda folder: write_secret(folder / "secret", NEW, None),
        lambda folder: content_of(folder / "secret"),
    ),
    "a copied list of failed items": Family(
        lambda folder: copied(folder, OLD),
        lambda folder: copied(folder, NEW),
        lambda folder: content_of(folder / "target"),
    ),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_power_cut_leaves_the_old_file_or_the_new_one(tmp_path: Path, name: str) -> None:
    family = FAMILIES[name]
    (tmp_path / "sample").mkdir()
    family.prepare(tmp_path / "sample")
    old = family.read(tmp_path / "sample")
    family.write(tmp_path / "sample")
    new = family.read(tmp_path / "sample")
    assert new not in (None, old)
    moments = 0
    for moment in _until_it_returns():
        for seed in range(5):
            folder = tmp_path / f"{moment}-{seed}"
            folder.mkdir()
            family.prepare(folder)
            disk = PowerCut(folder, seed)
            returned = False
            with contextlib.suppress(PowerLost), disk.armed(moment):
                family.write(folder)
                returned = True
            disk.damage()
            found = family.read(folder)
            assert found == new if returned else found in (old, new), f"cut before {moment}, seed {seed}"
            shutil.rmtree(folder)
        moments += 1
        if returned:
            break
    assert moments >= 4, "a sync of the file, its name, a sync of its folder, and the return"


def _until_it_returns() -> Iterator[int]:
    yield from range(100)


def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "file"
    write_whole(target, OLD)
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "folder", NEW)
    with pytest.raises(FileNotFoundError):
        put_in_place(tmp_path / "missing", target)
    assert target.read_bytes() == OLD
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
