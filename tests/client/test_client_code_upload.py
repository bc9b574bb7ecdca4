"""What a submission leaves on the client's disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SUBMIT = """
import sys
from windrow.sdk.client import Client
from windrow.spec import load_job

with Client(sys.argv[2], patience_s=300) as client:
    client.upload_code(load_job(sys.argv[1]))
"""
JOB = """
type: pipeline
inputs:
  data: {type: uri_folder, path: ./data}
outputs:
  rows: {type: uri_file, path: ./rows.txt}
jobs:
  score:
    type: parallel
    inputs: {data: "${{parent.inputs.data}}"}
    outputs: {rows: "${{parent.outputs.rows}}"}
    input_data: ${{inputs.data}}
    task: {type: run_function, code: ./code, entry_script: score.py, append_row_to: "${{outputs.rows}}"}
"""
DEADLINE_S = 180


def holds_a_nameless_file(pid: int, folder: Path) -> bool:
    """Whether a process has a file without a name open on a folder's file system."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if link.readlink().is_relative_to(folder) and link.stat().st_nlink == 0:
                return True
        except OSError:
            continue
    return False


def test_a_submission_that_is_killed_leaves_no_archive_behind(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    for folder in (temporary, tmp_path / "data", tmp_path / "code"):
        folder.mkdir()
    (tmp_path / "code" / "score.py").write_text("def run(mini_batch): return mini_batch")
    (tmp_path / "job.yml").write_text(JOB)
    # Nobody serves there: the client has packed the code and asks again and again.
    process = subprocess.Popen(
        [sys.executable, "-c", SUBMIT, str(tmp_path / "job.yml"), f"unix:{tmp_path}/nobody"],
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    try:
        deadline = time.monotonic() + DEADLINE_S
        while not holds_a_nameless_file(process.pid, temporary):
            assert process.poll() is None
            assert time.monotonic() < deadline
            os.sched_yield()
        assert not list(temporary.iterdir())
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGKILL
    assert not list(temporary.iterdir())
