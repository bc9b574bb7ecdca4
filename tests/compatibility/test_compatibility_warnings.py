"""What a user is told about the data while a job runs, and afterwards."""

from __future__ import annotations

import json

from compatibility_job import CompatibilityJob

SCRIPT = """
    def run(mini_batch):
        return mini_batch
"""


def notices(text: str) -> list[str]:
    """What `windrow run --format json` told beside the progress."""
    events = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [event["message"] for event in events if event["event"] == "notice"]


def test_values_that_do_not_fit_are_told_once_with_their_number(job: CompatibilityJob) -> None:
    job.write("code/score.py", SCRIPT)
    rows = "".join(f"{number},x\n" for number in range(2_000))
    job.write("data/a.csv", f"a,b\n{rows}1.5,x\n7,x,more\n")
    job.write("data/b.csv", "a,b\noops,x\n")
    job.write_job("mltable", "./data", settings="mini_batch_size: 1kb\nresources: {instance_type: Standard_D3}")
    told = notices(job.completed("--format", "json"))
    (column,) = (notice for notice in told if '"a"' in notice)
    assert "out): 2." in column and "is not of type int" in column
    (width,) = (notice for notice in told if '"Column3"' in notice)
    assert "out): 1." in width and "line 2003" in width
    (machines,) = (notice for notice in told if "Standard_D3" in notice)
    assert "no effect" in machines


def test_what_the_planner_met_is_told(job: CompatibilityJob) -> None:
    job.write("code/score.py", SCRIPT)
    job.write("data/a.csv", "day,x\n01/02/2020,1\n03/04/2020,2\n")
    job.write_job("mltable", "./data")
    text = job.completed()
    assert text.count('The column "day" has dates') == 1
    assert (job.folder / "rows.txt").read_text() == "01/02/2020 1\n03/04/2020 2\n"


def test_an_output_that_nothing_was_written_to_is_told_as_such(job: CompatibilityJob) -> None:
    job.write("code/score.py", SCRIPT)
    job.write("data/a.txt", "")
    job.write_job("uri_folder", "./data")
    file = job.folder / "job.yml"
    file.write_text(file.read_text().replace("      append_row_to: ${{outputs.rows}}\n", ""))
    assert job.completed().rstrip().endswith("rows.txt (nothing was written there)")
