"""Files that belong to a job file, checked by themselves: components, and tables.

A component is checked as the only step of a pipeline that gives a value to each of its inputs, so the rules are the
same as in a job.
"""

from __future__ import annotations

import os

from windrow.spec.job.graph import full_name
from windrow.spec.job.pipeline import LoadedJob, read_pipeline
from windrow.spec.naming.assets import OpenLookup
from windrow.spec.reading.context import Context
from windrow.spec.reading.nodes import Mapping, Node, Place, Scalar, Source, is_null, source_label
from windrow.spec.reading.problems import Problem
from windrow.spec.settings.schema import LITERAL_TYPES
from windrow.spec.tables.mltable import FILE_NAME
from windrow.spec.tables.table_files import check_table

COMPONENT_TYPES = ("parallel", "command")
_STEP = "component"
_STAND_IN = "/windrow-stand-in"
"""Stands for data and text that only a step would give. No message may mention it."""
_FROM_STEPS = ("input_data", "task", "command")
"""What a component may leave to the steps that use it."""


def is_component(root: Node) -> bool:
    """Whether a YAML file is a component: a step's type at its top, or a step's work without any steps."""
    if not isinstance(root, Mapping):
        return False
    written = root.entries.get("type")
    if isinstance(written, Scalar) and not is_null(written):
        kind = written.text.strip().casefold()
        return kind in COMPONENT_TYPES or (kind == "pipeline" and _is_pipeline_component(root))
    others = {"jobs", "pipeline", "parallel_run_config"}
    return others.isdisjoint(root.entries) and not {"task", "command"}.isdisjoint(root.entries)


def _is_pipeline_component(root: Mapping) -> bool:
    """Whether a pipeline declares itself a step of other pipelines, not a job."""
    schema = root.entries.get("$schema")
    return "version" in root.entries or (isinstance(schema, Scalar) and "pipelinecomponent" in schema.text.casefold())


def read_component(file: str, root: Mapping, assets: OpenLookup | None = None) -> tuple[LoadedJob | None, Context]:
    """Read a component as the only step of a job; the job is None if the component has errors. The context holds what
    was found. `assets`: opens the registry of what it names.
    """
    source = Source("job", source_label(file), os.path.dirname(file))
    context = Context(source, embedded=False, assets=assets)
    place = Place(source)
    inputs = _stand_ins(root, place)
    step = _mapping(place, {"component": Scalar(place, file, file), "inputs": _mapping(place, inputs)})
    jobs = _mapping(place, {_STEP: step})
    pipeline = _mapping(place, {"type": Scalar(place, "pipeline", "pipeline"), "jobs": jobs})
    loaded = read_pipeline(pipeline, file, context)
    problems = context.problems
    left = [problem for problem in problems.errors if _is_left_to_steps(problem)]
    problems.errors[:] = [_renamed(problem) for problem in problems.errors if not _is_ours(problem, left)]
    problems.warnings[:] = [_renamed(problem) for problem in problems.warnings if not _is_ours(problem, [])]
    problems.warnings += [
        _renamed(problem)._replace(message="is missing; each step that uses the component has to give it.")
        for problem in left
    ]
    context.codes[:] = [
        code._replace(folder_key=_short(code.folder_key), script_key=_short(code.script_key)) for code in context.codes
    ]
    return (None if problems.errors else loaded), context


def read_table(path: str) -> Context:
    """Check a folder or file as a table. The context holds what was found."""
    source = Source("job", source_label(path), os.path.dirname(path))
    context = Context(source, embedded=True)
    check_table(path, Place(source), "", context)
    return context


def is_table(path: str) -> bool:
    """Whether a path is an MLTable file, or a folder that holds one."""
    return os.path.isfile(os.path.join(path, FILE_NAME)) or (
        os.path.basename(path) == FILE_NAME and os.path.isfile(path)
    )


def _mapping(place: Place, entries: dict[str, Node]) -> Mapping:
    return Mapping(place, entries, dict.fromkeys(entries, place))


def _stand_ins(root: Mapping, place: Place) -> dict[str, Node]:
    """A value for each input that a step must be given."""
    declared = root.entries.get("inputs")
    found: dict[str, Node] = {}
    for name, node in declared.entries.items() if isinstance(declared, Mapping) else ():
        if not isinstance(node, Mapping) or not is_null(node.entries.get("default")):
            continue
        kind = node.entries.get("type")
        text = kind.text.strip().casefold() if isinstance(kind, Scalar) else ""
        optional = node.entries.get("optional")
        if isinstance(optional, Scalar) and optional.value is True:
            continue
        found[name] = _value(text, node, place)
    return found


def _value(kind: str, declared: Mapping, place: Place) -> Node:
    if kind not in LITERAL_TYPES:
        entries: dict[str, Node] = {"path": Scalar(place, _STAND_IN, _STAND_IN)}
        return _mapping(place, entries)
    allowed = declared.entries.get("enum")
    if allowed is not None and not isinstance(allowed, Scalar | Mapping) and allowed.items:
        return allowed.items[0]
    least = declared.entries.get("min")
    if kind in ("integer", "number"):
        return least if isinstance(least, Scalar) and least.value is not None else Scalar(place, 1, "1")
    if kind == "boolean":
        return Scalar(place, False, "false")
    return Scalar(place, _STAND_IN, _STAND_IN)


def _is_left_to_steps(problem: Problem) -> bool:
    return _short(problem.key) in _FROM_STEPS and problem.message.startswith("is missing")


def _is_ours(problem: Problem, left: list[Problem]) -> bool:
    """Whether a problem belongs to a stand-in, not to the component."""
    # A step without a task has no settings that could be judged, and is itself left to the steps.
    return problem in left or _STAND_IN in problem.message


def _renamed(problem: Problem) -> Problem:
    message = problem.message.replace(f"jobs.{_STEP}.", "").replace(full_name(_STEP, ""), "")
    return problem._replace(key=_short(problem.key), message=message)


def _short(key: str) -> str:
    """A key as it is written in the component."""
    for prefix in (f"jobs.{_STEP}.component", f"jobs.{_STEP}"):
        if key == prefix or key.startswith(f"{prefix}."):
            return key.removeprefix(prefix).removeprefix(".")
    return key
