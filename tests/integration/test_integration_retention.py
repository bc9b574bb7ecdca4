"""Jobs that are deleted from a real master: at once after their end, and while the master is killed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from embedded_run import wait_until
from served import Served
from windrow.errors import MasterUnreachable, NotFound
from windrow_command import windrow
from windrow_master.crash_points import VARIABLE
from windrow_master.files.state_files import StateFiles

SCRIPT = """
import os, time
def run(mini_batch):
    time.sleep(0.01)
    return [os.path.basename(path) for path in mini_batch]
def shutdown():
    time.sleep(0.2)
"""
JOB = """
type: pipeline
jobs:
  score:
    type: parallel
    inputs: {{files: {{type: uri_folder, path: {data}}}}}
    outputs: {{rows: {{type: uri_file}}}}
    mini_batch_size: "1"
    input_data: ${{{{inputs.files}}}}
    task: {{type: run_function, code: ./code, entry_script: entry.py, append_row_to: "${{{{outputs.rows}}}}"}}
"""
NAMES = [f"{number:02d}.txt" for number in range(30)]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    datastore = tmp_path / "datastore"
    (datastore / "in").mkdir(parents=True)
    for name in NAMES:
        (datastore / "in" / name).write_text(name)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "entry.py").write_text(SCRIPT)
    (tmp_path / "job.yml").write_text(JOB.format(data=datastore / "in"))
    with contextlib.closing(Served(tmp_path, datastore)) as served:
        yield served


def is_cleared(files: StateFiles) -> bool:
    return not any(files.removed_found())


def test_what_agents_still_say_of_a_deleted_job_harms_nobody(served: Served) -> None:
    served.start_master()
    served.start_agent("one")
    files = StateFiles(served.state)
    with served.client() as client:
        for number in range(4):
            job_id = client.submit(served.folder / "job.yml").job_id
            if number % 2:
                next(moment for moment in client.progress(job_id) if moment.items.ended > 3)
                client.cancel(job_id)
            client.end_of(job_id)
            # Its agent may be ending its workers, and send the last of its logs.
            assert client.delete(job_id).deleted
            with pytest.raises(NotFound):
                client.get(job_id)
        kept = client.submit(served.folder / "job.yml").job_id
        assert client.end_of(kept).state == "completed"
        assert client.to_dataframe(kept, "score.rows", header=None)[0].tolist() == NAMES
        wait_until(lambda: is_cleared(files), "what was deleted is gone from the disk")
        assert [job.job_id for job in client.list_jobs()] == [kept]
        # The outputs without a path of their own are in the datastore, and stay there.
        assert len(list((served.folder / "datastore" / "outputs").iterdir())) == 5
    assert [path.name for path in files.jobs.iterdir()] == [kept]
    lines = [json.loads(line) for line in files.journal.read_text().splitlines()]
    assert [line for line in lines if line["level"] not in ("info", "debug")] == []


@pytest.mark.parametrize("point", ["removal.noted", "removal.moved", "removal.deleted", "removal.cleared"])
def test_a_master_that_is_killed_meanwhile_leaves_the_rest_to_the_next(served: Served, point: str) -> None:
    files = StateFiles(served.state)
    served.start_master(**{VARIABLE: point})
    served.start_agent("one")
    with served.client() as client:
        gone, kept = (client.submit(served.folder / "job.yml").job_id for _ in range(2))
        assert [client.end_of(job_id).state for job_id in (gone, kept)] == ["completed"] * 2
        if point == "removal.cleared":
            # The answer comes before.
            assert client.delete(gone).deleted
            served.wait_master_killed()
        else:
            with served.client() as impatient:
                impatient.connection.patience_s = 0.1
                with pytest.raises(MasterUnreachable):
                    impatient.delete(gone)
            served.wait_master_killed()
        served.start_master()
        with pytest.raises(NotFound):
            client.get(gone)
        assert not files.job(gone).exists()
        wait_until(lambda: is_cleared(files), "the next master removes the rest")
        assert [job.job_id for job in client.list_jobs()] == [kept]
        assert client.mini_batch(kept, 0).mini_batch.state == "succeeded"
    served.kill_master()
    done = windrow("state", "check", str(served.state), cwd=served.folder)
    assert done.returncode == 0, done.stdout + done.stderr
