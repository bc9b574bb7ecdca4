"""What the core is told of the steps of a job."""

from __future__ import annotations

from pathlib import Path

from master_bench import JOB, effective_job
from windrow_master.shell.submission import settings_of

SECOND = """\
  second:
    type: command
    inputs: {rows: "${{parent.jobs.score.outputs.rows}}"}
    code: ./code
    command: wc -l ${{inputs.rows}}
"""


def test_a_step_that_reads_what_another_has_written_is_known_as_such(tmp_path: Path) -> None:
    first, second = settings_of(effective_job(tmp_path, JOB + SECOND).to_json()).steps
    assert (first.reads_outputs, second.reads_outputs) == (False, True)
