"""Backups of a state folder: made while a master commits, verified, and brought back whole or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from master_bench import MasterBench, drive
from opened_store import open_store
from windrow.common.beneath import Folder, LinkRefused
from windrow.common.notes import read_note, write_note
from windrow.rpc.v1 import job_service_pb2 as pb
from windrow_master.backup import making
from windrow_master.backup.contents import BackupError, BackupFiles, entries_of
from windrow_master.backup.making import make_backup
from windrow_master.backup.restoring import restore_backup
from windrow_master.core import commands
from windrow_master.core.ids import JobKey, LeaseId, StepId
from windrow_master.core.records import (
    PLAN_RECORD,
    AttemptRow,
    Dirty,
    JobRow,
    OutcomeRow,
    PlannedRows,
    RowBlock,
    StepRow,
)
from windrow_master.core.states import AttemptState, JobState, MiniBatchState, StepState
from windrow_master.files.backup_lock import BackupRuns, backing_up, deleting
from windrow_master.files.errors import StateFolderInUse, StateUnusable
from windrow_master.files.state_files import StateFiles
from windrow_master.salvage.__main__ import main as check_state
from windrow_master.state_folder.opening import StateFolder
from windrow_master.store.errors import DatabaseDamaged
from windrow_master.store.records import ReopenedJob, Reopening, RowRange, SegmentRow

COUNT = 2_000
STEP = StepId(1)
DOCUMENT = b'{"steps": [{"name": "score"}]}'


def row_of(mini_batch: int) -> bytes:
    return b"%d,%s\n" % (mini_batch, b"x" * (mini_batch * 37 % 200))


class Working:
    """A store whose mini-batches succeed one after another: rows into a segment, synced, then the commit."""

    def __init__(self, folder: Path) -> None:
        self.files = StateFiles(folder)
        self.store = open_store(folder)
        self.acknowledged = 0
        self._offset = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        job = JobRow(
            JobKey(1), "job", "r", JobState.RUNNING, 1, 1, "default", 0, 1, "d", DOCUMENT, "", b"[]", 1.0, None
        )  # fmt: skip
        step = StepRow(STEP, JobKey(1), 0, "score", StepState.RUNNING, "", b"{}", None, None, b"{}", None, 1.0, None)
        records = b"".join(PLAN_RECORD.pack(number, 1, 0, 1, 0) for number in range(COUNT))
        self.store.commit(Dirty(jobs=[job], steps=[step], planned=[PlannedRows(STEP, 0, 1, records)]), [], [])
        self._segment = self.files.step("job", 1).segments / "1-1.rows"
        self._segment.parent.mkdir(parents=True)

    def one(self) -> None:
        number = self.acknowledged
        rows = row_of(number)
        with self._segment.open("ab") as file:
            file.write(rows)
            file.flush()
            os.fdatasync(file.fileno())
        lease, segment = LeaseId(self.store.lease_prefix << 32 | number + 1), self.store.incarnation << 32 | 1
        dirty = Dirty(
            outcomes=[OutcomeRow(STEP, number, MiniBatchState.SUCCEEDED, 1, 1, 1, lease, 0, 1)],
            attempts=[AttemptRow(lease, STEP, number, 1, "node", "i", 0, AttemptState.SUCCEEDED)],
            row_blocks=[RowBlock("job", STEP, b"", "", len(rows), zlib.crc32(rows))],
        )
        where = RowRange(segment, self._offset, len(rows), zlib.crc32(rows))
        self._offset += len(rows)
        self.store.commit(dirty, [where], [SegmentRow(segment, STEP, "1-1.rows", 1, 0, self._offset)])
        self.acknowledged += 1

    def end(self) -> None:
        """The job ends as failed."""
        row = self.store.reader().job_by_id("job")
        assert row is not None
        self.store.commit(Dirty(jobs=[row._replace(state=JobState.FAILED, end_time=2.0)]), [], [])

    def _work(self) -> None:
        while self.acknowledged < COUNT and not self._stop.is_set():
            self.one()

    def __enter__(self) -> Working:
        self._lock = self.files.lock.open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.store.close()
        self._lock.close()


def saved(folder: Path, rows: int = 1) -> Path:
    """A backup of a state with some committed rows, which is in the folder `state`."""
    working = Working(folder / "state")
    for _ in range(rows):
        working.one()
    working.store.close()
    make_backup(folder / "state", folder / "backup")
    return folder / "backup"


def rows_in(state: Path) -> list[bytes]:
    """The committed rows of a state folder, each verified."""
    store = open_store(state)
    found = []
    try:
        segment = (StateFiles(state).step("job", 1).segments / "1-1.rows").read_bytes()
        for page in store.reader().ranges_of(STEP):
            for where in page:
                rows = segment[where.offset : where.offset + where.length]
                assert zlib.crc32(rows) == where.crc32
                found.append(rows)
    finally:
        store.close()
    return found


def test_what_was_acknowledged_before_a_backup_is_in_it(tmp_path: Path) -> None:
    with Working(tmp_path / "state") as working:
        for number in range(3):
            before = working.acknowledged
            backup = tmp_path / "backups" / str(number)
            note = make_backup(tmp_path / "state", backup)
            after = working.acknowledged
            restored = tmp_path / f"restored-{number}"
            assert restore_backup(backup, restored) == note
            rows = rows_in(restored)
            # The one that is being acknowledged at the moment may be there, too.
            assert before <= len(rows) <= after + 1
            assert rows == [row_of(at) for at in range(len(rows))]
    assert sorted(path.name for path in (tmp_path / "backups").iterdir()) == ["0", "1", "2"]


def test_a_master_starts_over_what_was_restored_and_its_numbers_go_on(tmp_path: Path) -> None:
    backup = saved(tmp_path)
    restore_backup(backup, tmp_path / "restored")
    opened = StateFolder.open(tmp_path / "restored", 0)
    assert opened.store.incarnation == 2
    opened.close()
    left_out = {"lock", "reserve", "backup.lock", "windrow.db-wal", "windrow.db-shm"}
    assert not {path.name for path in BackupFiles(backup).state.iterdir()} & left_out


def cut_short(folder: Path) -> Path:
    """A state folder as after a kill of its master, whose log has lost its end since."""
    working = Working(folder / "whole")
    for _ in range(20):
        working.one()
    state = Path(shutil.copytree(folder / "whole", folder / "state"))
    working.store.close()
    log = state / "windrow.db-wal"
    os.truncate(log, log.stat().st_size // 2)
    return state


def test_no_backup_is_made_of_a_database_without_its_last_commits(tmp_path: Path) -> None:
    """Nor does the attempt make it pass for a sound one."""
    state = cut_short(tmp_path)
    for _ in range(2):
        with pytest.raises(DatabaseDamaged, match="committed pages, where"):
            make_backup(state, tmp_path / "backup")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state", "whole"]


def test_a_check_leaves_the_signs_of_damage(tmp_path: Path) -> None:
    """A master says to run it: what it finds, the next check and the next master have to find, too."""
    state = cut_short(tmp_path)
    for _ in range(2):
        found = check_state(["check", str(state)])["damage"]
        assert any("committed pages, where" in what for _, what in found), found
    with pytest.raises(DatabaseDamaged, match="committed pages, where"):
        StateFolder.open(state, 0)


def test_links_and_modes_are_kept_and_other_files_left_out(tmp_path: Path) -> None:
    Working(tmp_path / "state").store.close()
    output = StateFiles(tmp_path / "state").outputs / "job" / "rows"
    output.mkdir(parents=True)
    (output / "run.sh").write_text("x")
    (output / "run.sh").chmod(0o750)
    (output / "link").symlink_to("/nowhere")
    os.mkfifo(output / "pipe")
    make_backup(tmp_path / "state", tmp_path / "backup")
    restore_backup(tmp_path / "backup", tmp_path / "restored")
    found = tmp_path / "restored" / "outputs" / "job" / "rows"
    assert (found / "run.sh").stat().st_mode & 0o777 == 0o750
    assert str((found / "link").readlink()) == "/nowhere"
    assert sorted(path.name for path in found.iterdir()) == ["link", "run.sh"]


def test_a_link_that_a_script_lays_while_a_backup_is_made_leads_to_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script swaps a folder of its output between the moment at which it is listed and that of the copy."""
    Working(tmp_path / "state").store.close()
    output = StateFiles(tmp_path / "state").outputs / "job" / "rows"
    output.mkdir(parents=True)
    (output / "file").write_text("mine")
    secret = tmp_path / "elsewhere"
    secret.mkdir()
    (secret / "file").write_text("the secret")

    def swapped(*given: Any) -> Iterator[str]:
        for name in entries_of(*given):
            if name.endswith("rows/file"):
                output.rename(tmp_path / "aside")
                output.symlink_to(secret)
            yield name

    monkeypatch.setattr(making, "entries_of", swapped)
    note = make_backup(tmp_path / "state", tmp_path / "backup")
    assert output.is_symlink(), "the script has had its turn"
    assert not [name for name in note.files if name.endswith("rows/file")]
    files = (path for path in BackupFiles(tmp_path / "backup").state.rglob("*") if path.is_file())
    assert not [path for path in files if b"the secret" in path.read_bytes()]


