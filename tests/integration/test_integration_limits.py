"""Limits of a served master: a small job does not fill its disk, and nothing stands still for good."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import windrow
from embedded_run import DEADLINE_S, wait_until
from served import Served
from windrow.errors import RequestRefused
from windrow.sdk.job import JobState

JOB = """\
type: pipeline
jobs:
  ranks:
    type: parallel
    outputs: {{rows: {{type: uri_file}}}}
    task:
      type: run_function
      code: ./code
      entry_script: entry.py
      program_arguments: --rank_mini_batch_count {count}
      append_row_to: ${{{{outputs.rows}}}}
"""
FILES_JOB = """\
type: pipeline
jobs:
  files:
    type: parallel
    mini_batch_size: "1"
    inputs: {{data: {{type: uri_folder, path: {data}}}}}
    input_data: ${{{{inputs.data}}}}
    outputs: {{rows: {{type: uri_file}}}}
    task: {{type: run_function, code: ./code, entry_script: entry.py, append_row_to: "${{{{outputs.rows}}}}"}}
"""


def job_file(folder: Path, text: str) -> Path:
    (folder / "code").mkdir(exist_ok=True)
    (folder / "code" / "entry.py").write_text("def run(mini_batch):\n    return ['row']\n")
    file = folder / "job.yml"
    file.write_text(text)
    return file


def planned(client: windrow.Client, name: str) -> int:
    (step,) = client.get(name).steps
    return step.mini_batches.total


def paused(served: Served) -> int:
    """How often dividing has paused, as the log tells."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in (served.state / "master.log").read_text().splitlines()]
    return sum(line["event"].startswith("dividing pauses") for line in lines)


def test_more_mini_batches_than_a_step_may_have_are_refused_at_once(served: Served, tmp_path: Path) -> None:
    with served.client() as client:
        with pytest.raises(RequestRefused, match=r"2,147,483,647 mini-batches.*limit mini_batches_per_step") as refused:
            client.submit(job_file(tmp_path, JOB.format(count=2147483647)))
        assert refused.value.reason == "LIMIT_REACHED"
        assert not list(client.list_jobs())


def test_an_input_that_is_cut_into_too_many_fails_its_step_and_fills_nothing(served: Served, tmp_path: Path) -> None:
    served.kill_master()
    served.start_master("--limit=mini_batches_per_step=20")
    data = Path(str(served.datastore)) / "many"
    data.mkdir()
    for number in range(5000):
        (data / f"{number:04}").touch()
    with served.client() as client:
        name = client.submit(job_file(tmp_path, FILES_JOB.format(data=data))).job_id
        ended = client.end_of(name, timeout_s=DEADLINE_S)
        assert ended.state == JobState.FAILED
        assert "limit mini_batches_per_step" in ended.message
        assert planned(client, name) <= 20


def test_dividing_waits_for_workers_also_after_a_restart_and_all_is_done_in_the_end(
    served: Served, tmp_path: Path
) -> None:
    limit = "--limit=ready_mini_batches=1000"
    served.kill_master()
    served.start_master(limit)
    with served.client() as client:
        name = client.submit(job_file(tmp_path, JOB.format(count=30_000))).job_id
        wait_until(lambda: paused(served) == 1, "dividing pauses")
        before = planned(client, name)
        assert 1000 <= before < 30_000
        served.kill_master()
        served.start_master(limit)
    with served.client() as client:
        wait_until(lambda: paused(served) == 2, "the next master divides no more either")
        assert planned(client, name) == before
        served.start_agent("one")
        ended = client.end_of(name, timeout_s=DEADLINE_S)
        assert ended.state == JobState.COMPLETED
        assert planned(client, name) == 30_000
