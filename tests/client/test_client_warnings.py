"""What a job warns of, as Python warnings at the user's line."""

from __future__ import annotations

import textwrap
import warnings

import windrow
from client_workspace import Workspace


def told(found: list[warnings.WarningMessage]) -> list[str]:
    """The warnings, which are all at a line of this file."""
    assert all(one.category is windrow.JobWarning and one.filename == __file__ for one in found)
    return [str(one.message) for one in found]


def test_a_run_and_a_client_warn_each_once_at_the_line_of_the_call(workspace: Workspace) -> None:
    (workspace.folder / "t.csv").write_text("v\n" + "1\n" * 2_000 + "oops\n")
    (workspace.folder / "same.py").write_text("def run(rows):\n    return rows\n")
    (workspace.folder / "job.yml").write_text(
        textwrap.dedent(
            """
            type: pipeline
            settings: {default_compute: x, force_rerun: true, continue_on_step_failure: true, unknown: 1}
            jobs:
              score:
                type: parallel
                inputs: {rows: {type: mltable, path: ./t.csv}}
                outputs: {rows: {type: uri_file, path: ./o.csv}}
                input_data: ${{inputs.rows}}
                logging_level: DEBUG
                mini_batch_size: 1kb
                task: {type: run_function, code: ., entry_script: same.py, append_row_to: "${{outputs.rows}}"}
            """
        )
    )
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run = windrow.run(workspace.job_file, state=workspace.state)
        first = told(found)
        with windrow.Client(state=workspace.state) as client:
            client.wait(run.job)
            client.wait(run.job.job_id)
        again = told(found)[len(first) :]
    assert len(first) == len(run.job.warnings) > 1
    of_file, of_job = first[:-1], first[-1]
    assert all(f"{workspace.job_file}:" in line and "Job " not in line for line in of_file)
    assert of_job.startswith(f'Job {run.job.job_id}: score: In the column "v", values that do not fit')
    assert again == [f"Job {run.job.job_id}: {warning}" for warning in run.job.warnings]
