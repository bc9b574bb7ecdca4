"""Whether a step runs once all steps that it waits for have ended, or is skipped.

The values that decide are stored with the paths of the steps that made them, so every master decides alike.

Rules, in this order:
1. A step of a loop that has ended is skipped. Its outputs are those of the same step in the last iteration.
2. A step whose condition is not met is skipped.
3. A step that reads an output of a skipped step, or whose condition is one, is skipped: there is no such output. This
   does not hold for the outputs of rule 1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from windrow_master.core.settings import RunIf
from windrow_master.core.state import Step
from windrow_master.core.states import StepState
from windrow_master.core.transitions import InvariantBroken

_PASSED_ON = ("outputs", "append_row", "values", "places")
"""What a skipped iteration has of the last one."""


class Skip(NamedTuple):
    """That a step is skipped: the message for it, and its paths (those of the last iteration of its loop, if any)."""

    message: str
    paths: bytes = b"{}"


def why_skipped(step: Step, steps: Mapping[str, Step]) -> Skip | None:
    """Why a step is skipped whose predecessors are all done; None if it runs. `steps`: those of its job, by name."""
    for iteration in step.settings.iterations:
        before = steps[iteration.follows]
        if iteration.step is None or iteration.output is None:
            continue
        source = steps[iteration.step]
        if not _has_outputs(source):
            return Skip(_without(source, "whose output decides about this iteration"))
        if not _value(source, iteration.output):
            told = f"output {iteration.output!r} of step {iteration.step!r} is false"
            ended = f"Loop {iteration.node!r} has ended after {_iterations(iteration.number - 1)}: {told}."
            # A further iteration says what the first skipped one says.
            again = before.state == StepState.SKIPPED and before.message.startswith("Loop ")
            message = before.message if again else ended
            return Skip(message, _passed_on(before))
    for condition in step.settings.run_if:
        if (skip := _unmet(condition, steps)) is not None:
            return skip
    for name in step.settings.reads:
        if not _has_outputs(steps[name]):
            return Skip(_without(steps[name], "whose output it reads"))
    return None


def _unmet(condition: RunIf, steps: Mapping[str, Step]) -> Skip | None:
    """Why a condition is not met; None if it is."""
    told = f"The condition of {condition.node!r} is {_word(not condition.wanted)}"
    if condition.step is None or condition.output is None:
        return Skip(f"{told}, as the job file says.")
    source = steps[condition.step]
    if not _has_outputs(source):
        return Skip(_without(source, f"whose output is the condition of {condition.node!r}"))
    if _value(source, condition.output) is condition.wanted:
        return None
    return Skip(f"{told}: output {condition.output!r} of step {condition.step!r}.")


def _has_outputs(step: Step) -> bool:
    """Whether the outputs of a step that is done are there."""
    return step.state == StepState.COMPLETED or (step.state == StepState.SKIPPED and step.paths != b"{}")


def _value(step: Step, output: str) -> bool:
    """The boolean that an output holds. Raises InvariantBroken if it is not known."""
    value = _paths(step).get("values", {}).get(output)
    if value not in ("True", "False"):
        raise InvariantBroken(f"step {step.settings.name!r} is done, and its output {output!r} is {value!r}")
    return bool(value == "True")


def _passed_on(before: Step) -> bytes:
    paths = _paths(before) if _has_outputs(before) else {}
    return json.dumps({name: paths[name] for name in _PASSED_ON if name in paths}, sort_keys=True).encode()


def _paths(step: Step) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(step.paths)
    return found


def _without(source: Step, what: str) -> str:
    return f"Step {source.settings.name!r}, {what}, was skipped."


def _iterations(count: int) -> str:
    return "1 iteration" if count == 1 else f"{count} iterations"


def _word(value: bool) -> str:
    return "true" if value else "false"
