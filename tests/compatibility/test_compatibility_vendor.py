"""Pipelines built with the vendor's own client: dumped there, they are the jobs that the same cells build here."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from foreign_environments import Environments
from vendor_notebooks import FILES, IMPORTS, NOTEBOOKS
from windrow.spec import LoadedJob, load_job

REPOSITORY = Path(__file__).parents[2]
LOAD = "import sys; from azure.ai.ml import load_job; [load_job(file) for file in sys.argv[1:]]"


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of the cells."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WINDROW_MASTER", raising=False)
    return tmp_path


def built_here(cells: str) -> LoadedJob:
    names: dict[str, Any] = {}
    exec(cells.replace("API", "windrow.ml"), names)
    loaded: LoadedJob = names["job"].load()
    return loaded


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_what_the_vendors_client_dumps_is_what_the_same_cells_build_here(
    notebook: Path, environments: Environments, name: str
) -> None:
    cells = IMPORTS + NOTEBOOKS[name]
    (notebook / "cells.py").write_text(cells.replace("API", "azure.ai.ml") + "\njob.dump('dumped.yml')\n")
    run = [str(environments.vendors_client()), "cells.py"]
    ended = subprocess.run(run, cwd=notebook, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    here, there = built_here(cells), load_job(notebook / "dumped.yml")
    assert [step._asdict() for step in there.job.steps] == [step._asdict() for step in here.job.steps]
    assert there.job.outputs == here.job.outputs
    assert there.job.run_digest == here.job.run_digest
    assert sorted(there.code_folders.items()) == sorted(here.code_folders.items())


@pytest.mark.timeout(600)
def test_job_files_of_the_examples_are_also_the_vendors(environments: Environments) -> None:
    files = [str(REPOSITORY / "examples" / name / "job.yml") for name in ("digits", "iris")]
    run = [str(environments.vendors_client()), "-c", LOAD, *files]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
