"""What the notebooks of the tests of v1 have in common."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from windrow.ml.v1.core import Environment
from windrow.ml.v1.core.compute import AmlCompute
from windrow.ml.v1.core.runconfig import DEFAULT_CPU_IMAGE, CondaDependencies
from windrow.ml.v1.pipeline.steps import ParallelRunConfig


def config(**settings: Any) -> ParallelRunConfig:
    environment = Environment(name="batch")
    environment.python.conda_dependencies = CondaDependencies.create()  # nothing that would have to be built
    environment.docker.base_image = DEFAULT_CPU_IMAGE
    given: dict[str, Any] = {
        "source_directory": "src",
        "entry_script": "upper.py",
        "error_threshold": 0,
        "output_action": "append_row",
        "append_row_file_name": "rows.txt",
        "environment": environment,
        "compute_target": AmlCompute(None, "cpu"),
        "node_count": 1,
    }
    return ParallelRunConfig(**{**given, **settings})


def rows_of(run: Any, step: Any, output: Any, settings: ParallelRunConfig, folder: Path) -> list[str]:
    """As the notebooks fetch them."""
    data = run.find_step_run(step.name)[0].get_output_data(output.name)
    assert data.download(local_path=str(folder)) == 1
    return (folder / data.path_on_datastore / str(settings.append_row_file_name)).read_text().splitlines()


def script(notebook: Path, name: str, text: str = "") -> str:
    """The name of a script in src/."""
    (notebook / "src" / name).write_text(text)
    return name


def wait_until(condition: Callable[[], object], what: str, deadline_s: float = 30) -> None:
    """Logs of nodes arrive a moment after a job's end."""
    until = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < until, f"not so after {deadline_s} s: {what}"
        time.sleep(0.02)
