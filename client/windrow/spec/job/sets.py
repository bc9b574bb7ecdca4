"""`--set path=value`: settings from the command line, which override those of the job file before anything else is
read. Reference: docs/reference/azure-ml/parallel-job.md#pipelines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from windrow.spec.job.components import MERGED_KEYS
from windrow.spec.job.graph import SEPARATOR
from windrow.spec.reading.nodes import Mapping, Node, Place, Scalar, Source, is_null, shown
from windrow.spec.reading.nodes import Sequence as ListNode
from windrow.spec.reading.problems import Problems, did_you_mean, listed
from windrow.spec.reading.yaml_files import parse_yaml
from windrow.spec.settings.schema import (
    COMMAND_STEP,
    DO_WHILE,
    DO_WHILE_LIMITS,
    IF_ELSE,
    INPUT,
    LIMITS,
    OUTPUT,
    PIPELINE,
    PIPELINE_SETTINGS,
    PIPELINE_STEP,
    RESOURCES,
    RETRY_SETTINGS,
    STEP,
    TASK,
)

_ANY: tuple[str, ...] = ("*",)
_SET_BY_STEP = {"inputs", "outputs", "jobs"}.union(*MERGED_KEYS.values())
"""What a step may say itself although its component says it."""


def apply_sets(nodes: Node, sets: Sequence[str], problems: Problems, source: Source) -> Node:
    """A tree with each `path=value` put in, in order; the given tree is not changed.

    A path is the dotted path of a setting, `jobs.score.resources.instance_count`; the value is read as YAML. Mappings
    on the way are made where the file has none. `jobs.<step>=null` leaves a step out. A path that no job file could
    have is an error. Relative paths in values start at `source.folder`, that of the job file.
    """
    for text in sets:
        set_source = Source("--set", f"--set {text}", source.folder)
        place = Place(set_source)
        path, equals, value_text = text.partition("=")
        steps = [part.strip() for part in path.split(".")]
        if not equals or not all(steps):
            problems.error(place, "", "is not of the form path=value, such as jobs.score.mini_batch_size=10kb.")
            continue
        errors = len(problems.errors)
        value = parse_yaml(value_text, set_source, problems) or Scalar(place, None, "")
        if len(problems.errors) > errors:
            continue
        complaint = _complaint(nodes, steps)
        if complaint:
            problems.error(place, path.strip(), complaint)
            continue
        if steps[0] == "jobs" and len(steps) == 2 and is_null(value):
            nodes = _without_step(nodes, steps[1])
            continue
        try:
            nodes = _put(nodes, steps, value, place, "")
        except ValueError as error:
            problems.error(place, path.strip(), str(error))
    return nodes


def _without_step(nodes: Node, step: str) -> Node:
    """The pipeline without one of its steps."""
    jobs = nodes.entries.get("jobs") if isinstance(nodes, Mapping) else None
    if not isinstance(nodes, Mapping) or not isinstance(jobs, Mapping):
        return nodes
    kept = {name: node for name, node in jobs.entries.items() if name != step}
    return nodes._replace(entries={**nodes.entries, "jobs": jobs._replace(entries=kept)})


def _put(node: Node | None, path: Sequence[str], value: Node, place: Place, done: str) -> Node:
    if not path:
        if (
            isinstance(node, Mapping)
            and isinstance(value, Scalar)
            and "path" in node.entries
            and isinstance(value.value, str)
        ):
            # An input object keeps its type and mode when it is only pointed at other data.
            return _put(node, ["path"], value, place, done)
        return value
    head, here = path[0], f"{done}.{path[0]}" if done else path[0]
    if node is None or is_null(node):
        node = Mapping(place, {}, {})
    if isinstance(node, ListNode):
        if not head.isdigit() or int(head) >= len(node.items):
            raise ValueError(f"{done} is a list of {len(node.items)}; name an element by its number, from 0.")
        index = int(head)
        return node._replace(
            items=(*node.items[:index], _put(node.items[index], path[1:], value, place, here), *node.items[index + 1 :])
        )
    if not isinstance(node, Mapping):
        raise ValueError(f"{done} is {shown(node)}, with nothing below it; set {done} itself.")
    entries = {**node.entries, head: _put(node.entries.get(head), path[1:], value, place, here)}
    return node._replace(entries=entries, key_places={head: place, **node.key_places})


def _complaint(root: Node, path: Sequence[str]) -> str:
    """Why no job file can have this path; empty if one can."""
    node: Node | None = root
    for index, name in enumerate(path):
        if isinstance(node, Mapping) and name in node.entries:
            node = node.entries[name]
            continue
        if (
            isinstance(node, Scalar)
            and not is_null(node)
            and index == 3
            and (path[0], path[2]) == ("jobs", "component")
        ):
            return _complaint_of_file(node, path)
        if not isinstance(node, Mapping | None) and not is_null(node):
            return ""  # `_put` says it better
        known = list(_known_below(path[:index], root))
        if known != list(_ANY) and name not in known:
            where = ".".join(path[:index]) or "a job file"
            outer, inside, inner = name.partition(SEPARATOR)
            if inside and list(path[:index]) == ["jobs"] and outer in known:
                return f"names a step of the pipeline {outer}; write jobs.{outer}.jobs.{inner} instead."
            return f'there is no "{name}" in {where}.{did_you_mean(name, known)} Available: {listed(known)}.'
        node = None
    return ""


def _complaint_of_file(component: Scalar, path: Sequence[str]) -> str:
    """What to set instead of a setting in a component's file."""
    step, name = path[1], path[3]
    there = f"jobs.{step}.component is the file {shown(component)}, which --set does not change"
    if name in _SET_BY_STEP:
        return f"{there}. Set {'.'.join(['jobs', step, *path[3:]])} instead: the step's own settings win."
    return f"{there}, and a step does not replace its {name}. Change it in that file."