@pytest.mark.parametrize("how", ["upwards", "absolute", "link"])
def test_a_hostile_backup_writes_nothing_beside_the_state_folder(tmp_path: Path, how: str) -> None:
    """Whoever restores it has checked the path of the new folder, and nothing else."""
    files = BackupFiles(saved(tmp_path, 5))
    above = {"upwards": "../beside", "absolute": str(tmp_path / "beside"), "link": "jobs/job/out"}[how]
    (files.folder / "beside").mkdir()
    (files.folder / "beside" / "evil").write_text("evil")
    (tmp_path / "beside").mkdir()
    note = read_note(files.note)
    assert note is not None
    note.pop("crc32", None)
    if how == "link":
        (files.state / above).symlink_to("../../../beside")
        note["files"][above] = [-1, "../../../beside"]
    if how == "absolute":
        # It is there on the machine of whoever restores, too.
        (tmp_path / "beside" / "evil").write_text("evil")
    note["files"][f"{above}/evil"] = [4, sha256(b"evil").hexdigest()]
    write_note(files.note, note)
    with pytest.raises((BackupError, LinkRefused), match=r"may mean harm|is a link"):
        restore_backup(files.folder, tmp_path / "restored")
    assert (how == "absolute") == (tmp_path / "beside" / "evil").exists()


