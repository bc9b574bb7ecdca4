"""A whole run in an environment that is built from PyPI, as `windrow run` does by itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from embedded_run import DEADLINE_S, WINDROW, EmbeddedRun

SCRIPT = """
import sys
import iniconfig
from importlib.metadata import version

def run(mini_batch):
    return [f"{version('iniconfig')} {sys.prefix}" for _ in mini_batch]
"""


@pytest.fixture
def index(tmp_path: Path) -> None:
    """Skips where PyPI, or what stands for it here, cannot be reached."""
    from uv import find_uv_bin

    probe = [find_uv_bin(), "pip", "install", "--dry-run", "--no-cache", "--target", str(tmp_path / "probe")]
    done = subprocess.run([*probe, "iniconfig==2.0.0"], capture_output=True, text=True, check=False, timeout=240)
    if done.returncode != 0:
        pytest.skip(f"no index of packages can be reached: {done.stderr.strip()[-200:]}")


def test_a_run_builds_what_its_job_file_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: None) -> None:
    monkeypatch.setenv("WINDROW_ENVIRONMENTS_FOLDER", str(tmp_path / "environments"))
    run = EmbeddedRun(tmp_path / "run", SCRIPT, 3)
    job = run.folder / "job.yml"
    written = "environment: {conda_file: {dependencies: [pip: [iniconfig==2.0.0]]}}"
    job.write_text(job.read_text().replace("type: run_function", f"type: run_function\n      {written}"))
    code, text = run.run()
    assert code == 0, text
    (folder,) = (mark.parent for mark in (tmp_path / "environments").glob("*/windrow.json"))
    assert run.output.read_text() == f"2.0.0 {folder}\n" * 3
    (log,) = run.state.glob("jobs/*/logs/score/user/environment/*/process000.build.txt")
    assert "iniconfig==2.0.0" in log.read_text()

    # A mini-batch is replayed in it, and it is built again where it is gone.
    (job_folder,) = (run.state / "jobs").iterdir()
    command = [WINDROW, "mb", "replay", job_folder.name, "0", "--state", str(run.state)]
    for building in (False, True):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
        assert done.returncode == 0, done.stderr
        assert ("Building the step's environment" in done.stderr) is building
        assert f"    2.0.0 {folder}\n" in done.stderr
        shutil.rmtree(folder)

    # Told to use its own Python, it says which steps that concerns. The script finds no such version there, or none.
    _, text = run.run("--environments", "own", "--restart")
    assert "--environments own: no environment is built for score" in text

    job.write_text(job.read_text().replace("2.0.0", "99.0"))
    code, text = run.run("--restart")
    assert code == 1
    assert "iniconfig==99.0" in text.splitlines()[-1]
    assert "--environments own" in text