def _known_below(path: Sequence[str], root: Node) -> Iterable[str]:
    """The names allowed below a path: from the tables of keys, and from the file itself."""
    match list(path):
        case []:
            return PIPELINE
        case ["pipeline" | "parallel_run_config", *_]:
            return _ANY  # keys of v1, which its readers check
        case ["settings"]:
            return PIPELINE_SETTINGS
        case ["inputs" | "outputs" | "jobs" as what]:
            return _names(root, [what])
        case ["inputs", _]:
            return INPUT
        case ["outputs", _]:
            return OUTPUT
        case ["jobs", _]:
            return {**STEP, **COMMAND_STEP, **PIPELINE_STEP, **IF_ELSE, **DO_WHILE}
        case ["jobs", step, "inputs" | "outputs" as what]:
            # Names may come from the component, which is read later.
            has_component = bool(_names(root, ["jobs", step, "component"])) or "component" in _names(
                root, ["jobs", step]
            )
            return _ANY if has_component else _names(root, ["jobs", step, what])
        case ["jobs", _, "inputs", _]:
            return INPUT
        case ["jobs", _, "outputs", _]:
            return OUTPUT
        case ["jobs", _, "retry_settings"]:
            return RETRY_SETTINGS
        case ["jobs", _, "resources"]:
            return RESOURCES
        case ["jobs", _, "limits"]:
            return {**LIMITS, **DO_WHILE_LIMITS}
        case ["jobs", _, "task"]:
            return TASK
        case (
            ["jobs", _, "component" | "jobs", *_]
            | ["tags"]
            | ["properties"]
            | ["jobs", _, "environment_variables" | "tags" | "properties"]
        ):
            return _ANY
        case (
            ["jobs", _, "task", "environment", *_]
            | ["jobs", _, "environment", *_]
            | ["identity", *_]
            | ["jobs", _, "identity", *_]
            | ["jobs", _, "resources", _, *_]
        ):
            return _ANY
    return ()


def _names(root: Node, path: Sequence[str]) -> list[str]:
    node: Node | None = root
    for name in path:
        node = node.entries.get(name) if isinstance(node, Mapping) else None
    return list(node.entries) if isinstance(node, Mapping) else []
