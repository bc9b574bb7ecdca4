"""Nodes with little disk: fetching waits for room, all gets done, and what can never fit is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import windrow
from served_job import Served
from storage_job import DEADLINE_S, StorageJob
from windrow.sdk.job import JobState

FILE_BYTES = 300_000
FILES = 24

WEIGH = """\
import os, time

def run(mini_batch):
    steps = os.path.dirname(mini_batch[0].partition("/fetched/")[0])
    most = 0
    # As long as it takes to see what is fetched meanwhile.
    for _ in range(20):
        here = 0
        for folder, _, names in os.walk(steps):
            for name in names if "/fetched/" in folder else ():
                try:
                    here += os.stat(os.path.join(folder, name)).st_size
                except OSError:
                    pass  # it went just now
        most = max(most, here)
        time.sleep(0.002)
    return [f"{len(open(path).read())} {most}" for path in mini_batch]
"""

STEP = """  {name}:
    type: parallel
    mini_batch_size: "1"
    input_data: ${{{{inputs.data}}}}
    inputs: {{data: {{type: uri_folder, path: "{data}"}}}}
    outputs: {{rows: {{type: uri_file}}}}
    max_concurrency_per_instance: 2
    task: {{type: run_function, code: ./code, entry_script: entry.py, append_row_to: "${{{{outputs.rows}}}}"}}
"""


@pytest.mark.parametrize(
    ("budget", "most"),
    [(int(2.5 * FILE_BYTES), 2 * FILE_BYTES), (FILE_BYTES // 2, FILE_BYTES), (0, FILE_BYTES)],
    ids=["two", "less than one", "nothing"],
)
def test_steps_that_share_a_small_budget(job: StorageJob, tmp_path: Path, budget: int, most: int) -> None:
    """Two steps at a time, two workers: never more than the budget is on the node, or a single mini-batch that is
    larger; and neither step waits for ever for what the other has fetched."""
    for number in range(FILES):
        job.put(f"lake/data/{number:02d}", "x" * FILE_BYTES)
    job.write(WEIGH, "unused")
    steps = "".join(STEP.format(name=name, data=f"{job.url}/lake/data") for name in ("one", "two"))
    (job.folder / "job.yml").write_text(f"type: pipeline\njobs:\n{steps}")
    with Served(job, tmp_path) as served, windrow.Client(served.address, patience_s=DEADLINE_S) as client:
        served.start_agent("one", slots=2, fetched_bytes_max=budget)
        done = client.wait(client.submit(job.folder / "job.yml").job_id, timeout_s=DEADLINE_S)
        assert done.state is JobState.COMPLETED, done.message
        client.download(done.job_id, job.folder / "results")
    rows = [line.split() for path in (job.folder / "results").rglob("*.txt") for line in path.read_text().splitlines()]
    assert [int(size) for size, _ in rows] == [FILE_BYTES] * 2 * FILES
    assert 0 < max(int(here) for _, here in rows) <= most
    told = "larger than fetched_bytes_max" in (tmp_path / "one" / "agent.log").read_text()
    assert told == (budget < FILE_BYTES)


def test_what_no_disk_has_room_for_is_told(job: StorageJob, tmp_path: Path) -> None:
    """Nothing of it is copied; other nodes may have more room, so it costs no try, until the step makes no progress."""
    folder = tmp_path / "data"
    folder.mkdir()
    with open(folder / "large", "wb") as file:
        os.truncate(file.fileno(), 15 << 40)
    arguments = "--progress_update_timeout 8"
    job.write(WEIGH, f"{{type: uri_folder, path: '{folder}', mode: download}}", arguments=arguments)
    code, text = job.run()
    assert code == 1 and "bytes on this node's disk" in text and f"{15 << 40:,}" in text, text
