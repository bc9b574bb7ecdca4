"""docker/backup.sh: what is brought back is whole, or nothing has changed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from opened_store import open_store
from windrow_master.files.errors import StateUnusable
from windrow_master.files.state_files import StateFiles
from windrow_master.state_folder.opening import StateFolder

SCRIPT = Path(__file__).parents[2] / "docker" / "backup.sh"


def backup(folder: Path, *options: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """The script, whose volumes are in this folder."""
    places = {"cd /backup": f"cd {shlex.quote(str(folder))}", "-C / ": f"-C {shlex.quote(str(SCRIPT.parent))} "}
    script = SCRIPT.read_text()
    for here, there in places.items():
        script = script.replace(here, there)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = ["sh", "-c", script, "backup", *options]
    return subprocess.run(command, input=given, capture_output=True, env=environment, check=False)


def volumes(folder: Path, text: str, more: int = 0) -> None:
    open_store(folder / "state").close()
    for name in ("authority/key", "state/jobs/one"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}: {text}")
    if more:
        (folder / "state" / "big").write_bytes(bytes(more))


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the database, which differs in its layout, and what keeps others out."""
    unlike = ("windrow.db", "windrow.db-wal", "windrow.db-shm", "backup.lock")
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name not in unlike]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture
def made(tmp_path: Path) -> bytes:
    """A backup, larger than a small disk."""
    folder = tmp_path / "made"
    volumes(folder, "old", 30 << 20)
    done = backup(folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_backup_takes_the_place_of_all_that_was_there(tmp_path: Path, made: bytes) -> None:
    volumes(tmp_path / "here", "new")
    (tmp_path / "here" / "state" / "later").write_text("later")
    done = backup(tmp_path / "here", "--restore", given=made)
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "here") == contents(tmp_path / "made")
    StateFolder.open(tmp_path / "here" / "state", 0).close()


def test_a_backup_is_made_while_the_master_runs_and_restored_only_when_it_does_not(tmp_path: Path) -> None:
    volumes(tmp_path / "here", "here")
    master = StateFolder.open(tmp_path / "here" / "state", 0)
    made = backup(tmp_path / "here")
    assert made.returncode == 0, made.stderr
    done = backup(tmp_path / "here", "--restore", given=made.stdout)
    assert done.returncode == 1 and b"the master is running" in done.stderr
    master.close()
    assert backup(tmp_path / "here", "--restore", given=made.stdout).returncode == 0
    opened = StateFolder.open(tmp_path / "here" / "state", 0)
    assert opened.store.incarnation == 3
    opened.close()


def test_a_backup_that_fails_leaves_nothing_and_one_that_was_killed_no_rest(tmp_path: Path) -> None:
    volumes(tmp_path / "here", "here")
    left = tmp_path / "here" / "state" / "..saved.partial-0abc" / "state"
    left.mkdir(parents=True)
    made = backup(tmp_path / "here")
    assert made.returncode == 0, made.stderr
    assert not list((tmp_path / "here" / "state").glob(".*"))
    database = tmp_path / "here" / "state" / "windrow.db"
    database.write_bytes(b"SQLite format 3\0" + bytes(5000))
    made = backup(tmp_path / "here")
    assert made.returncode == 1 and b"nothing was saved" in made.stderr and not made.stdout
    assert not list((tmp_path / "here" / "state").glob(".*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to others")
def test_owners_are_kept(tmp_path: Path) -> None:
    volumes(tmp_path / "here", "here")
    for path in (tmp_path / "here" / "state", *(tmp_path / "here" / "state").rglob("*")):
        os.chown(path, 1234, 1234)
    made = backup(tmp_path / "here")
    assert made.returncode == 0, made.stderr
    assert backup(tmp_path / "here", "--restore", given=made.stdout).returncode == 0
    found = {path.name: path.stat().st_uid for path in (tmp_path / "here" / "state").rglob("*")}
    assert set(found.values()) == {1234} and {"windrow.db", "jobs", "one"} <= found.keys()


@pytest.mark.parametrize("left", [0, 700, 5000, -11_000, -20_000])
def test_a_backup_that_is_cut_changes_nothing(tmp_path: Path, made: bytes, left: int) -> None:
    volumes(tmp_path / "here", "new")
    before = contents(tmp_path / "here")
    done = backup(tmp_path / "here", "--restore", given=made[:left])
    assert done.returncode == 1 and b"nothing was changed" in done.stderr, done.stderr
    assert contents(tmp_path / "here") == before


def test_a_disk_that_is_full_changes_nothing_and_is_named(small_disk: Path, made: bytes) -> None:
    volumes(small_disk, "new")
    before = contents(small_disk)
    done = backup(small_disk, "--restore", given=made)
    assert done.returncode == 1 and b"nothing was changed" in done.stderr, done.stderr
    assert b"a full disk" in done.stderr and b"No space left on device" in done.stderr, done.stderr
    assert contents(small_disk) == before


def test_no_master_begins_over_what_was_not_brought_back_to_its_end(tmp_path: Path) -> None:
    state = tmp_path / "state"
    StateFolder.open(state, 0).close()
    StateFiles(state).unfinished_restore.mkdir()
    with pytest.raises(StateUnusable, match="Restore it again"):
        StateFolder.open(state, 0)
    StateFiles(state).unfinished_restore.rmdir()
    StateFolder.open(state, 0).close()
