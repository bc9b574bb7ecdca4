"""Control nodes of a pipeline under construction: `if_else` and `do_while`.

Reference: docs/reference/azure-ml/parallel-job.md#control-nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windrow.errors import UsageError
from windrow.ml.attributes import Attributes
from windrow.ml.jobs.ports import PipelineInput, StepInput, StepOutput
from windrow.ml.jobs.step import Step
from windrow.spec.reading.from_python import from_plain, mapping, scalar, sequence
from windrow.spec.reading.nodes import Mapping as MappingNode
from windrow.spec.reading.nodes import Node


class ControlStep(Step):
    """A control node. It stands among the steps of its pipeline, and has neither inputs nor outputs."""

    def __init__(self, kind: str, written: MappingNode | None = None) -> None:
        """`written`: the node of a file."""
        super().__init__(kind, {})
        self._written = written

    def to_node(self) -> MappingNode:
        """The entry in the pipeline's `jobs`."""
        if self._written is not None:
            return self._written
        settings = Attributes.to_node(self)
        return mapping(
            {"type": scalar(self._kind, self._place), **settings.entries, **self._entries()},
            self._place,
        )

    def _entries(self) -> dict[str, Node | None]:
        return {}


class Condition(ControlStep):
    """An `if_else` node: it runs one of two blocks of steps."""

    def __init__(self, condition: Any, true_block: Any, false_block: Any) -> None:
        """Raises UsageError for what can be no condition or block."""
        super().__init__("if_else")
        if isinstance(condition, Step):
            outputs = condition.outputs.values()
            if len(outputs) != 1:
                raise UsageError(
                    f"condition(): {condition._owner} has {len(outputs)} outputs, and a condition is one of them. Give "
                    "that output: step.outputs.name."
                )
            condition = outputs[0]
        if not isinstance(condition, (bool, str, StepOutput, PipelineInput)):
            raise UsageError(
                f"condition(): the condition is a {type(condition).__name__}; it must be an output of a step, an input "
                "of the pipeline, True or False. To compare values, let a step write true or false into an output of "
                "type boolean."
            )
        self._condition = condition
        self._blocks = {
            "true_block": _steps(true_block, "true_block"),
            "false_block": _steps(false_block, "false_block"),
        }

    @property
    def true_block(self) -> list[Step]:
        """The steps that run if the condition is true."""
        return self._blocks["true_block"]

    @property
    def false_block(self) -> list[Step]:
        """The steps that run if the condition is false."""
        return self._blocks["false_block"]

    def _entries(self) -> dict[str, Node | None]:
        condition, place = self._condition, self._place
        entries: dict[str, Node | None] = {
            "condition": scalar(condition if isinstance(condition, bool) else str(condition), place)
        }
        for name, steps in self._blocks.items():
            if steps:
                entries[name] = sequence((scalar(_named(step), place) for step in steps), place)
        return entries


class DoWhile(ControlStep):
    """A `do_while` node: it repeats a step."""

    def __init__(self, body: Any, mapping: Mapping[Any, Any], max_iteration_count: int, condition: Any = None) -> None:
        """Raises UsageError for what can be no body, mapping or condition."""
        super().__init__("do_while")
        if not isinstance(body, Step) or isinstance(body, ControlStep):
            raise UsageError(f"do_while(): the body is a {type(body).__name__}; it must be a step of the pipeline.")
        self._body = body
        self._condition = None if condition is None else self._port(condition, "condition")
        self._feeds = {
            self._port(output, "mapping"): [self._input(item) for item in _listed(inputs)]
            for output, inputs in mapping.items()
        }
        self._most = max_iteration_count

    @property
    def body(self) -> Step:
        """The step that is repeated."""
        return self._body

    def _port(self, given: Any, what: str) -> str:
        """The name of an output of the body. Raises UsageError for anything else."""
        if isinstance(given, str):
            return given
        if isinstance(given, StepOutput) and given.step is self._body:
            return given.port_name
        raise UsageError(f"do_while(): {what} names {given!r}; it must be an output of the body: body.outputs.name.")

    def _input(self, given: Any) -> str:
        if isinstance(given, str):
            return given
        if isinstance(given, StepInput):
            for name, port in self._body.inputs.items():
                if port is given:
                    return name
        raise UsageError(f"do_while(): mapping names {given!r}; it must be an input of the body: body.inputs.name.")

    def _entries(self) -> dict[str, Node | None]:
        place = self._place
        return {
            "body": scalar(_named(self._body), place),
            "condition": None if self._condition is None else scalar(self._condition, place),
            "mapping": from_plain(self._feeds, place),
            "limits": from_plain({"max_iteration_count": self._most}, place),
        }


def _named(step: Step) -> str:
    return f"${{{{parent.jobs.{step.key}}}}}"


def _listed(given: Any) -> Iterable[Any]:
    return given if isinstance(given, (list, tuple)) else [given]


def _steps(given: Any, what: str) -> list[Step]:
    """The steps of a block. Raises UsageError for anything else."""
    steps = [] if given is None else list(_listed(given))
    for step in steps:
        if not isinstance(step, Step):
            raise UsageError(f"condition(): {what} holds a {type(step).__name__}; it must hold steps of the pipeline.")
    return steps
