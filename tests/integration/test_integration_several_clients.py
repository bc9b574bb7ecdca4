"""Several clients and calls of one process over one state folder: whoever runs jobs gets it."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import windrow
from embedded_run import EmbeddedRun, wait_until
from windrow.embedded import session, state_folder

Make = Callable[..., EmbeddedRun]
SCRIPT = "def run(mini_batch):\n    return [str(len(mini_batch))] * len(mini_batch)\n"


@pytest.fixture
def done(make: Make) -> EmbeddedRun:
    """A run that has ended."""
    run = make(SCRIPT, files=2)
    assert call(run).succeeded
    return run


def call(run: EmbeddedRun) -> windrow.Run:
    return windrow.run(run.folder / "job.yml", state=run.state, progress=False)


def test_an_idle_client_gives_way_to_a_run_and_goes_on_afterwards(done: EmbeddedRun) -> None:
    with windrow.Client(state=done.state) as client:
        (first,) = client.list_jobs()
        began = time.monotonic()
        seen = []
        windrow.run(
            done.folder / "job.yml",
            state=done.state,
            progress=False,
            on_progress=lambda job: seen.append(client.get(job.job_id).job_id),
        )
        assert time.monotonic() - began < session.ATTACH_S
        # While the run goes on, the client asks the master of the run; then one of its own.
        assert seen
        assert [job.job_id for job in client.list_jobs()] == [seen[0], first.job_id]
        assert client.runs_nothing
        # What is submitted now runs.
        assert client.wait(client.submit(done.folder / "job.yml").job_id, progress=False).state.succeeded
        # Its master has an agent now, which a run may use.
        assert call(done).succeeded


def test_an_idle_client_gives_way_to_another_one_that_runs_a_job(done: EmbeddedRun) -> None:
    with windrow.Client(state=done.state) as idle, windrow.Client(state=done.state) as client:
        job = client.submit(done.folder / "job.yml")
        assert client.wait(job.job_id, progress=False).state.succeeded
        assert idle.get(job.job_id).state.succeeded


def test_what_is_submitted_runs_although_the_master_that_was_asked_has_gone(done: EmbeddedRun) -> None:
    with windrow.Client(state=done.state) as first, windrow.Client(state=done.state) as client:
        first.close()
        job = client.submit(done.folder / "job.yml")
        assert client.wait(job.job_id, progress=False).state.succeeded


def test_a_client_that_nobody_holds_leaves_no_master(done: EmbeddedRun) -> None:
    assert len(list(windrow.Client(state=done.state).list_jobs())) == 1
    folder = str(done.state)
    wait_until(lambda: not state_folder.is_owned(folder), "the master has ended", 20)
    # Also where objects refer to each other.
    holder: dict[str, object] = {"client": windrow.Client(state=done.state)}
    holder["self"] = holder
    assert state_folder.is_owned(folder)
    del holder
    gc.collect()
    wait_until(lambda: not state_folder.is_owned(folder), "the master has ended", 20)
    assert call(done).succeeded


def test_a_client_of_another_process_is_named(done: EmbeddedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "ATTACH_S", 0.2)
    program = (
        f"import sys, windrow\nclient = windrow.Client(state={str(done.state)!r})\n"
        "print('open', flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdin is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(windrow.WindrowError, match=rf"\({other.pid}\) .*: a windrow.Client that is open"):
            call(done)
        other.stdin.close()
    assert call(done).succeeded
    assert Path(done.output).exists()
