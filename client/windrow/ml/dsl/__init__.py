"""Pipelines as Python functions. Reference: docs/reference/azure-ml/parallel-job.md#pipelines."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, overload

from windrow.ml.assets.data import Input
from windrow.ml.jobs.pipeline_job import PipelineJob
from windrow.ml.jobs.pipeline_step import PipelineStep
from windrow.ml.jobs.ports import PipelineInput, Ports, StepOutput, is_data
from windrow.ml.jobs.step import Step, begin_pipeline, end_pipeline, is_inside_pipeline

_SETTINGS = {
    "default_compute": "default_compute",
    "default_compute_target": "default_compute",
    "default_datastore": "default_datastore",
    "continue_on_step_failure": "continue_on_step_failure",
    "force_rerun": "force_rerun",
}
_LITERALS = {int: "integer", float: "number", str: "string", bool: "boolean"}
_BY_NAME = {"int": "integer", "float": "number", "str": "string", "bool": "boolean"}

Function = Callable[..., Any]


@overload
def pipeline(func: Function) -> Function: ...
@overload
def pipeline(func: None = None, **settings: Any) -> Callable[[Function], Function]: ...
def pipeline(func: Function | None = None, **settings: Any) -> Any:
    """Turn a function into one that builds a pipeline: a call returns the `PipelineJob`.

    The function calls components, and may return a dictionary of the pipeline's outputs: step outputs by name. Called
    inside the function of another pipeline, it returns a step of that pipeline, with these outputs.
    `settings`: name (of the pipeline as a step, not of the job), display_name, description, experiment_name,
    tags, compute, default_compute, default_datastore, continue_on_step_failure, force_rerun; non_pipeline_inputs:
    parameters that the function gets unchanged.
    """
    if func is None:
        return lambda function: pipeline_of(function, settings)
    return pipeline_of(func, settings)


def pipeline_of(function: Function, settings: Mapping[str, Any]) -> Function:
    """The function that builds the pipeline of `function`."""
    signature = _signature(function)
    as_they_are = set(settings.get("non_pipeline_inputs") or ())

    @functools.wraps(function)
    def build(*args: Any, **kwargs: Any) -> Any:
        if is_inside_pipeline():
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return _build_inside(function, signature, settings, bound)
        bound = signature.bind_partial(*args, **kwargs)
        bound.apply_defaults()
        missing = _missing(signature, bound)
        if not as_they_are.isdisjoint(missing):
            signature.bind(*args, **kwargs)  # raises TypeError, in Python's words
        # As in Azure ML, an input may be given later, or not at all if no step uses it.
        bound.arguments.update(dict.fromkeys(missing, inspect.Parameter.empty))
        inputs = {
            name: PipelineInput(name, _typed(value, signature.parameters[name].annotation), is_missing=name in missing)
            for name, value in bound.arguments.items()
            if name not in as_they_are
        }
        for name, port in inputs.items():
            bound.arguments[name] = None if port.is_optional_without_value and not port.is_missing else port
        steps, returned, names = _run(function, bound)
        return _job(function, settings, steps, names, inputs, returned)

    return build


def _missing(signature: inspect.Signature, bound: inspect.BoundArguments) -> list[str]:
    """The parameters without a default that a call gave no value. Optional inputs are none of them."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [
        name
        for name, parameter in signature.parameters.items()
        if name not in bound.arguments and parameter.kind in kinds
    ]


def _signature(function: Function) -> inspect.Signature:
    """The function's signature, with annotations evaluated if possible: `from __future__ import annotations` makes them
    text.
    """
    try:
        return inspect.signature(function, eval_str=True)
    except Exception:  # evaluating an annotation may raise anything
        return inspect.signature(function)


def _build_inside(
    function: Function, signature: inspect.Signature, settings: Mapping[str, Any], bound: inspect.BoundArguments
) -> PipelineStep:
    """The step for a pipeline that was called inside the function of another one."""
    as_they_are = set(settings.get("non_pipeline_inputs") or ())
    given = {name: value for name, value in bound.arguments.items() if name not in as_they_are}
    declared = {name: PipelineInput(name, _declared(signature.parameters[name], given[name])) for name in given}
    for name, port in declared.items():
        bound.arguments[name] = None if given[name] is None else port
    steps, returned, names = _run(function, bound)
    job = _job(function, settings, steps, names, declared, returned)
    job["name"] = settings.get("name") or function.__name__
    return PipelineStep(job, inputs=given)


