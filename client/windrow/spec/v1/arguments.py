"""The `arguments` of a v1 step: what they may be, and how they become the one text of v2. Reference:
docs/reference/azure-ml/parallel-job.md#version-1, #reserved-arguments.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection
from typing import NamedTuple

from windrow.spec.naming.expressions import has_expression
from windrow.spec.reading.context import Context
from windrow.spec.reading.nodes import Node, Scalar, Sequence, is_null, shown
from windrow.spec.reading.problems import did_you_mean, listed
from windrow.spec.v1.schema import RESERVED_ARGUMENTS

_SHELL_SPECIAL = re.compile(r'["\\`]|\$(?!\{\{)')
_MARKED = re.compile(r"(parameter|side_input|input|output):(.*)", re.DOTALL)


class Names(NamedTuple):
    """What a step's arguments can refer to."""

    parameters: Collection[str] = ()
    side_inputs: Collection[str] = ()
    inputs: Collection[str] = ()
    outputs: Collection[str] = ()

    def of(self, mark: str) -> Collection[str]:
        """The names that may follow `mark:`."""
        return {
            "parameter": self.parameters,
            "side_input": self.side_inputs,
            "input": self.inputs,
            "output": self.outputs,
        }[mark]


def read_arguments(node: Node | None, names: Names, key: str, context: Context) -> list[str]:
    """Reads the arguments of a step. `parameter:p`, `side_input:s`, `input:i` and `output:o` become v2 expressions."""
    if node is None or is_null(node):
        return []
    if not isinstance(node, Sequence):
        context.problems.error(node, key, f"is {shown(node)}; it must be a list of arguments.")
        return []
    arguments: list[str] = []
    for number, item in enumerate(node.items):
        if not isinstance(item, Scalar) or is_null(item):
            context.problems.error(item, f"{key}[{number}]", f"is {shown(item)}; it must be text or a number.")
            continue
        found = _MARKED.fullmatch(item.text.strip())
        if found is None:
            arguments.append(item.text)
            continue
        mark, name = found[1], found[2].strip()
        known = names.of(mark)
        if name not in known:
            context.problems.error(
                item,
                f"{key}[{number}]",
                f'the step has no {mark.replace("_", " ")} "{name}".{did_you_mean(name, known)} '
                f"Available: {listed(known)}",
            )
            continue
        arguments.append(f"${{{{{'outputs' if mark == 'output' else 'inputs'}.{name}}}}}")
    return arguments


def check_parallel_arguments(node: Node | None, key: str, context: Context) -> None:
    """Notes errors for what a ParallelRunStep does not accept: positional arguments first, and reserved names."""
    items = [item for item in node.items if isinstance(item, Scalar)] if isinstance(node, Sequence) else []
    if items and not items[0].text.startswith("-"):
        context.problems.error(
            items[0],
            f"{key}[0]",
            f"is {shown(items[0])}; a ParallelRunStep takes named arguments: the first has to start with -.",
        )
    for item in items:
        name = item.text.removeprefix("--").partition("=")[0] if item.text.startswith("--") else ""
        if name in RESERVED_ARGUMENTS:
            setting = "the step's outputs" if name == "output" else f"{name} of the parallel_run_config"
            context.problems.error(
                item,
                key,
                f"--{name} is a reserved argument of ParallelRunStep; use {setting}, or rename the script's own.",
            )


def joined(arguments: list[str], quote: Callable[[str], str] = shlex.quote) -> str:
    """Joins arguments into one text that splits into the same arguments."""
    return " ".join(map(quote, arguments))


def shell_quote(argument: str) -> str:
    """Quotes an argument for a shell's command line. Expressions are replaced before the shell sees it, and their
    values may contain spaces, so double quotes keep them in one argument.
    """
    if not has_expression(argument):
        return shlex.quote(argument)
    return '"' + _SHELL_SPECIAL.sub(r"\\\g<0>", argument) + '"'
