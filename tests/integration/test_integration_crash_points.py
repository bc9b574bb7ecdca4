"""The master killed at every named point of its way to durability: the next one ends the job with the right output."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from embedded_run import JOB
from served import Served
from windrow_master.crash_points import POINTS, VARIABLE

FILES = 40
LARGE = 7
"""This mini-batch returns more than travels inside a completion: its rows are staged."""
SCRIPT = f"""\
import os, time

def run(mini_batch):
    time.sleep(0.01)
    name = os.path.basename(mini_batch[0])
    return [name + ("y" * 400000 if name == "f{LARGE:05d}" else "")]
"""
EXPECTED = "".join(f"f{n:05d}{'y' * 400000 if n == LARGE else ''}\n" for n in range(FILES)).encode()

# Late enough that work is under way, early enough that each is reached.
COUNTS = {
    "segments.appended": 4,
    "segments.synced": 4,
    "store.begun": 6,
    "store.written": 6,
    "store.committed": 6,
    "writer.replied": 6,
}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    processes = Served(tmp_path)
    yield processes
    processes.close()


# Clients bring no data to an embedded master (test_integration_uploads.py), rows go to no store (tests/storage),
# outputs have no names (test_integration_assets.py), no job is deleted (test_integration_retention.py), scripts
# hand in nothing (test_integration_script_files.py), and nothing is migrated (tests/store/test_store_migrations.py).
ELSEWHERE = ("place.", "upload.", "assets.", "removal.", "schema.", "script_files.")


@pytest.mark.parametrize("point", sorted(point for point in POINTS if not point.startswith(ELSEWHERE)))
def test_killed_at_a_named_point(served: Served, tmp_path: Path, point: str) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "entry.py").write_text(SCRIPT)
    (tmp_path / "data").mkdir()
    for number in range(FILES):
        (tmp_path / "data" / f"f{number:05d}").touch()
    job_file = tmp_path / "job.yml"
    job_file.write_text(JOB.format(size=1, settings=""))
    served.start_agent("alpha")
    served.start_master(**{VARIABLE: f"{point}:{COUNTS.get(point, 1)}"})
    with served.client() as client, ThreadPoolExecutor(1) as thread:
        # Some points are reached before the submission is answered: it is then repeated under its request id.
        submission = thread.submit(client.submit, job_file)
        served.wait_master_killed()
        served.start_master()
        ended = client.wait(submission.result(240).job_id, timeout_s=240)
        assert ended.state.succeeded, ended.message
        assert (ended.items.total, ended.items.ok, ended.items.failed) == (FILES, FILES, 0)
    assert (tmp_path / "out.txt").read_bytes() == EXPECTED
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".windrow-partial")] == []
