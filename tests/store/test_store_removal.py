"""A job that is deleted while the master is killed: it is whole, or the next master removes the rest."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from opened_store import open_store
from store_groups import begun, completed, job_row, planned, step_row
from windrow_master import crash_points
from windrow_master.core.ids import JobKey, StepId
from windrow_master.core.records import Dirty
from windrow_master.core.states import JobState, StepState
from windrow_master.files.state_files import StateFiles
from windrow_master.retention.removal import Removal, Removals, remove_in_pieces
from windrow_master.store.errors import JobNotEnded
from windrow_master.store.protocol import Store

REMOVAL = Removal(JobKey(1), "job-1", (StepId(1),))
ROWS = 30


def removals(store: Store, folder: Path) -> Removals:
    return Removals(store, StateFiles(folder), lambda job_id, steps: None)


def make(folder: Path) -> None:
    """A state with an ended job, its files and kept outputs, and another job."""
    store = open_store(folder)
    group = begun(ROWS)
    group.jobs.append(job_row(2))
    group.steps.append(step_row(2, 2))
    group.planned.append(planned(2, 0, 5))
    store.commit(group, [], [])
    store.commit(*completed(store, range(ROWS)), [])
    store.commit(Dirty(jobs=[job_row(1, JobState.COMPLETED)], steps=[step_row(1, 1, StepState.COMPLETED)]), [], [])
    store.close()
    files = StateFiles(folder)
    for job_id in ("job-1", "job-2"):
        for path in (files.logs(job_id) / "score" / "log.txt", files.outputs / job_id / "rows" / "rows.txt"):
            path.parent.mkdir(parents=True)
            path.write_text(job_id)


def delete(folder: Path) -> None:
    store = open_store(folder)
    found = removals(store, folder)
    found.begin(REMOVAL)
    for _ in found.pieces():
        pass


def killed(work: Callable[[], object], point: str) -> None:
    """Do some work in a process that is killed at a point."""
    child = os.fork()
    if not child:
        crash_points.arm(point)
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, f"{point} was not reached"


def look(folder: Path) -> tuple[bool, int, list[str]]:
    """Whether the job is there, how many mini-batches have rows, and all files but those of the store."""
    store = open_store(folder)
    reader = store.reader()
    is_there = reader.job_by_id("job-1") is not None
    rows = sum(map(len, reader.mini_batches_of(StepId(1)))) if is_there else -1
    other = sum(map(len, reader.mini_batches_of(StepId(2))))
    store.close()
    assert other == 5
    found = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path.parent != folder]
    return is_there, rows, sorted(map(str, found))


def rows_left(folder: Path) -> int:
    store = open_store(folder)
    try:
        return sum(map(len, store.reader().attempts_of(StepId(1))))
    finally:
        store.close()


@pytest.mark.parametrize(
    "point",
    ["removal.noted", "removal.moved", "store.begun", "removal.deleted", "store.committed:2", "removal.cleared"],
)
def test_after_a_kill_the_next_master_removes_the_rest(tmp_path: Path, point: str) -> None:
    folder = tmp_path / "state"
    make(folder)
    before = look(folder)
    assert before[:2] == (True, ROWS)
    killed(lambda: delete(folder), point)
    store = open_store(folder)
    found = removals(store, folder)
    found.resume()
    reader = store.reader()
    assert reader.job_by_id("job-1") is None
    assert not StateFiles(folder).job("job-1").exists()
    for _ in found.pieces():
        pass
    store.close()
    assert look(folder) == (False, -1, [path for path in before[2] if "job-1" not in path])
    assert rows_left(folder) == 0
    assert list((folder / "removed").iterdir()) == []


def test_before_the_note_is_written_nothing_has_happened(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    make(folder)
    before = look(folder)
    StateFiles(folder).removed_job(1).folder.mkdir(parents=True)
    StateFiles(folder).removed_job(1).note.with_name(".note.windrow-partial").write_text("cut o")
    store = open_store(folder)
    found = removals(store, folder)
    found.resume()
    for _ in found.pieces():
        pass
    store.close()
    assert look(folder) == before
    assert list((folder / "removed").iterdir()) == []


def test_a_job_that_was_opened_again_is_put_back(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    make(folder)
    before = look(folder)
    killed(lambda: delete(folder), "removal.moved")
    store = open_store(folder)
    store.commit(Dirty(jobs=[job_row(1, JobState.RUNNING)]), [], [])
    found = removals(store, folder)
    found.resume()
    with pytest.raises(JobNotEnded):
        found.begin(REMOVAL)
    for _ in found.pieces():
        pass
    store.close()
    assert look(folder) == before


def test_the_folder_of_a_new_job_of_the_same_name_is_not_taken(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    make(folder)
    killed(lambda: delete(folder), "removal.deleted")
    mine = StateFiles(folder).logs("job-1") / "mine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("new")
    store = open_store(folder)
    store.commit(Dirty(jobs=[job_row(3, JobState.RUNNING, job_id="job-1")]), [], [])
    found = removals(store, folder)
    found.resume()
    for _ in found.pieces():
        pass
    assert mine.read_text() == "new"
    assert store.reader().job_by_id("job-1") is not None
    store.close()


def test_links_in_outputs_are_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("kept")
    folder = tmp_path / "outputs"
    for number in range(3):
        (folder / str(number)).mkdir(parents=True)
        for name in range(4):
            (folder / str(number) / str(name)).write_text("x")
    (folder / "link").symlink_to(tmp_path / "mine")
    (folder / "file-link").symlink_to(tmp_path / "mine" / "file")
    assert sum(1 for _ in remove_in_pieces(folder, 2)) >= 6
    assert not folder.exists()
    (tmp_path / "whole").symlink_to(tmp_path / "mine")
    list(remove_in_pieces(tmp_path / "whole"))
    assert not (tmp_path / "whole").is_symlink()
    assert (tmp_path / "mine" / "file").read_text() == "kept"