def _job(
    function: Function,
    settings: Mapping[str, Any],
    steps: list[Step],
    names: Mapping[Step, str],
    inputs: Mapping[str, PipelineInput],
    returned: Any,
) -> PipelineJob:
    for step in steps:
        step._key = ""
    _name_steps(steps, names)
    job = PipelineJob(steps=steps, inputs=inputs, outputs=_outputs(function.__name__, returned))
    job.display_name = settings.get("display_name") or settings.get("name") or function.__name__
    for key in ("description", "experiment_name", "tags", "compute"):
        if settings.get(key) is not None:
            job[key] = settings[key]
    for key, name in _SETTINGS.items():
        if settings.get(key) is not None:
            job.settings[name] = settings[key]
    return job


def _run(function: Function, bound: inspect.BoundArguments) -> tuple[list[Step], Any, dict[Step, str]]:
    steps = begin_pipeline()
    try:
        returned, names = _call(function, bound)
    finally:
        end_pipeline()
    return steps, returned, names


def _call(function: Function, bound: inspect.BoundArguments) -> tuple[Any, dict[Step, str]]:
    """What the function returned, and the variables in which it left steps."""
    left: dict[str, Any] = {}
    inner = inspect.unwrap(function)
    with _locals_at_return(inner.__code__, left):
        returned = function(*bound.args, **bound.kwargs)
    names: dict[Step, str] = {}
    for name, value in left.items():
        if isinstance(value, Step):
            names.setdefault(value, name)
    return returned, names


@contextmanager
def _locals_at_return(code: CodeType, left: dict[str, Any]) -> Iterator[None]:
    """Collect the variables of a function when it returns: steps are named after them."""
    before = sys.getprofile()

    def look(frame: FrameType, event: str, argument: Any) -> None:
        if event == "return" and frame.f_code is code:
            left.update(frame.f_locals)
        if before is not None:
            before(frame, event, argument)  # type: ignore[arg-type]  # whatever it was called with

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)


def _name_steps(steps: list[Step], names: Mapping[Step, str]) -> None:
    """Give each step its key: its own name, the variable that holds it, or its component; with a number if taken."""
    taken: set[str] = set()
    for step in steps:
        # As in Azure ML: a parallel step's own name, else the variable that holds the step.
        is_named = step.type == "parallel" and step._component is None and "name" in step._values
        own = step.default_key if is_named else ""
        key = wanted = step._renamed or own or names.get(step) or step.default_key
        number = 0
        while key in taken:
            number += 1
            key = f"{wanted}_{number}"
        taken.add(key)
        step._key = key


def _typed(value: Any, annotation: Any) -> Any:
    """A value with the type of its parameter's annotation, if it has none itself."""
    if isinstance(annotation, Input) and not is_data(value):
        made = {**annotation.to_dict()}
        if value is inspect.Parameter.empty or value is annotation:
            return Input(**made)
        key = "path" if isinstance(value, str) and made.get("type") not in _LITERALS.values() else "default"
        return Input(**{**made, key: value}) if value is not None else None
    kind = _LITERALS.get(annotation) if isinstance(annotation, type) else _BY_NAME.get(str(annotation))
    if value is inspect.Parameter.empty:
        return {"type": kind} if kind else None
    if kind and isinstance(value, (str, int, float, bool)):
        return {"type": kind, "value": value}
    return value


def _declared(parameter: inspect.Parameter, given: Any) -> Any:
    """Declare a parameter of a pipeline that is used as a step: its type and default. The value comes from outside."""
    annotation, default = parameter.annotation, parameter.default
    if isinstance(annotation, Input):
        made: dict[str, Any] = {**annotation.to_dict()}
    else:
        kind = _LITERALS.get(annotation) if isinstance(annotation, type) else _BY_NAME.get(str(annotation))
        made = {"type": kind or _LITERALS.get(type(default))}
    if isinstance(default, (str, int, float, bool)) and made.get("type") in _LITERALS.values():
        made["default"] = default
    if given is None:
        made["optional"] = True
    return {name: value for name, value in made.items() if value is not None}


def _outputs(name: str, returned: Any) -> dict[str, StepOutput]:
    if returned is None:
        return {}
    if isinstance(returned, Ports):  # `return step.outputs`: all of them
        returned = {key: returned[key] for key in returned}
    if not isinstance(returned, Mapping):
        raise TypeError(
            f"the pipeline function {name} returned {type(returned).__name__}; it has to return a dictionary of "
            "step.outputs.x by name, or nothing"
        )
    found: dict[str, StepOutput] = {}
    for key, value in returned.items():
        if not isinstance(value, StepOutput):
            raise TypeError(
                f"the pipeline function {name} returned {type(value).__name__} as {key!r}; it must be an output of a "
                "step, as in step.outputs.x"
            )
        found[str(key)] = value
    return found


__all__ = ["pipeline"]
