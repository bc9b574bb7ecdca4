"""The answer to a dry run: what each step would read, write and receive, and how its input would be divided."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from windrow.common.beneath import Folder
from windrow.spec.earlier_results import LAST, NO_LAST, with_results_of
from windrow.spec.effective.job import (
    DataInput,
    EffectiveJob,
    EffectiveStep,
    OutputInput,
    resolve_arguments,
    with_values,
)
from windrow.storage.errors import StorageError
from windrow.storage.urls import is_remote

from windrow_master.datastores import Datastores, UnknownDatastore
from windrow_master.dry_run.division import Division, Limits
from windrow_master.dry_run.earlier_results import EarlierResults
from windrow_master.dry_run.existing_state import ExistingState, Unreadable
from windrow_master.files.errors import StateError
from windrow_master.files.state_files import StepFiles
from windrow_master.output.errors import TargetForeign
from windrow_master.output.remote import need_bucket, refuse_foreign_object
from windrow_master.output.target import refuse_foreign
from windrow_master.shell.earlier import EarlierJobs, EarlierStep, NothingToResume
from windrow_master.shell.preparation import planning_request, resolve, resolved
from windrow_master.shell.step_spec import side_inputs, stored_outputs
from windrow_master.shell.submission import name_stem
from windrow_master.step_paths import StepPaths

TIME = "<time>"
"""Stands for what is known only when a job without a name is submitted."""


@dataclass(frozen=True)
class Question:
    """The question. `state`: the state folder of a run on this machine; None if the job is for another machine's
    master, whose default place for outputs is `outputs`. `folder`: for the files of planners. `divided`: the steps
    to divide. `since`: for a run on this machine, the job whose results are taken over, or `last`; empty to follow
    the steps.
    """

    job: EffectiveJob
    state: Path | None
    outputs: Path
    datastores: Datastores
    folder: Path
    divided: frozenset[str]
    limits: Limits
    since: str = ""


def answer(question: Question) -> dict[str, Any]:
    """Return the whole answer."""
    notes: list[str] = []
    existing = ExistingState(question.state) if question.state is not None else None
    since = _since(question, existing, notes)
    if since is not None:
        question = replace(question, job=with_results_of(question.job, since))
    job = question.job
    name, unfinished = job.name or f"{name_stem(job)}-{TIME}", None
    if existing is not None:
        try:
            unfinished = existing.unfinished(job)
            name = existing.free_name(job.name) if job.name else name
        except Unreadable as error:
            notes.append(str(error))
    if unfinished is not None and unfinished[2]:
        name = unfinished[0]
    paths: dict[str, StepPaths] = {}
    steps: list[dict[str, Any]] = []
    for number, step in enumerate(_in_order(job)):
        steps.append(_step(number, step, name, paths, question, existing))
    return {
        "job_id": name,
        "unfinished": None
        if unfinished is None
        else {"job_id": unfinished[0], "state": unfinished[1], "equal": unfinished[2]},
        "since": since,
        "notes": notes,
        "steps": {told["name"]: told for told in steps},
    }


def _since(question: Question, existing: ExistingState | None, notes: list[str]) -> str | None:
    """The job that `since` means, if any."""
    if not question.since or existing is None:
        return question.since or None
    try:
        if question.since != LAST:
            names = existing.named(question.since)
            if len(names) > 1:
                notes.append(f"--since {question.since} may mean {', '.join(names)}: write more of the name")
            return names[0] if len(names) == 1 else question.since
        found = existing.last_of(question.job.job_file)
    except Unreadable as error:
        notes.append(f"it is not known which job --since {question.since} means: {error}")
        return None
    if found is None:
        notes.append(NO_LAST)
    return found


def _in_order(job: EffectiveJob) -> list[EffectiveStep]:
    """The steps, each after those whose outputs it reads."""
    done: set[str] = set()
    left = list(job.steps)
    ordered: list[EffectiveStep] = []
    while left:
        ready = [step for step in left if done.issuperset(step.depends_on)]
        ordered += ready
        done.update(step.name for step in ready)
        left = [step for step in left if step.name not in done]
    return ordered


def _step(
    number: int,
    step: EffectiveStep,
    job_id: str,
    paths: dict[str, StepPaths],
    question: Question,
    existing: ExistingState | None,
) -> dict[str, Any]:
    told: dict[str, Any] = {"name": step.name, "problems": [], "notes": []}
    try:
        effective = resolved(step, question.datastores, lenient=question.state is not None)
    except UnknownDatastore as error:
        told["problems"].append(str(error))
        # Paths of other steps are reported all the same.
        effective = _without_addresses(step)
    own = resolve(question.job, effective, job_id, question.outputs, paths)
    values = {name: f"<{name} of step {step.name}>" for name, output in step.outputs.items() if output.value}
    paths[step.name] = replace(own, values=values)
    effective = with_values(effective, own.inputs)
    told |= {"inputs": own.inputs, "outputs": own.outputs, "append_row": own.append_row}
    told["words"] = _words(effective, own)
    told["brought"] = _brought(effective, own)
    if question.state is not None:
        told["problems"] += _outputs_refused(own, existing, told["notes"])
    earlier = None
    try:
        earlier = None if existing is None else existing.earlier(effective)
        if earlier is not None and (changed := earlier[0].changed(earlier[1], step, lambda digest: None)):
            told["notes"].append(
                f"what made the {changed.results} has changed since: {changed.what}. A run asks what happens, or "
                "--code-change says it"
            )
    except NothingToResume as error:
        told["problems"].append(str(error))
    except Unreadable as error:
        told["notes"].append(f"it is not known what is taken over from job {step.resume_from}: {error}")
    if told["problems"]:
        told["division"] = _waits("the step would fail before its input is divided")
    else:
        told["division"] = _division(number, step, effective, own, question, earlier)
    return told


def _without_addresses(step: EffectiveStep) -> EffectiveStep:
    outputs = {
        name: output._replace(path=None) if output.path is not None and output.path.startswith("azureml://") else output
        for name, output in step.outputs.items()
    }
    return step._replace(outputs=outputs)


def _words(step: EffectiveStep, paths: StepPaths) -> list[str]:
    """The arguments or command as the script gets them. Places on a node are not known yet; they appear as `<…>`."""
    brought = _brought(step, paths)
    inputs = {name: f"<copy of {path}>" if name in brought["inputs"] else path for name, path in paths.inputs.items()}
    outputs = {
        name: f"<local folder for {path}>" if name in brought["outputs"] else path
        for name, path in paths.outputs.items()
    }
    return resolve_arguments(step, inputs, outputs)


def _brought(step: EffectiveStep, paths: StepPaths) -> dict[str, list[str]]:
    """Inputs that agents bring to the node before a script starts, and outputs that they carry away from it."""
    return {
        "inputs": [given.name for given in side_inputs(step, paths)],
        "outputs": [output.name for output in stored_outputs(step, paths)],
    }


def _outputs_refused(paths: StepPaths, existing: ExistingState | None, notes: list[str]) -> list[str]:
    """Why the step would end before it began; empty if all its outputs can be written."""
    outputs_at = existing.outputs_at if existing is not None else lambda path: []
    refused = []
    try:
        for place in paths.outputs.values():
            if is_remote(place):
                need_bucket(place)
        if paths.append_row is not None and is_remote(paths.append_row):
            refuse_foreign_object(paths.append_row, outputs_at)
        elif paths.append_row is not None:
            target = Path(paths.append_row)
            # There may be no such folder yet.
            with suppress(FileNotFoundError), Folder.open(os.path.realpath(target.parent)) as folder:
                refuse_foreign(folder, target, outputs_at)
    except (TargetForeign, StorageError) as error:
        refused.append(str(error))
    except Unreadable as error:
        notes.append(f"whether {paths.append_row} may be replaced is not known: {error}")
    return refused


def _division(
    number: int,
    step: EffectiveStep,
    effective: EffectiveStep,
    paths: StepPaths,
    question: Question,
    earlier: tuple[EarlierJobs, EarlierStep] | None,
) -> dict[str, Any]:
    if step.command is not None:
        return {"state": "command"}
    waits = [step.inputs[name] for name in step.input_data]
    outputs = [given for given in waits if isinstance(given, OutputInput)]
    if outputs:
        texts = dict.fromkeys(f"{given.output} of step {given.step}" for given in outputs)
        return _waits(f"its input is {' and '.join(texts)}, which does not exist until that step has ended")
    if step.name not in question.divided:
        return _waits("")
    files = StepFiles(question.folder / str(number))
    files.folder.mkdir()
    try:
        taking_over = None if earlier is None else EarlierResults(*earlier, files)
        division = Division(files, question.limits, taking_over)
        wanted = None if taking_over is None else taking_over.request()
        request = planning_request(effective, paths, files, question.datastores, None, files.sorted_rows, wanted)
        division.run(request)
    except StateError as error:
        return _waits(f"the results of job {step.resume_from} cannot be read: {error}")
    told = division.to_dict()
    told["reads"] = [
        given.path for given in (effective.inputs[name] for name in step.input_data) if isinstance(given, DataInput)
    ]
    return told


def _waits(why: str) -> dict[str, Any]:
    return {"state": "waits", "why": why}