@pytest.mark.parametrize("name", ["jobs", "jobs/job", "artifacts", "uploads", "outputs", "master.log", "audit.jsonl"])
def test_a_backup_with_a_link_that_no_script_has_made_is_refused(tmp_path: Path, name: str) -> None:
    """The master would write, and delete what is no job's, where it leads."""
    files = BackupFiles(saved(tmp_path, 5))
    place, elsewhere = files.state / name, tmp_path / "elsewhere"
    elsewhere.mkdir()
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(elsewhere)
    note = read_note(files.note)
    assert note is not None
    note.pop("crc32", None)
    kept = {file: entry for file, entry in note["files"].items() if not f"{file}/".startswith(f"{name}/")}
    write_note(files.note, {**note, "files": {**kept, name: [-1, str(elsewhere)]}})
    with pytest.raises(BackupError, match="may mean harm"):
        restore_backup(files.folder, tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


@pytest.mark.parametrize("name", ["jobs", "master.log"])
def test_no_master_uses_a_state_folder_with_a_link_in_it(tmp_path: Path, name: str) -> None:
    Working(tmp_path / "state").store.close()
    place, elsewhere = tmp_path / "state" / name, tmp_path / "elsewhere"
    if place.is_dir():
        shutil.rmtree(place)
    place.symlink_to(elsewhere)
    command = [sys.executable, "-m", "windrow_master", f"--state={tmp_path / 'state'}", "--listen=127.0.0.1:0"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 2
    assert f"{place} is a link, and leads to {elsewhere}" in ended.stderr
    assert not elsewhere.exists()
    with pytest.raises(BackupError, match="would not be in the backup"):
        make_backup(tmp_path / "state", tmp_path / "backup")


def test_a_restored_file_is_not_set_user_id(tmp_path: Path) -> None:
    Working(tmp_path / "state").store.close()
    output = StateFiles(tmp_path / "state").outputs / "job" / "rows"
    output.mkdir(parents=True)
    (output / "run").write_text("x")
    (output / "run").chmod(0o6755)
    make_backup(tmp_path / "state", tmp_path / "backup")
    restore_backup(tmp_path / "backup", tmp_path / "restored")
    assert (tmp_path / "restored" / "outputs" / "job" / "rows" / "run").stat().st_mode & 0o7777 == 0o755


def test_a_backup_inside_of_the_state_folder_does_not_hold_itself(tmp_path: Path) -> None:
    Working(tmp_path / "state").store.close()
    note = make_backup(tmp_path / "state", tmp_path / "state" / ".backup")
    assert not [name for name in note.files if "backup" in name]


@pytest.mark.parametrize("what", ["a byte is changed", "a file is gone", "the note is gone", "the note is changed"])
def test_a_damaged_backup_is_refused_before_anything_is_written(tmp_path: Path, what: str) -> None:
    files = BackupFiles(saved(tmp_path, 5))
    damaged = files.note if "note" in what else StateFiles(files.state).step("job", 1).segments / "1-1.rows"
    if "gone" in what:
        damaged.unlink()
    else:
        content = bytearray(damaged.read_bytes())
        content[len(content) // 2] ^= 1
        damaged.write_bytes(content)
    with pytest.raises(BackupError, match=r"damaged|missing|not a whole backup"):
        restore_backup(files.folder, tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


def test_a_restore_needs_an_empty_folder_that_no_master_has(tmp_path: Path) -> None:
    backup = saved(tmp_path)
    opened = StateFolder.open(tmp_path / "other", 0)
    with pytest.raises(StateFolderInUse):
        restore_backup(backup, tmp_path / "other")
    opened.close()
    with pytest.raises(BackupError, match="is not empty"):
        restore_backup(backup, tmp_path / "other")
    with pytest.raises(BackupError, match="exists already"):
        make_backup(tmp_path / "state", backup)
    with pytest.raises(BackupError, match="holds no database"):
        make_backup(tmp_path / "nothing", tmp_path / "another")


def killed_at(work: str, folder: Path, call: int) -> bool:
    """Do some work in a process that is killed before a call of the functions that read and write files; whether it
    came to that."""
    script = f"""
import os, signal
from pathlib import Path
from windrow_master.backup import making, restoring
left = {call}
def counted(function):
    def called(*arguments):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)
    return called
for module in (making, restoring):
    for name in ("copy_file", "verify", "troubles", "sync_file_system", "sync_folder"):
        setattr(module, name, counted(getattr(module, name)))
folder = Path({str(folder)!r})
{work}
"""
    done = subprocess.run([sys.executable, "-c", script], check=False)
    assert done.returncode in (0, -signal.SIGKILL)
    return done.returncode != 0


def test_a_backup_that_is_killed_has_no_name(tmp_path: Path) -> None:
    working = Working(tmp_path / "state")
    working.one()
    working.store.close()
    calls = 0
    while killed_at("making.make_backup(folder / 'state', folder / 'backup')", tmp_path, calls):
        # The last call is that which makes the name durable.
        if (tmp_path / "backup").exists():
            break
        calls += 1
    assert calls >= 4
    restore_backup(tmp_path / "backup", tmp_path / "restored")
    assert rows_in(tmp_path / "restored") == [row_of(0)]


def test_no_master_starts_over_a_restore_that_was_killed_and_the_same_command_begins_again(tmp_path: Path) -> None:
    saved(tmp_path)
    work = "restoring.restore_backup(folder / 'backup', folder / 'restored')"
    # The first call verifies the backup; the last makes durable that the folder is whole.
    calls = 1
    while killed_at(work, tmp_path, calls) and StateFiles(tmp_path / "restored").unfinished_restore.exists():
        with pytest.raises(StateUnusable, match="windrow restore BACKUP"):
            StateFolder.open(tmp_path / "restored", 0)
        calls += 1
    assert calls >= 5
    assert rows_in(tmp_path / "restored") == [row_of(0)]


def test_what_was_retried_meanwhile_is_copied_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    working = Working(tmp_path / "state")
    working.one()
    working.end()
    copy_file, retried = making.copy_file, list[str]()

    def copied(source: Folder, target: Folder, name: str) -> tuple[int, str] | None:
        if not retried:
            retried.append(name)
            working.store.reopen(ReopenedJob(JobKey(1), 1, DOCUMENT, "d", {STEP: Reopening.RESUMED}))
        return copy_file(source, target, name)

    monkeypatch.setattr(making, "copy_file", copied)
    make_backup(tmp_path / "state", tmp_path / "backup")
    working.store.close()
    restore_backup(tmp_path / "backup", tmp_path / "restored")
    store = open_store(tmp_path / "restored")
    found = store.reader().job_by_id("job")
    store.close()
    assert found is not None and found.generation == 2


def test_nothing_is_deleted_while_a_backup_is_made(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        job_id = await bench.submitted()
        await bench.writer.submit(commands.FailStep(StepId(1), "no more"))
        with backing_up(bench.files):
            with pytest.raises(BackupRuns), deleting(bench.files):
                pass
            fate = await bench.keeper.delete(job_id, forced=False, dry=False)
            assert fate is not None and fate.refusal is not None and fate.refusal.reason == "BACKUP_RUNS"
        assert (await bench.jobs.DeleteJob(pb.DeleteJobRequest(job_id=job_id))).deletion.deleted

    drive(tmp_path, scenario)
