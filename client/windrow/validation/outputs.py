"""Outputs that a run on this machine would refuse, because another file is in their place."""

from __future__ import annotations

import os

from windrow.dry_run.query import ask
from windrow.spec import DEFAULT_ROWS_FILE, LoadedJob, build_effective
from windrow.spec.naming.locations import is_elsewhere
from windrow.spec.reading.problems import Problem

_NO_CODE = "0" * 64


def check_outputs(loaded: LoadedJob, state: str) -> list[Problem]:
    """What the master over a state folder (absolute, perhaps missing) would report about files in the place of outputs.

    It is asked only if there are such files, since that starts a process. Raises MasterFailed.
    """
    standing = {
        step.name: name for step in loaded.job.steps if (name := step.append_row_to) and _stands(loaded, step.name)
    }
    if not standing:
        return []
    job = build_effective(loaded, dict.fromkeys(loaded.code_folders.values(), _NO_CODE))
    answer = ask(job, state=state, outputs=os.path.join(state, "outputs"), datastores={}, divided=())
    found = []
    for step, name in standing.items():
        key = f"jobs.{step}.outputs.{name}"
        file, line = _place(loaded, key)
        found += [Problem(file, line, 1 if line else 0, key, text) for text in answer["steps"][step]["problems"]]
    return found


def _stands(loaded: LoadedJob, step_name: str) -> bool:
    """Whether a file exists at the place of a step's rows."""
    step = next(step for step in loaded.job.steps if step.name == step_name)
    output = step.outputs[step.append_row_to or ""]
    if output.path is None or is_elsewhere(output.path) or "${{" in output.path:
        return False
    name = () if output.type == "uri_file" else (output.file_name or DEFAULT_ROWS_FILE,)
    path = os.path.join(output.path, *name)
    return os.path.isdir(path) or (os.path.exists(path) and os.path.getsize(path) > 0)


def _place(loaded: LoadedJob, key: str) -> tuple[str, int]:
    """File and line of a setting, as far as they are known."""
    origin = loaded.origins.get(key)
    where = origin.where if origin is not None else ""
    file, _, line = where.rpartition(":")
    return (file, int(line)) if line.isdecimal() else (where or loaded.job.job_file, 0)
