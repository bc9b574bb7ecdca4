"""Whether the parts of an effective job fit each other: steps, the order among them, inputs, outputs, arguments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from windrow.spec.effective.job import EffectiveJob, EffectiveStep, Iteration, LiteralInput, OutputInput, RunIf
from windrow.spec.naming.expressions import references
from windrow.spec.settings.fields import TIMEOUT_S_MAX

STEPS_MAX = 1000
"""The most steps that a job may have."""


def mismatches(job: EffectiveJob) -> Iterator[str]:
    """The problems, as texts of the form `path: problem`."""
    steps = {step.name: step for step in job.steps}
    if not job.steps:
        yield "steps: there is none"
    if len(steps) != len(job.steps):
        yield "steps: two have the same name"
    for index, step in enumerate(job.steps):
        key = f"steps[{index}]"
        needed = set(step.awaits)
        for given in step.inputs.values():
            if isinstance(given, OutputInput) and (
                given.step not in steps or given.output not in steps[given.step].outputs
            ):
                yield f"{key}.inputs: there is no output {given.output} of a step {given.step}"
            elif (
                isinstance(given, OutputInput)
                and given.is_value
                and steps[given.step].outputs[given.output].value is None
            ):
                yield f"{key}.inputs: output {given.output} of step {given.step} is data, not a value"
        conditions: list[RunIf | Iteration] = [*step.run_if, *step.iterations]
        for condition in conditions:
            yield from _condition(condition, steps, key)
        if not needed <= set(step.depends_on) <= steps.keys():
            yield (
                f"{key}.depends_on: must name the steps that it awaits, and no others than the job's: {sorted(needed)}"
            )
        yield from _input_data(step, key)
        yield from _kind(step, key)
        if step.append_row_to is not None and step.append_row_to not in step.outputs:
            yield f"{key}.append_row_to: {step.append_row_to!r} is not an output"
        yield from _argument_references(step, key)
    cycle = find_cycle({step.name: step.depends_on for step in job.steps})
    if cycle:
        yield f"steps: wait for each other in a circle: {' -> '.join(cycle)}"
    for name, output in job.outputs.items():
        if output.step not in steps or output.output not in steps[output.step].outputs:
            yield f"outputs.{name}: there is no output {output.output} of a step {output.step}"


def _condition(condition: RunIf | Iteration, steps: Mapping[str, EffectiveStep], key: str) -> Iterator[str]:
    place = f"{key}.{'run_if' if isinstance(condition, RunIf) else 'iterations'}"
    if (condition.step is None) != (condition.output is None):
        yield f"{place}: needs a step and an output, or neither"
    elif condition.step is not None and condition.output is not None:
        source = steps.get(condition.step)
        if source is None or condition.output not in source.outputs:
            yield f"{place}: there is no output {condition.output} of a step {condition.step}"
        elif source.outputs[condition.output].value != "boolean":
            yield f"{place}: output {condition.output} of step {condition.step} is not a boolean"
    if isinstance(condition, Iteration) and condition.follows not in steps:
        yield f"{place}: there is no step {condition.follows}"


def _input_data(step: EffectiveStep, key: str) -> Iterator[str]:
    if step.rank_mini_batch_count:
        if step.input_data:
            yield f"{key}.input_data: must be empty with rank_mini_batch_count"
        return
    if not step.input_data:
        yield f"{key}.input_data: names no data input"
    if len(set(step.input_data)) != len(step.input_data):
        yield f"{key}.input_data: names an input twice"
    for name in step.input_data:
        given = step.inputs.get(name)
        if isinstance(given, LiteralInput | None) or (isinstance(given, OutputInput) and given.is_value):
            yield f"{key}.input_data: {name!r} names no data input"
        elif step.file_format is not None and given.type == "mltable":
            yield f"{key}.file_format: is for inputs of type uri_file and uri_folder"
    if step.mini_batch_rows is not None and step.file_format is None:
        yield f"{key}.mini_batch_rows: needs a file_format"


def _kind(step: EffectiveStep, key: str) -> Iterator[str]:
    """Problems with keys that only parallel steps may have, or only command steps."""
    if step.command is None:
        if not step.entry_script:
            yield f"{key}.entry_script: is empty"
        if step.run_invocation_timeout_s > TIMEOUT_S_MAX:
            yield f"{key}.run_invocation_timeout_s: at most {TIMEOUT_S_MAX}"
    elif step.entry_script or step.arguments or step.append_row_to is not None or step.rank_mini_batch_count != 1:
        others = "entry_script, arguments or append_row_to"
        yield f"{key}.command: needs rank_mini_batch_count 1, and cannot be combined with {others}"


def _argument_references(step: EffectiveStep, key: str) -> Iterator[str]:
    for number, argument in enumerate(step.words):
        try:
            found = references(argument)
        except ValueError as error:
            yield f"{key}.arguments[{number}]: {error}"
            continue
        for reference in found:
            known = reference.name in (step.inputs if reference.scope == "inputs" else step.outputs)
            if reference.scope not in ("inputs", "outputs") or not known:
                yield f"{key}.arguments[{number}]: names what the step does not have: {argument!r}"


def find_cycle(waits_for: Mapping[str, Iterable[str]]) -> list[str]:
    """A circle as `[a, b, a]` (a waits for b, b for a), or an empty list. Names that are not keys are ignored."""
    done: set[str] = set()
    for start in waits_for:
        path: list[str] = []
        stack: list[tuple[str, bool]] = [(start, False)]
        while stack:
            name, leaving = stack.pop()
            if leaving:
                path.pop()
                done.add(name)
            elif name in path:
                return [*path[path.index(name) :], name]
            elif name not in done and name in waits_for:
                path.append(name)
                stack.append((name, True))
                stack.extend((next_name, False) for next_name in waits_for[name])
    return []
