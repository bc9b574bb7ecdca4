"""A folder with a job file in it, and what it needs to be valid."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from job_schema import check_schema_takes
from spec_packages import check_package
from windrow.spec import EffectiveJob, EffectiveStep, JobFileError, LoadedJob, Problem, build_effective, load_job

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
"""For Hypothesis: no test fails because the machine is busy."""

STEP = """\
type: parallel
inputs:
  images: {type: uri_folder, path: ./images}
outputs:
  scores: {type: uri_file}
input_data: ${{inputs.images}}
task:
  type: run_function
  code: ./src
  entry_script: score.py
  append_row_to: ${{outputs.scores}}
"""
"""The smallest step with an output, as the value of a key of `jobs`."""


class Workspace:
    """A folder with `images/`, `table/`, `src/score.py`, and a way to write and load job files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("images/a.png", "src/score.py", "one.csv"):
            self.write(name, "")
        self.write("table/MLTable", "paths: [{file: ../one.csv}]\ntransformations: [read_delimited]\n")

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else textwrap.dedent(text).encode())
        return path

    def job(self, text: str, *sets: str, embedded: bool = True) -> LoadedJob:
        """Loads a job file of this text, which the JSON Schema has to take as well."""
        file = self.write("job.yml", text)
        loaded = load_job(file, sets, embedded=embedded)
        if not sets:
            check_schema_takes(file, "\n".join(map(str, loaded.warnings)))
        if embedded:
            check_package(file, loaded.job, sets)
        return loaded

    def job_of(self, step: str = STEP, more: str = "", name: str = "score") -> str:
        """A job file of one step, with further keys of the pipeline."""
        return (
            f"type: pipeline\n{textwrap.dedent(more)}jobs:\n  {name}:\n{textwrap.indent(textwrap.dedent(step), '    ')}"
        )

    def step(self, changes: str = "", *sets: str, more: str = "") -> EffectiveStep:
        """The smallest step with other or further keys, loaded."""
        return self.loaded(changes, *sets, more=more).job.steps[0]

    def loaded(self, changes: str = "", *sets: str, more: str = "") -> LoadedJob:
        return self.job(self.job_of(changed(STEP, changes), more), *sets)

    def effective(self, loaded: LoadedJob) -> EffectiveJob:
        return build_effective(loaded, dict.fromkeys(loaded.code_folders.values(), "a" * 64))

    def problems(self, text: str, *sets: str, embedded: bool = True) -> Sequence[Problem]:
        """The errors of a job file, which must have some."""
        with pytest.raises(JobFileError) as caught:
            self.job(text, *sets, embedded=embedded)
        return caught.value.problems

    def step_problems(self, changes: str, *sets: str, more: str = "") -> Sequence[Problem]:
        return self.problems(self.job_of(changed(STEP, changes), more), *sets)

    def only_problem(self, changes: str, *sets: str, more: str = "") -> Problem:
        (problem,) = self.step_problems(changes, *sets, more=more)
        return problem


def changed(step: str, changes: str) -> str:
    """The text of a step, in which top-level keys of `changes` replace those of the same name."""
    changes = textwrap.dedent(changes).rstrip() + "\n"
    for key in re.findall(r"^(\w+):", changes, re.MULTILINE):
        step = re.sub(rf"^{key}:.*\n(^[ ].*\n)*", "", step, flags=re.MULTILINE)
    return step + changes
