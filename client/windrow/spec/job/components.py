"""Steps merged with the components that they name; the step's own keys win.

Reference: docs/reference/azure-ml/parallel-job.md#parallel-steps (component);
docs/reference/azure-ml/client.md#zero-and-unset, #dumped-jobs.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from windrow.spec.naming.assets import COMPONENT as COMPONENT_KIND
from windrow.spec.naming.locations import absolute, parse_location, why_unreachable
from windrow.spec.reading.context import Context
from windrow.spec.reading.keys import as_mapping, check_keys
from windrow.spec.reading.nodes import Mapping, Node, Scalar, is_null, shown
from windrow.spec.reading.yaml_files import read_yaml
from windrow.spec.settings.schema import (
    COMMAND_COMPONENT,
    COMMAND_STEP,
    COMPONENT,
    PIPELINE_COMPONENT,
    PIPELINE_STEP,
    STEP,
)

_TABLES = {
    "parallel": (STEP, COMPONENT),
    "command": (COMMAND_STEP, COMMAND_COMPONENT),
    "pipeline": (PIPELINE_STEP, PIPELINE_COMPONENT),
}
"""By type: the keys of a step, and those of its component."""

MERGED_KEYS = {
    "parallel": (
        "input_data",
        "output_data",
        "mini_batch_size",
        "partition_keys",
        "resources",
        "max_concurrency_per_instance",
        "logging_level",
        "error_threshold",
        "mini_batch_error_threshold",
        "retry_settings",
        "environment_variables",
        "identity",
        "is_deterministic",
        "task",
    ),
    "command": (
        "command",
        "code",
        "environment",
        "limits",
        "resources",
        "environment_variables",
        "identity",
        "is_deterministic",
    ),
    "pipeline": ("jobs",),
}
"""By type: the keys that a step takes from its component unless it sets them itself."""


FLOW = "is a prompt flow, which Windrow does not support; write what it does as the run() of a parallel step"


def is_flow(component: Mapping) -> bool:
    """Whether a component's file is that of a prompt flow, or of a run of a prompt flow."""
    return not {"nodes", "flow"}.isdisjoint(component.entries)


class StepNodes(NamedTuple):
    """A step as written. `type` is parallel, command or pipeline.

    Not the core's `StepNodes`, which is about machines.

    `settings` are those of step and component, merged; inputs and outputs are as given by the step and as declared by
    the component.

    `inline_component` is the mark of a dumped pipeline, in which empty outputs are missing. `component` is as written.
    """

    place: Node
    settings: Mapping
    inputs: dict[str, Node]
    outputs: dict[str, Node]
    declared_inputs: dict[str, Node] | None
    declared_outputs: dict[str, Node]
    inline_component: bool
    type: str = "parallel"
    component: Mapping | None = None


