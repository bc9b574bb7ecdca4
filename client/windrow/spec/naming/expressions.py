"""The expressions of a job file: `${{inputs.x}}`, `${{parent.jobs.s.outputs.y}}`, `$[[ --flag ${{inputs.x}} ]]`.

Reference: docs/reference/azure-ml/parallel-job.md#tasks, #expressions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

_EXPRESSION = re.compile(r"\$\{\{\s*(?:([\w.-]+)\s*)?\}\}", re.ASCII)
_LINE_END = re.compile(r"""('[^']*'|"(?:[^"\\]|\\.)*"|\\[^\n])|\\\n""", re.DOTALL)
"""Quoted text and escapes, which stay (group 1), or a backslash that continues a line."""


class Reference(NamedTuple):
    """What an expression names.

    `scope` is `inputs`, `outputs` (of the step itself), `parent.inputs`, `parent.outputs` (of the pipeline),
    `parent.jobs.inputs`, `parent.jobs.outputs` (of the step named by `step`), `parent.jobs` (the step itself),
    `name` or `default_datastore`.
    """

    scope: str
    name: str = ""
    step: str = ""


class AlreadyReported(ValueError):
    """A reference leads to something wrong that an error already names; a second error would only mislead."""


def parse_reference(path: str) -> Reference:
    """Parses the inside of one expression. Raises ValueError for an unknown form."""
    match path.split("."):
        case [("name" | "default_datastore") as scope]:
            return Reference(scope)
        case [("inputs" | "outputs") as scope, name] if name:
            return Reference(scope, name)
        case ["parent", ("inputs" | "outputs") as scope, name] if name:
            return Reference(f"parent.{scope}", name)
        case ["parent", "jobs", step] if step:
            return Reference("parent.jobs", "", step)
        case ["parent", "jobs", step, ("inputs" | "outputs") as scope, name] if step and name:
            return Reference(f"parent.jobs.{scope}", name, step)
    raise ValueError(
        f"${{{{{path}}}}} is not a known expression; known are ${{{{inputs.x}}}}, "
        "${{outputs.x}}, ${{parent.inputs.x}}, "
        "${{parent.outputs.x}}, ${{parent.jobs.<step>.inputs.x}}, "
        "${{parent.jobs.<step>.outputs.x}}, ${{name}}, ${{default_datastore}}"
    )


def has_expression(text: str) -> bool:
    """Whether the text holds an expression, even a malformed one."""
    return "${{" in text


def whole_reference(text: str) -> Reference | None:
    """The reference if the text is one expression and nothing else; None for any other text.

    Raises ValueError for an unknown one.
    """
    if not has_expression(text):
        return None
    found = _EXPRESSION.fullmatch(text.strip())
    return parse_reference(found[1] or "") if found else None


def substitute(text: str, resolve: Callable[[Reference], str]) -> str:
    """The text with each expression replaced by `resolve(reference)`.

    Raises ValueError for a malformed or unknown expression.
    """
    if not has_expression(text):
        return text
    pieces: list[str] = []
    position = 0
    for found in _EXPRESSION.finditer(text):
        pieces += _plain(text[position : found.start()]), resolve(parse_reference(found[1] or ""))
        position = found.end()
    pieces.append(_plain(text[position:]))
    return "".join(pieces)


def references(text: str) -> list[Reference]:
    """All references of a text, in order. Raises ValueError as `substitute` does."""
    found: list[Reference] = []

    def note(reference: Reference) -> str:
        found.append(reference)
        return ""

    substitute(text, note)
    return found


def written(reference: Reference) -> str:
    """The reference as an expression, without spaces inside."""
    match reference.scope:
        case "name" | "default_datastore":
            path: str = reference.scope
        case "parent.jobs.inputs" | "parent.jobs.outputs":
            path = f"parent.jobs.{reference.step}.{reference.scope.rpartition('.')[2]}.{reference.name}"
        case "parent.jobs":
            path = f"parent.jobs.{reference.step}"
        case _:
            path = f"{reference.scope}.{reference.name}"
    return f"${{{{{path}}}}}"


def expand_groups(text: str, is_absent: Callable[[Reference], bool]) -> str:
    """The text with optional groups `$[[ … ]]` unwrapped, or dropped where one of their references has no value.

    Raises ValueError for a group that is not closed.
    """
    pieces: list[str] = []
    rest = text
    while "$[[" in rest:
        before, _, opened = rest.partition("$[[")
        group, end, rest = opened.partition("]]")
        if not end:
            raise ValueError(f"the optional group $[[{opened[:40]} is not closed; close it with ]]")
        if "$[[" in group:
            raise ValueError(f"an optional group cannot hold another one: $[[{group}]]")
        pieces.append(before)
        if not any(is_absent(reference) for reference in references(group)):
            pieces.append(f" {group} ")
    return "".join(pieces) + rest


def split_arguments(text: str) -> list[str]:
    """Program arguments split as a shell would split them.

    Spaces inside expressions are dropped first, so that no expression is split. Outside quotes, a backslash at the end
    of a line continues it.

    Raises ValueError for a quote that is not closed, and as `substitute` does.
    """
    # Imported here: most users of this module (master, agent) never split arguments.
    import shlex

    try:
        return shlex.split(_LINE_END.sub(lambda found: found[1] or "", substitute(text, written)))
    except ValueError as error:
        if "quotation" in str(error):
            raise ValueError("a quote is opened but never closed; close it, or escape it with a backslash") from None
        if "escaped" in str(error):
            raise ValueError("ends with a backslash that escapes nothing; remove the backslash") from None
        raise


def _plain(text: str) -> str:
    start = text.find("${{")
    if start >= 0:
        raise ValueError(
            f"{text[start : start + 40]} is not a well-formed expression; write it as in ${{{{inputs.x}}}}"
        )
    return text
