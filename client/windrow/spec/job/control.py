"""Control nodes of a pipeline: `if_else`, which runs one of two blocks, and `do_while`, which repeats a body.

A loop is unrolled when the file is read: its body is a step of the job once for each iteration that there may be
(`body`, `body_2`, …). Those after the last iteration are skipped.
Reference: docs/reference/azure-ml/parallel-job.md#control-nodes.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingType
from typing import NamedTuple

from windrow.spec.naming.expressions import whole_reference
from windrow.spec.reading.context import Context
from windrow.spec.reading.from_python import mapping, scalar
from windrow.spec.reading.keys import as_mapping, check_keys, read_scalar
from windrow.spec.reading.nodes import Mapping, Node, Scalar, Sequence, is_null, shown
from windrow.spec.settings.schema import DO_WHILE, DO_WHILE_LIMITS, IF_ELSE


class Choice(NamedTuple):
    """An `if_else` node. `blocks`: by what its condition has to be, the nodes that it runs, with their places."""

    name: str
    home: str
    place: Mapping
    condition: Scalar
    blocks: dict[bool, list[tuple[str, Scalar]]]


class Loop(NamedTuple):
    """A `do_while` node.

    `body`: the name in its pipeline of the step that it repeats. `feeds`: by input of the body, the output of the
    iteration before that it gets. `condition`: the output of the body that says whether there is another iteration;
    None: there is one as long as `most` allows it.
    """

    name: str
    home: str
    place: Mapping
    body: str
    body_place: Scalar
    feeds: dict[str, tuple[str, Scalar]]
    condition: Scalar | None
    condition_output: str
    most: int
    most_place: Node


def read_choice(name: str, home: str, node: Mapping, key: str, context: Context) -> Choice | None:
    """Reads an `if_else` node. None, with an error, if it is wrong."""
    check_keys(node, IF_ELSE, key, context)
    problems, before = context.problems, len(context.problems.errors)
    condition = node.entries.get("condition")
    if not isinstance(condition, Scalar) or is_null(condition):
        problems.error(
            condition or node,
            f"{key}.condition",
            "is missing; write a binding to a boolean output, as in ${{parent.jobs.check.outputs.go}}, or to a "
            "boolean input of the pipeline.",
        )
    blocks = {True: _block(node, "true_block", key, context), False: _block(node, "false_block", key, context)}
    if len(problems.errors) > before or not isinstance(condition, Scalar):
        return None
    if not blocks[True] and not blocks[False]:
        problems.error(
            node, key, "has neither true_block nor false_block; name the steps to run: ${{parent.jobs.<step>}}."
        )
        return None
    first = {name for name, _ in blocks[True]}
    for other, place in blocks[False]:
        if other in first:
            problems.error(
                place, f"{key}.false_block", f"names the step {other}, as true_block does; remove it from one of them."
            )
            return None
    return Choice(name, home, node, condition, blocks)


def _block(node: Mapping, which: str, key: str, context: Context) -> list[tuple[str, Scalar]]:
    """The nodes that a block names, each with its place."""
    written = node.entries.get(which)
    if written is None or is_null(written):
        return []
    named: list[tuple[str, Scalar]] = []
    for item in written.items if isinstance(written, Sequence) else (written,):
        name = _node_name(item)
        if name is None or not isinstance(item, Scalar):
            context.problems.error(
                item, f"{key}.{which}", f"is {shown(item)}; name steps of the pipeline, as in ${{{{parent.jobs.x}}}}."
            )
        elif name not in [known for known, _ in named]:
            named.append((name, item))
    return named


def _node_name(node: Node | None) -> str | None:
    """The name in `${{parent.jobs.<name>}}`; None for anything else."""
    try:
        reference = whole_reference(node.text) if isinstance(node, Scalar) else None
    except ValueError:
        return None
    return reference.step if reference is not None and reference.scope == "parent.jobs" else None


def read_loop(name: str, home: str, node: Mapping, key: str, context: Context) -> Loop | None:
    """Reads a `do_while` node. None, with an error, if it is wrong."""
    check_keys(node, DO_WHILE, key, context)
    problems, before = context.problems, len(context.problems.errors)
    written = node.entries.get("body")
    body = _node_name(written)
    if body is None or not isinstance(written, Scalar):
        what = "is missing" if written is None or is_null(written) else f"is {shown(written)}"
        problems.error(
            written or node, f"{key}.body", f"{what}; name the step to repeat, as in ${{{{parent.jobs.x}}}}."
        )
        return None
    limits = as_mapping(node.entries.get("limits"), f"{key}.limits", context)
    given = limits.entries.get("max_iteration_count") if limits is not None else None
    count: object = None
    if limits is not None:
        check_keys(limits, DO_WHILE_LIMITS, f"{key}.limits", context)
    if given is None or is_null(given):
        problems.error(
            limits or node,
            f"{key}.limits.max_iteration_count",
            "is missing; say how many iterations there may be at the most.",
        )
    else:
        table = DO_WHILE_LIMITS["max_iteration_count"]
        count = read_scalar(given, table, f"{key}.limits.max_iteration_count", context)
    condition = node.entries.get("condition")
    output = ""
    if condition is not None and not is_null(condition):
        output = _port(condition, body, "outputs", f"{key}.condition", context)
    feeds = _feeds(node, body, key, context)
    if len(problems.errors) > before or not isinstance(count, int) or given is None:
        return None
    place = condition if isinstance(condition, Scalar) and output else None
    return Loop(name, home, node, body, written, feeds, place, output, count, given)


def _feeds(node: Mapping, body: str, key: str, context: Context) -> dict[str, tuple[str, Scalar]]:
    """By input of the body, the output that it gets from the iteration before."""
    found: dict[str, tuple[str, Scalar]] = {}
    written = as_mapping(node.entries.get("mapping"), f"{key}.mapping", context)
    if "mapping" not in node.entries:
        context.problems.error(
            node,
            f"{key}.mapping",
            "is missing; say which output goes into which input of the next iteration, or write {} if none does.",
        )
    for text, target in written.entries.items() if written is not None else ():
        place = written.key_places[text] if written is not None else target.place
        output = _port(Scalar(place, text, text), body, "outputs", f"{key}.mapping", context)
        for item in target.items if isinstance(target, Sequence) else (target,):
            wanted = _port(item, body, "inputs", f"{key}.mapping", context)
            if wanted in found and wanted:
                context.problems.error(
                    item,
                    f"{key}.mapping",
                    f"gives the input {wanted} two outputs, {found[wanted][0]} and {output}; an input gets one.",
                )
            elif output and wanted and isinstance(item, Scalar):
                found[wanted] = (output, item)
    return found


def _port(node: Node, body: str, kind: str, key: str, context: Context) -> str:
    """The name of an output (or input) of a loop's body: a bare name, or a binding to it. "", with an error, for
    anything else."""
    text = node.text.strip() if isinstance(node, Scalar) and not is_null(node) else ""
    try:
        reference = whole_reference(text)
    except ValueError:
        text = ""
    else:
        if reference is not None:
            is_own = reference.scope == f"parent.jobs.{kind}" and reference.step == body
            text = reference.name if is_own else ""
    if not text or "${{" in text:
        context.problems.error(
            node,
            key,
            f"names {shown(node)}; it must be one of the {kind} of the body, by its name or as "
            f"${{{{parent.jobs.{body}.{kind}.<name>}}}}.",
        )
        return ""
    return text


def iteration_name(body: str, number: int) -> str:
    """The name of an iteration of a loop's body."""
    return body if number == 1 else f"{body}_{number}"