class Components:
    """Reads each component file once, however many steps name it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._read: dict[str, Mapping | None] = {}

    def step_nodes(self, step: Mapping, key: str) -> StepNodes | None:
        """Merges a step with its component.

        None, with an error, if its type is not supported or its component cannot be read.
        """
        context = self._context
        component_node = step.entries.get("component")
        component: Mapping | None = None
        if component_node is not None and not is_null(component_node):
            component = self._component(component_node, f"{key}.component")
            if component is None:
                return None
        step_type = self._type(step, component, key)
        if step_type is None:
            return None
        for mapping, table, where in zip((step, component), _TABLES[step_type], (key, f"{key}.component"), strict=True):
            if mapping is not None:
                check_keys(mapping, table, where, context)
        if component is not None and step_type == "parallel":
            component = _with_code_in_task(component)
        return self._merge(step, component, isinstance(component_node, Mapping), key, step_type)

    def without_sets(self, step: Mapping) -> tuple[Mapping, Mapping | None]:
        """A step of a job that has been read, as it would be without --set: what that changes within a value of the
        component is a whole value of the step. The second is the component if it has to be another one: in a pipeline
        that is a step, --set changes the steps of its component.
        """
        node = step.entries.get("component")
        component = None if is_null(node) or node is None else self._component(node, "component")
        step_type = None if component is None else self._type(step, component, "")
        if component is None or step_type is None:
            return step, None
        if step_type == "parallel":
            component = _with_code_in_task(component)
        given = component.entries
        whole = {
            name: _with_sets(given[name], own)
            for name, own in step.entries.items()
            if name in MERGED_KEYS[step_type] and not is_null(own) and not is_null(given.get(name))
        }
        if step_type != "pipeline" or not isinstance(jobs := whole.get("jobs"), Mapping):
            return step._replace(entries={**step.entries, **whole}), None
        kept = {name: inner for name, inner in jobs.entries.items() if not is_left_out(inner)}
        rest = {name: entry for name, entry in step.entries.items() if name not in ("jobs", "component")}
        jobs = jobs._replace(entries=kept)
        return step._replace(entries=rest), component._replace(entries={**given, "jobs": jobs})

    def _type(self, step: Mapping, component: Mapping | None, key: str) -> str | None:
        """`parallel`, `command` or `pipeline`, from the step or its component. None, with an error, for others."""
        written = step.entries.get("type")
        declared = component.entries.get("type") if component is not None else None
        # Without a type, the keys of a step or component decide, as for steps in Azure ML.
        told = told_type(component if component is not None else step)
        if is_null(written) and component is None and told is None:
            self._context.problems.error(
                step, f"{key}.type", 'is missing; a step needs "type: parallel", "type: command" or "type: pipeline".'
            )
            return None
        wanted = _folded(declared) if not is_null(declared) else told or "parallel"
        if not is_null(written):
            own = _folded(written)
            if component is not None and not is_null(declared) and own != wanted:
                self._context.problems.error(
                    written or step,
                    f"{key}.type",
                    f'is "{own}", but its component is of type "{wanted}"; remove it, or name another component.',
                )
                return None
            wanted, declared = own, written
        if wanted in _TABLES:
            return wanted
        self._context.problems.error(
            declared or step, f"{key}.type", _other_type(wanted, self._context.problems.as_spelled(key))
        )
        return None

    def _merge(
        self, step: Mapping, component: Mapping | None, inline_component: bool, key: str, step_type: str
    ) -> StepNodes:
        entries = dict(step.entries)
        for name in MERGED_KEYS[step_type] if component else ():
            given, own = component.entries.get(name) if component else None, entries.get(name)
            if given is None or is_null(given):
                continue
            if name == "is_deterministic" and inline_component and isinstance(given, Scalar) and given.value is True:
                continue  # as the vendor's client writes it for who has said nothing
            if is_null(own):
                entries[name] = given
            else:
                entries[name] = _with_sets(given, own)
        if component and not is_null(entries.get("identity")) and "identity" not in step.entries:
            self._context.problems.warn(
                entries["identity"], f"{key}.identity", f"has no effect: {STEP['identity'].effect}."
            )

        def names(owner: Mapping | None, name: str) -> dict[str, Node]:
            where = key if owner is step else f"{key}.component"
            mapping = as_mapping(owner.entries.get(name), f"{where}.{name}", self._context) if owner else None
            return mapping.entries if mapping else {}

        return StepNodes(
            place=step,
            settings=Mapping(step.place, entries, step.key_places),
            inputs=names(step, "inputs"),
            outputs=names(step, "outputs"),
            declared_inputs=names(component, "inputs") if component else None,
            declared_outputs=names(component, "outputs"),
            inline_component=inline_component,
            type=step_type,
            component=component,
        )

    def _component(self, node: Node, key: str) -> Mapping | None:
        if isinstance(node, Mapping):
            return node
        if not isinstance(node, Scalar):
            self._context.problems.error(
                node, key, f"is {shown(node)}; it must be the path of a component file, or the component itself."
            )
            return None
        path = self.path_of(node, key)
        if path is None:
            return None
        if path not in self._read:
            self._read[path] = self._file(path, node, key)
        return self._read[path]

    def path_of(self, node: Scalar, key: str) -> str | None:
        """The file of a component that a step names; None, with an error, if it names none."""
        location = parse_location(node.text)
        if location.kind == "other_host":
            self._context.problems.error(node, key, why_unreachable(location, node.text))
            return None
        if location.kind == "local":
            return absolute(location.value, node.place.source.folder)
        return self._registered(node, key)

    def _registered(self, node: Scalar, key: str) -> str | None:
        """The file of a component of the master or of a registry; None, with an error, if there is none."""
        # Few job files name one.
        from windrow.spec.assets.components import component_file, component_reference
        from windrow.spec.reading.packages import registered_file

        wanted = component_reference(node.text)
        try:
            if wanted is not None:
                return component_file(wanted)
        except ValueError as error:
            why = str(error)
        else:
            file = registered_file(node, COMPONENT_KIND, key, self._context)
            if file != "":
                return file
            why = (
                "is not a registered component. Register it (windrow component create), or give the path of the "
                "component's YAML file here."
            )
        self._context.problems.error(node, key, f"{shown(node)} {why}")
        return None

    def _file(self, file: str, node: Scalar, key: str) -> Mapping | None:
        if not os.path.isfile(file):
            what = "is a folder" if os.path.isdir(file) else "does not exist"
            self._context.problems.error(
                node,
                key,
                f"{shown(node)} {what} ({file}); give the path of the component's YAML file, relative to this file.",
            )
            return None
        root = as_mapping(read_yaml(file, "component", self._context.problems), key, self._context)
        if root is not None and is_flow(root):
            own_key = self._context.problems.as_spelled(key).removesuffix(".component")
            self._context.problems.error(
                node,
                key,
                f"{shown(node)} {FLOW}, or leave it out with --set {own_key}=null.",
            )
            return None
        return root


def told_type(owner: Mapping) -> str | None:
    """The type of a step or component that does not name it, from a key that only that type has; None if it has
    none of those.
    """
    keys = {"command": "command", "jobs": "pipeline", "task": "parallel"}
    return next((told for key, told in keys.items() if not is_null(owner.entries.get(key))), None)


def _folded(node: Node | None) -> str:
    return node.text.strip().casefold() if isinstance(node, Scalar) else ""


def control_type(node: Node) -> str:
    """The type of a control node, `if_else` or `do_while`; "" for a step."""
    written = _folded(node.entries.get("type")) if isinstance(node, Mapping) else ""
    return written if written in ("if_else", "do_while") else ""


def is_left_out(step: Node) -> bool:
    """Whether --set leaves a step of a nested pipeline out."""
    return is_null(step) and step.place.source.kind == "--set"


def _with_sets(given: Node, own: Node | None) -> Node:
    """Returns what a step says itself. --set names single keys below it, and only those replace what the component
    says.
    """
    if own is None or not isinstance(given, Mapping) or own.place.source.kind != "--set":
        return own if own is not None else given
    if not isinstance(own, Mapping):
        # An input object keeps its type and mode when it is only pointed at other data.
        is_pointed = isinstance(own, Scalar) and isinstance(own.value, str) and "path" in given.entries
        return given._replace(entries={**given.entries, "path": own}) if is_pointed else own
    entries = dict(given.entries)
    for name, node in own.entries.items():
        entries[name] = _with_sets(entries[name], node) if name in entries else node
    return Mapping(given.place, entries, {**own.key_places, **given.key_places})


def _with_code_in_task(component: Mapping) -> Mapping:
    """Moves `code` into the component's task: older files have it only beside the task."""
    code, task = component.entries.get("code"), component.entries.get("task")
    if code is None or is_null(code) or not isinstance(task, Mapping) or not is_null(task.entries.get("code")):
        return component
    places = {**task.key_places, "code": component.key_places["code"]}
    whole = Mapping(task.place, {**task.entries, "code": code}, places)
    return Mapping(component.place, {**component.entries, "task": whole}, component.key_places)


def _other_type(step_type: str, key: str) -> str:
    if step_type == "parallel_for":
        return (
            'nodes of type "parallel_for" are not supported; a parallel step runs a script over many items at once, or '
            f"write a step for each item. Leave it out with --set {key}=null."
        )
    if step_type in ("sweep", "automl", "spark", "import", "data_transfer", "finetuning"):
        return (
            f'steps of type "{step_type}" are not supported, only "parallel", "command" and "pipeline"; do its work '
            f"by hand, leave it out with --set {key}=null, and give steps that read its outputs a path of their own."
        )
    return f'"{step_type}" is not a step type; use "parallel", "command", "pipeline", "if_else" or "do_while".'
