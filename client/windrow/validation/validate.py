"""All errors and warnings of one file or folder that a user wrote: a job file, a component, a table.

Nothing is run, written or asked of a master. What depends on this machine alone (packages that a Python lacks, a file
that stands where an output goes) is a warning: elsewhere the same file may well run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from windrow.common.interpreter import NoInterpreter, find_interpreter
from windrow.errors import UsageError
from windrow.spec import JobFileError, LoadedJob, load_job
from windrow.spec.load import is_v1
from windrow.spec.naming.assets import OpenLookup
from windrow.spec.reading.nodes import Mapping, source_label
from windrow.spec.reading.problems import Problem, Problems, StepCode
from windrow.spec.reading.yaml_files import read_yaml
from windrow.validation.code import check_codes
from windrow.validation.standalone import is_component, is_table, read_component, read_table

_WANTED = "Give a job file, a component file, or a folder with an MLTable file."
JOB, V1_JOB, COMPONENT, TABLE = "job file", "job file of Azure ML v1", "component", "table"


class Findings(NamedTuple):
    """All findings. `kind`: what the file was read as."""

    file: str
    kind: str
    errors: tuple[Problem, ...]
    warnings: tuple[Problem, ...]

    @property
    def valid(self) -> bool:
        """Whether there is no error."""
        return not self.errors

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "valid": self.valid,
            "file": self.file,
            "kind": self.kind,
            "errors": [problem._asdict() for problem in self.errors],
            "warnings": [problem._asdict() for problem in self.warnings],
        }


def validate(
    path: str | os.PathLike[str],
    sets: Sequence[str] = (),
    *,
    load: Callable[[str, Sequence[str]], LoadedJob] = load_job,
    assets: OpenLookup | None = None,
    python: str | None = None,
    state: str | None = None,
) -> Findings:
    """Check a job file (v1 or v2), a component file or a table.

    `load`: `load_job`, with its context. `assets`: as of `load_job`, for a component. `python`: the interpreter that
    would run the scripts, as `--python` gives it. `state`: the state folder of a run on this machine, which knows its
    own outputs; if None, existing outputs are not checked. Raises UsageError for a `--set` that changes nothing, and
    for an invalid `python`.
    """
    file = os.path.abspath(path)
    label = source_label(file)
    if is_table(file):
        _refuse_sets(sets, label, "a table")
        context = read_table(file)
        return Findings(label, TABLE, tuple(context.problems.errors), tuple(context.problems.warnings))
    if not os.path.isfile(file):
        why = (
            f"is a folder without an MLTable file.{_files_in(file)}"
            if os.path.isdir(file)
            else f"does not exist. {_WANTED}"
        )
        return Findings(label, JOB, (Problem(label, 0, 0, "", why),), ())
    root = read_yaml(file, "component", Problems())
    interpreter, unusable = _interpreter(python)
    if root is not None and isinstance(root, Mapping) and is_component(root):
        _refuse_sets(sets, label, "a component")
        loaded, context = read_component(file, root, assets)
        found = _with_code(label, COMPONENT, context.problems, context.codes, loaded, interpreter)
        return found._replace(warnings=(*unusable, *found.warnings))
    problems = Problems()
    try:
        job = load(file, sets)
    except JobFileError as error:
        problems.errors, problems.warnings = list(error.problems), list(error.warnings)
        loaded, codes = None, error.codes
    else:
        problems.warnings = list(job.warnings)
        loaded, codes = job, job.codes
    kind = V1_JOB if root is not None and is_v1(root) else JOB
    found = _with_code(label, kind, problems, codes, loaded, interpreter)
    if loaded is not None and state is not None:
        from windrow.validation.outputs import check_outputs

        found = found._replace(warnings=(*found.warnings, *check_outputs(loaded, os.path.abspath(state))))
    return found._replace(warnings=(*unusable, *found.warnings))


def check_loaded(loaded: LoadedJob, python: str, *, packages: bool = True) -> Findings:
    """Check further a job that is loaded already. `python` reads its scripts; `packages`: that Python would also run
    them, except in steps with an environment of their own.
    """
    label = source_label(loaded.job.job_file)
    elsewhere = steps_with_environment(loaded) if packages else [code.step for code in loaded.codes]
    found = check_codes(loaded.codes, python, elsewhere, loaded)
    return Findings(label, JOB, tuple(found.errors), (*loaded.warnings, *found.warnings))


def steps_with_environment(loaded: LoadedJob) -> tuple[str, ...]:
    """The steps whose scripts run in an environment of their own."""
    return tuple(step.name for step in loaded.job.steps if step.environment is not None)


def _with_code(
    label: str,
    kind: str,
    problems: Problems,
    codes: Sequence[StepCode],
    loaded: LoadedJob | None,
    python: str | None,
) -> Findings:
    # If a job has errors, it is not known in which Python its steps run, so their packages are not checked.
    elsewhere = {code.step for code in codes} if loaded is None else steps_with_environment(loaded)
    found = check_codes(codes, python, elsewhere, loaded)
    return Findings(label, kind, (*problems.errors, *found.errors), (*problems.warnings, *found.warnings))


def _interpreter(python: str | None) -> tuple[str | None, list[Problem]]:
    """The interpreter that would run the scripts, or why there is none."""
    try:
        return find_interpreter(python, os.environ), []
    except NoInterpreter as error:
        if python:
            raise
        return None, [Problem("", 0, 0, "", str(error))]


def _refuse_sets(sets: Sequence[str], label: str, what: str) -> None:
    if sets:
        raise UsageError(f"{label} is {what}, and --set changes job files only. Leave it out.")


def _files_in(folder: str) -> str:
    """The files that may have been meant."""
    try:
        names = sorted(name for name in os.listdir(folder) if Path(name).suffix in (".yml", ".yaml"))
    except OSError:
        names = []
    shown = ", ".join(names[:8])
    return f" Give one of its files: {shown}" if names else f" {_WANTED}"