def iteration_of(step: Mapping, loop: Loop, number: int) -> Mapping:
    """The node of an iteration: that of the body, with inputs from the iteration before, and, but for the last, without
    the bindings of its outputs to outputs of the pipeline.
    """
    entries = dict(step.entries)
    if number > 1 and loop.feeds:
        own = entries.get("inputs")
        given = dict(own.entries) if isinstance(own, Mapping) else {}
        before = iteration_name(loop.body, number - 1)
        for name, (output, place) in loop.feeds.items():
            given[name] = _bound(given.get(name), f"${{{{parent.jobs.{before}.outputs.{output}}}}}", place)
        entries["inputs"] = mapping(given, step.place)
    outputs = entries.get("outputs")
    if number < loop.most and isinstance(outputs, Mapping):
        unbound = {name: _unbound(output) for name, output in outputs.entries.items()}
        entries["outputs"] = Mapping(outputs.place, unbound, outputs.key_places)
    return step._replace(entries=entries)


def _bound(given: Node | None, binding: str, place: Scalar) -> Node:
    """An input that has another value: it keeps its type and mode."""
    node = Scalar(place.place, binding, binding)
    if not isinstance(given, Mapping):
        return node
    kept = {name: value for name, value in given.entries.items() if name not in ("path", "value", "default")}
    return Mapping(given.place, {**kept, "path": node}, {**given.key_places, "path": place.place})


def _unbound(output: Node) -> Node:
    """An output without its binding to an output of the pipeline."""
    if isinstance(output, Scalar):
        return scalar(None, output.place) if _is_binding(output) else output
    if isinstance(output, Mapping) and _is_binding(output.entries.get("path")):
        kept = {name: value for name, value in output.entries.items() if name != "path"}
        return output._replace(entries=kept)
    return output


def _is_binding(node: Node | None) -> bool:
    try:
        reference = whole_reference(node.text) if isinstance(node, Scalar) else None
    except ValueError:
        return False  # reading the output reports it
    return reference is not None and reference.scope == "parent.outputs"


def ports_of(declared: MappingType[str, Node] | None, given: MappingType[str, Node]) -> list[str]:
    """The names of a step's inputs or outputs, declared or given."""
    return list(dict.fromkeys([*(declared or {}), *given]))
