"""What looks like a secret in a job reaches the script that needs it, and nothing that is shown or written down."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest
from embedded_run import WINDROW
from served import Served
from windrow.spec.reading.problems import JobFileError

SIGNATURE = "aB3%2Fd9xYzQ7LmN0pQrStUvWx%3D"
SIGNED = f"https://a.blob.core.windows.net/c/f.csv?sv=2024-08-04&sr=b&sig={SIGNATURE}&se=2027"
SECRETS = (SIGNATURE, "hunter22", "s3cr3t-of-mine")

SCRIPT = """
import os, sys

def run(mini_batch):
    given = sys.argv[1:]
    open(os.path.join(given[given.index("--files") + 1], "given"), "w").write("\\n".join(given))
    name = os.path.basename(mini_batch[0])
    if name == "f0":
        raise ValueError("cannot read " + given[given.index("--source") + 1] + " as redis://:hunter22@cache/0")
    return mini_batch
"""
JOB = f"""
type: pipeline
tags: {{made_from: "{SIGNED}"}}
jobs:
  score:
    type: parallel
    inputs:
      data: {{type: uri_folder, path: ./data}}
      source: "{SIGNED}"
      api_key: s3cr3t-of-mine
    outputs: {{rows: {{type: uri_file}}, files: {{type: uri_folder}}}}
    input_data: ${{{{inputs.data}}}}
    mini_batch_size: "1"
    mini_batch_error_threshold: 1
    retry_settings: {{max_retries: 0}}
    task:
      type: run_function
      code: ./code
      entry_script: entry.py
      program_arguments: >-
        --source ${{{{inputs.source}}}} --key ${{{{inputs.api_key}}}} --files ${{{{outputs.files}}}}
      append_row_to: ${{{{outputs.rows}}}}
"""


def test_secrets_of_a_job_reach_its_script_and_nothing_that_is_shown(tmp_path: Path) -> None:
    for name in ("data", "code", "shared"):
        (tmp_path / name).mkdir()
    for number in range(2):
        (tmp_path / "data" / f"f{number}").write_text("x")
    (tmp_path / "code" / "entry.py").write_text(SCRIPT)
    (tmp_path / "job.yml").write_text(JOB)
    served = Served(tmp_path, tmp_path / "shared")
    with contextlib.closing(served):
        served.start_master()
        served.start_agent("one")
        with served.client() as client:
            job = client.end_of(client.submit(tmp_path / "job.yml"))
            (given,) = (tmp_path / "shared").rglob("given")
            assert given.read_text().split("\n")[:4] == ["--source", SIGNED, "--key", "s3cr3t-of-mine"]
            refused = tmp_path / "refused.yml"
            refused.write_text(JOB.replace("path: ./data", "path: s3://me:hunter22@bucket/data"))
            with pytest.raises(JobFileError) as error:
                client.submit(refused)
            shown = [str(error.value)]
        told = ("show", "report", "explain", "logs", "list")
        commands = [("job", what, *(() if what == "list" else (job.job_id,))) for what in told]
        commands += [("job", "show", job.job_id, "--format", "json"), ("mb", "list", job.job_id)]
        commands += [("mb", "show", job.job_id, str(index), "--format", "json") for index in range(2)]
        for command in commands:
            done = subprocess.run(
                [WINDROW, *command],
                cwd=tmp_path,
                env={**served.environment, "WINDROW_MASTER": served.address},
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode in (0, 1, 3), (command, done)
            shown.append(f"{command}: {done.stdout}{done.stderr}")
        assert any("cannot read" in text for text in shown), "the failure of the script is told"
    written = [path for pattern in ("*.log", "*.jsonl", "jobs/*/logs/**/*") for path in served.state.glob(pattern)]
    written += [*(tmp_path / "agent-one").glob("agent.log"), *tmp_path.glob("*.stderr")]
    assert any(path.name == "audit.jsonl" for path in written)
    shown += [f"{path}: {path.read_text(errors='replace')}" for path in written if path.is_file()]
    assert not [text for text in shown for secret in SECRETS if secret in text]
