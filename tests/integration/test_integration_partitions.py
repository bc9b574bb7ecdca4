"""Tables divided by columns of their data on a served master: sorted rows lie where agents read them, and go."""

from __future__ import annotations

from pathlib import Path

import pytest
from embedded_run import DEADLINE_S, wait_until
from served import Served
from upload_bench import fill
from windrow.errors import JobFailed, RequestRefused
from windrow.sdk.job import JobState
from windrow.spec import load_job

JOB = """\
type: pipeline
jobs:
  score:
    type: parallel
    partition_keys: [{keys}]
    inputs: {{data: {{type: mltable, path: {path}}}}}
    input_data: ${{{{inputs.data}}}}
    outputs: {{rows: {{type: uri_file}}}}
    task:
      type: run_function
      code: ./code
      entry_script: score.py
      append_row_to: ${{{{outputs.rows}}}}
"""
SCRIPT = "def run(rows, context):\n    return [f\"{context.partition_key_value['k']},{n}\" for n in rows['n']]\n"
ROWS = 4000
TABLE = ("k,n\n" + "".join(f"g{at * 7919 % 1000:03},{at}\n" for at in range(ROWS))).encode()


def job_of(folder: Path, path: Path, keys: str = "k") -> str:
    """A job file that divides a table in the datastore."""
    fill(folder, {"job.yml": JOB.format(path=path, keys=keys).encode(), "code/score.py": SCRIPT.encode()})
    return str(folder / "job.yml")


def test_a_master_killed_after_the_first_group_divides_each_row_once(served: Served, tmp_path: Path) -> None:
    assert served.datastore is not None
    data = fill(served.datastore / "table", {"a.csv": TABLE})
    served.kill_master()
    served.start_master(WINDROW_CRASH_POINT="planning.checkpoint_received:2")
    with served.client() as client:
        job_id = client.submit(load_job(job_of(tmp_path / "laptop", data), embedded=False)).job_id
        served.wait_master_killed()
        files = sorted(path.name for path in served.datastore.glob("partitions/*/*/*"))
        assert files == ["rows.arrow", "rows.arrow.sums"]
        served.start_master()
        served.start_agent("one")
        job = client.wait(job_id, timeout_s=DEADLINE_S)
        assert job.state is JobState.COMPLETED, job.message
        (output,) = served.datastore.rglob("parallel_run_step.txt")
    expected = sorted((f"g{at * 7919 % 1000:03}", at) for at in range(ROWS))
    assert output.read_text().splitlines() == [f"{key},{at}" for key, at in expected]
    partitions = served.datastore / "partitions"
    wait_until(lambda: not list(partitions.iterdir()), "the sorted rows go with their job")
    # As if the master had died before it had removed them; what it knows nothing of is another's.
    left, another = (fill(partitions / name / "1", {"rows.arrow": b"rows"}) for name in (job_id, "another"))
    served.kill_master()
    served.start_master()
    wait_until(lambda: not left.parent.exists(), "what an earlier master left goes when the next one starts")
    assert (another / "rows.arrow").exists()


def test_where_agents_could_not_read_sorted_rows_the_job_is_refused_when_it_is_submitted(tmp_path: Path) -> None:
    table = "paths: [{pattern: ./*.csv}]\ntransformations: [read_delimited, %s]\n"
    extract = "{extract_columns_from_partition_format: '{f}.csv'}"
    datastore = fill(tmp_path / "data", {"t/a.csv": b"k,n\nx,1\n", "t/MLTable": (table % extract).encode()})
    served = Served(tmp_path, datastore)
    served.datastore_name = "other"
    try:
        served.start_master()
        with served.client() as client:
            job = load_job(job_of(tmp_path / "laptop", datastore / "t"), embedded=False)
            with pytest.raises(RequestRefused, match=r"partition_keys \(k\) are columns .* no datastore named default"):
                client.submit(job)
            # Files need not be sorted.
            client.submit(load_job(job_of(tmp_path / "laptop", datastore / "t", "f"), embedded=False))
    finally:
        served.close()


def test_the_sorted_rows_of_a_project_leave_room_for_those_of_others(served: Served, tmp_path: Path) -> None:
    assert served.datastore is not None
    data = fill(served.datastore / "table", {"a.csv": TABLE})
    # Of a job that the master does not know: of no project.
    fill(served.datastore / "partitions" / "unknown" / "1", {"rows.arrow": b"rows"})
    served.kill_master()
    served.start_master("--limit", "sorted_steps_per_project=1")
    served.start_agent("one")
    job_file = load_job(job_of(tmp_path / "laptop", data), embedded=False)
    with served.client() as client:
        first = client.wait(client.submit(job_file).job_id, timeout_s=DEADLINE_S)
        assert first.state is JobState.COMPLETED, first.message
        # Rows of a job that has ended well go with it; of one that failed they stay.
        rows = served.datastore / "partitions" / first.job_id
        wait_until(lambda: not rows.exists(), "its sorted rows are removed")
        fill(served.datastore / "partitions" / first.job_id / "1", {"rows.arrow": b"rows"})
        with pytest.raises(JobFailed, match=r"rows of 1 steps of the project 'default' .*sorted_steps_per_project"):
            client.wait(client.submit(job_file).job_id, timeout_s=DEADLINE_S)
        other = client.wait(client.submit(job_file, project="other").job_id, timeout_s=DEADLINE_S)
        assert other.state is JobState.COMPLETED, other.message


def test_the_sorted_rows_of_so_many_steps_are_kept(served: Served, tmp_path: Path) -> None:
    assert served.datastore is not None
    data = fill(served.datastore / "table", {"a.csv": TABLE})
    for job in ("failed", "other"):
        fill(served.datastore / "partitions" / job / "1", {"rows.arrow": b"rows"})
    served.kill_master()
    served.start_master("--limit", "sorted_steps=2")
    served.start_agent("one")
    job_file = load_job(job_of(tmp_path / "laptop", data), embedded=False)
    with served.client() as client:
        refused = client.submit(job_file)
        with pytest.raises(JobFailed, match=r"rows of 2 steps are kept .* limit sorted_steps.*job delete"):
            client.wait(refused.job_id, timeout_s=DEADLINE_S)
        (served.datastore / "partitions" / "other" / "1" / "rows.arrow").unlink()
        (served.datastore / "partitions" / "other" / "1").rmdir()
        job = client.wait(client.submit(job_file).job_id, timeout_s=DEADLINE_S)
        assert job.state is JobState.COMPLETED, job.message
