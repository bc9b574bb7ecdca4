"""The plan of a job as one document of plain JSON types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windrow.dry_run.room import Room, room_document
from windrow.spec import DataInput, EffectiveJob, EffectiveStep, LiteralInput, LoadedJob, Origin, OutputInput
from windrow.spec.effective.job import default_progress_update_timeout_s
from windrow.spec.settings.fields import INT_MAX

FORMAT = 1
_TOLD_ELSEWHERE = frozenset(
    (
        "name",
        "depends_on",
        "code_digest",
        "inputs",
        "outputs",
        "arguments",
        "entry_script",
        "command",
        "table_digests",
        "append_row_to",
        "run_if",
        "iterations",
    )
)
"""Fields of an effective step that are not settings, or that the plan shows elsewhere."""
_OF_PARALLEL = frozenset(
    (
        "input_data",
        "mini_batch_size",
        "mini_batch_rows",
        "partition_keys",
        "rank_mini_batch_count",
        "file_format",
        "exact_row_index",
        "mixed_types",
        "rows",
        "logging_level",
        "max_concurrency_per_instance",
        "max_retries",
        "error_threshold",
        "mini_batch_error_threshold",
        "allowed_failed_percent",
        "may_shut_down",
    )
)
"""Settings that have no effect on a command step."""


class Code:
    """What goes into the archive of a code folder.

    Not the core's `Code`, which names reasons.
    """

    def __init__(self, files: int, content_bytes: int, digest: str) -> None:
        self.files, self.bytes, self.digest = files, content_bytes, digest


def make_document(
    loaded: LoadedJob,
    job: EffectiveJob,
    answer: dict[str, Any],
    codes: Mapping[str, Code],
    *,
    python: str,
    builds: bool = False,
    slots: int | None,
    rooms: Sequence[Room],
) -> dict[str, Any]:
    """Make the document. `job`: with the digests of its code; `answer`: from `ask`; `python`: what runs scripts, empty
    if nodes decide; `slots`: worker processes at a time, None if nodes decide; `rooms`: of the nodes that take work.
    """
    levels = levels_of(job)
    steps = []
    for number, names in enumerate(levels):
        for step in (step for step in job.steps if step.name in names):
            own = "" if builds and step.environment is not None else python
            told = _step(step, loaded, answer["steps"][step.name], codes, own)
            room = room_document(step, rooms) if any(one.is_open_to(step) for one in rooms) else None
            steps.append({**told, "room": room, "level": number, "beside": sorted(set(names) - {step.name})})
    return {
        "format": FORMAT,
        "job_file": job.job_file,
        "job_id": answer["job_id"],
        "display_name": job.display_name,
        "slots": slots,
        "unfinished": answer["unfinished"],
        "notes": answer["notes"],
        "continue_on_step_failure": job.continue_on_step_failure,
        "steps": steps,
        "outputs": {
            name: {**bound._asdict(), "place": answer["steps"][bound.step]["outputs"].get(bound.output)}
            for name, bound in job.outputs.items()
        },
        "warnings": [warning._asdict() for warning in loaded.warnings],
        "since": answer["since"],
        "run_digest": job.run_digest,
    }


def problems_of(document: dict[str, Any]) -> list[str]:
    """Why the job would fail, as far as is known now."""
    found: list[str] = []
    for step in document["steps"]:
        found += [f"Step {step['name']}: {problem}" for problem in step["problems"]]
        if step["division"].get("error"):
            found.append(f"Step {step['name']}: {step['division']['error']}")
    return found


def levels_of(job: EffectiveJob) -> list[list[str]]:
    """The names of the steps of each level. They wait only for earlier levels, so they run side by side."""
    level: dict[str, int] = {}
    left = list(job.steps)
    while left:
        ready = [step for step in left if all(name in level for name in step.depends_on)]
        for step in ready:
            level[step.name] = 1 + max((level[name] for name in step.depends_on), default=-1)
        left = [step for step in left if step.name not in level]
    return [[name for name in level if level[name] == number] for number in range(1 + max(level.values(), default=-1))]


def _step(
    step: EffectiveStep, loaded: LoadedJob, told: dict[str, Any], codes: Mapping[str, Code], python: str
) -> dict[str, Any]:
    key, folder = f"jobs.{step.name}", loaded.code_folders[step.name]
    code = codes.get(folder)
    is_command = step.command is not None
    return {
        "name": step.name,
        "type": "command" if is_command else "parallel",
        "waits_for": list(step.depends_on),
        "runs_if": _conditions(step),
        "code": None
        if not folder or code is None
        else {"folder": folder, "files": code.files, "bytes": code.bytes, "digest": code.digest},
        "entry_script": step.entry_script or None,
        "command": told["words"][0] if is_command else None,
        "arguments": [] if is_command else told["words"],
        "python": python or None,
        "inputs": {name: _input(step, name, told, loaded) for name in step.inputs},
        "outputs": {
            name: {
                "type": output.type,
                "mode": output.mode,
                "place": told["outputs"].get(name),
                "rows": told["append_row"] if name == step.append_row_to else None,
                "brought": name in told["brought"]["outputs"],
                "origin": _origin(loaded, f"{key}.outputs.{name}"),
            }
            for name, output in step.outputs.items()
        },
        "settings": {
            name: {
                "value": _plain(value),
                "means": _meaning(name, value, step),
                "origin": _origin(loaded, f"{key}.{name}"),
            }
            for name, value in step._asdict().items()
            if name not in _TOLD_ELSEWHERE and not (is_command and name in _OF_PARALLEL)
        },
        "division": told["division"],
        "problems": told["problems"],
        "notes": told["notes"],
    }


def _conditions(step: EffectiveStep) -> list[str]:
    """What must be true for a step to run, in words; otherwise it is skipped."""
    told = []
    for condition in step.run_if:
        wanted = str(condition.wanted).lower()
        if condition.step is None:
            told.append(f"never: the condition of {condition.node} is {str(not condition.wanted).lower()}")
        else:
            told.append(f"{condition.node}: {condition.output} of step {condition.step} is {wanted}")
    for again in step.iterations:
        if again.step is None:
            told.append(f"iteration {again.number} of loop {again.node}")
        else:
            told.append(f"iteration {again.number} of loop {again.node}: {again.output} of step {again.step} is true")
    return told


def _input(step: EffectiveStep, name: str, told: dict[str, Any], loaded: LoadedJob) -> dict[str, Any]:
    given = step.inputs[name]
    common = {
        "divided": name in step.input_data,
        "brought": name in told["brought"]["inputs"],
        "origin": _origin(loaded, f"jobs.{step.name}.inputs.{name}"),
    }
    if isinstance(given, LiteralInput):
        return {"kind": "literal", "value": given.value, **common}
    place = told["inputs"].get(name)
    if isinstance(given, OutputInput):
        bound = {"step": given.step, "output": given.output}
        return {"kind": "output", "type": given.type, "mode": given.mode, "place": place, **bound, **common}
    assert isinstance(given, DataInput)
    return {"kind": "data", "type": given.type, "mode": given.mode, "place": place, **common}


def _meaning(name: str, value: Any, step: EffectiveStep) -> str:
    """What a value stands for, if the value does not say so itself; otherwise empty."""
    if name == "mini_batch_size" and value is None:
        return "by the kind of input: 10 files, or 1 MB of a table"
    if name == "mini_batch_size":
        divided = [step.inputs[given] for given in step.input_data]
        by_bytes = step.file_format is not None or any(getattr(given, "type", "") == "mltable" for given in divided)
        return "bytes" if by_bytes else "files"
    if name == "progress_update_timeout_s" and value is None:
        return f"{default_progress_update_timeout_s(step)}, from the other times"
    if name == "run_invocation_timeout_s" and value == INT_MAX:
        return "no limit"
    return _MEANINGS.get((name, value), "") if value is None or isinstance(value, str | int) else ""


_MEANINGS: dict[tuple[str, Any], str] = {
    ("compute", ""): "any node",
    ("instance_count", -1): "all nodes",
    ("max_concurrency_per_instance", None): "one worker per processor",
    ("error_threshold", -1): "any number of failed items",
    ("mini_batch_error_threshold", -1): "any number of failed mini-batches",
    ("environment", None): "the node's own Python",
}


def _origin(loaded: LoadedJob, key: str) -> dict[str, str]:
    return loaded.origins.get(key, Origin("default"))._asdict()


def _plain(value: Any) -> Any:
    """Records of settings as dicts."""
    if hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value
