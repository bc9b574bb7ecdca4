"""`windrow master --cancel`: a job is cancelled in its folder, by nobody's master."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from master_bench import JOB, effective_job
from opened_store import open_store
from windrow_master.core import commands
from windrow_master.core.commands import Moment
from windrow_master.core.core import Core
from windrow_master.core.counters import Counters
from windrow_master.core.ids import JobKey, StepId
from windrow_master.core.records import PLAN_RECORD
from windrow_master.core.states import JobState, MiniBatchState, StepState
from windrow_master.files.lock import StateLock
from windrow_master.files.state_files import StateFiles
from windrow_master.shell import offline_cancel
from windrow_master.shell.offline_cancel import NotCancelled, cancel
from windrow_master.shell.submission import settings_of
from windrow_master.store.sqlite import mini_batch_columns
from windrow_master.store.sqlite.store import SqliteStore

COUNT = 1000
DEADLINE_S = 180.0


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A folder that a killed master has left, with a job of many mini-batches that is being divided."""
    folder = tmp_path / "state"
    store = open_store(folder)
    document = effective_job(tmp_path, JOB).to_json().encode()
    core = Core(store.incarnation, store.lease_prefix)
    plan = b"".join(PLAN_RECORD.pack(3 * at, 3, 0, 0, 0) for at in range(COUNT))
    for command in (
        commands.SubmitJob("job", "request", document, "digest", settings_of(document).steps),
        commands.PlanGroup(StepId(1), None, b'{"done": false}', 0, plan, False, b"{}"),
    ):
        core.handle(command, Moment(1.0, 1.0))
        store.commit(core.take_dirty(), [], [])
    store.close()
    return folder


def expect_cancelled(folder: Path) -> None:
    store = open_store(folder)
    job = store.reader().job_by_id("job")
    assert job is not None and job.state == JobState.CANCELLED and job.end_time
    assert job.message == "Cancelled on request."
    (step,) = store.reader().steps_of(JobKey(1))
    assert step.state == StepState.CANCELLED and step.end_time
    counters = Counters.from_json(step.counters)
    assert (counters.planned, counters.cancelled, counters.queued) == (COUNT, COUNT, 0)
    assert (counters.items_total, counters.items_cancelled) == (3 * COUNT, 3 * COUNT)
    rows = [row for page in store.reader().mini_batches_of(StepId(1)) for row in page]
    assert {row.state for row in rows} == {MiniBatchState.CANCELLED} and len(rows) == COUNT
    assert not store.load().jobs
    store.close()


def test_the_job_and_its_mini_batches_are_cancelled_and_none_is_loaded(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(mini_batch_columns, "_unpack")
    assert cancel(state, "job") == "job is cancelled."
    expect_cancelled(state)
    assert cancel(state, "job") == "job has already ended: it is cancelled."


def test_what_was_begun_before_a_kill_is_finished_by_the_next_that_looks(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(Exception):
        pass

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "load", killed)
        with pytest.raises(Killed):
            cancel(state, "job")
    store = open_store(state)
    core = Core(store.incarnation, store.lease_prefix)
    core.load(store.load(), settings_of, Moment(1.0, 1.0))
    store.commit(core.take_dirty(), [], [])
    store.close()
    expect_cancelled(state)


def test_a_folder_that_a_master_uses_is_left_to_it(state: Path) -> None:
    lock = StateLock.acquire(StateFiles(state))
    with pytest.raises(NotCancelled, match="windrow job cancel job"):
        cancel(state, "job")
    lock.release()


def test_an_unknown_job_is_refused_with_the_names_of_those_that_are_open(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotCancelled, match=r"no job named 'jib'.* Open: job\."):
        cancel(state, "jib")
    monkeypatch.setattr(offline_cancel, "NAMED_MAX", 0)
    with pytest.raises(NotCancelled, match=r"Open:  …\."):
        cancel(state, "jib")


def test_what_is_no_state_folder_is_not_made_one(tmp_path: Path) -> None:
    with pytest.raises(NotCancelled, match="is no state folder"):
        cancel(tmp_path / "nothing", "job")
    assert not (tmp_path / "nothing").exists()


def test_the_command_says_what_it_did(state: Path) -> None:
    def run(job: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "windrow_master", f"--state={state}", f"--cancel={job}"]
        return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)

    refused = run("other")
    assert refused.returncode == 2
    assert refused.stderr.startswith("windrow master: There is no job named 'other'")
    done = run("job")
    assert (done.returncode, done.stdout, done.stderr) == (0, "job is cancelled.\n", "")
    expect_cancelled(state)
