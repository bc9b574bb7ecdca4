"""What the core is told of the steps of a job."""

from __future__ import annotations

from pathlib import Path

from windrow.spec import build_effective, load_job
from windrow_master.shell.submission import settings_of

PIPELINE = """\
type: pipeline
jobs:
  first:
    type: parallel
    inputs: {files: {type: uri_folder, path: ./data}}
    outputs: {rows: {type: uri_file}}
    input_data: ${{inputs.files}}
    task: {type: run_function, code: ./code, entry_script: entry.py, append_row_to: "${{outputs.rows}}"}
  second:
    type: command
    inputs: {rows: "${{parent.jobs.first.outputs.rows}}"}
    code: ./code
    command: wc -l ${{inputs.rows}}
"""


def test_a_step_that_reads_what_another_has_written_is_known_as_such(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "entry.py").write_text("def run(mini_batch):\n    return mini_batch\n")
    (tmp_path / "job.yml").write_text(PIPELINE)
    loaded = load_job(tmp_path / "job.yml")
    job = build_effective(loaded, dict.fromkeys(loaded.code_folders.values(), "a" * 64))
    first, second = settings_of(job.to_json()).steps
    assert (first.reads_outputs, second.reads_outputs) == (False, True)
