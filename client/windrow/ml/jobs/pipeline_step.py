"""Pipelines within pipelines, and the steps of a file.

A step may be a pipeline: one whose function was called in another's, or a component of that type. Copying one reads
its tree again, so reading pipelines and steps from a tree is here as well.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from windrow.ml.jobs.control_steps import ControlStep
from windrow.ml.jobs.pipeline_job import PipelineJob
from windrow.ml.jobs.ports import PipelineInput
from windrow.ml.jobs.step import Step, begin_pipeline, end_pipeline
from windrow.spec.job.components import control_type, is_flow, told_type
from windrow.spec.naming.locations import absolute, parse_location
from windrow.spec.reading.context import Context
from windrow.spec.reading.from_python import mapping
from windrow.spec.reading.nodes import Mapping as MappingNode
from windrow.spec.reading.nodes import Node, Scalar, is_null
from windrow.spec.reading.yaml_files import read_yaml


class PipelineStep(Step):
    """A step with a pipeline of its own, whose steps may still be changed.

    Not v1's `PipelineStep`, which is any step.
    """

    def __init__(
        self,
        pipeline: PipelineJob,
        *,
        settings: Mapping[str, Any] | None = None,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
    ) -> None:
        """`settings`, `inputs` and `outputs` are those of the step in the outer pipeline. Inputs that are None are left
        out.
        """
        self._pipeline = pipeline
        super().__init__("pipeline", settings or {}, outputs=outputs, component=_component(pipeline))
        for name, given in (inputs or {}).items():
            if given is not None:
                setattr(self._inputs, name, given)

    @property
    def jobs(self) -> dict[str, Step]:
        """The steps of the inner pipeline, by name."""
        return self._pipeline.jobs

    @property
    def component(self) -> PipelineJob:  # type: ignore[override]  # of other steps it is the step itself
        """The inner pipeline."""
        return self._pipeline

    def to_node(self) -> MappingNode:
        """The entry in the outer pipeline's `jobs`, with the inner steps as they are now."""
        self._component = _component(self._pipeline)
        return super().to_node()

    def __deepcopy__(self, memo: dict[int, Any]) -> PipelineStep:
        made = super().__deepcopy__(memo)
        assert isinstance(made, PipelineStep)
        tree = _component(self._pipeline)
        made._pipeline = pipeline_from_tree(tree, self._pipeline.file, Context(tree.place.source, embedded=True))
        return made


def _component(pipeline: PipelineJob) -> MappingNode:
    """The pipeline as a component, which declares all of its inputs, also those without type or value."""
    place = pipeline._place
    node = pipeline.to_node()
    inputs = mapping({name: port.to_entry() for name, port in pipeline.inputs.items()}, place)
    return mapping({**node.entries, "inputs": inputs}, place)


def pipeline_from_tree(root: MappingNode, path: str, context: Context, around: tuple[str, ...] = ()) -> PipelineJob:
    """Make the pipeline of a tree, with steps of its own. `around`: the component files that contain it."""
    jobs = root.entries.get("jobs")
    steps: dict[str, Step] = {}
    begin_pipeline()  # inside a pipeline's function, these are not its steps
    for name, node in jobs.entries.items() if isinstance(jobs, MappingNode) else ():
        if isinstance(node, MappingNode):
            steps[name] = step_from_tree(node, context, around=around)
        else:
            context.problems.error(node, f"jobs.{name}", "is not a step; a step must be a mapping.")
    end_pipeline()
    inputs, outputs = root.entries.get("inputs"), root.entries.get("outputs")
    job = PipelineJob(
        written=root,
        file=path,
        spelled=context.problems.spelled,
        jobs=steps,
        inputs={
            name: _pipeline_input(name, node)
            for name, node in (inputs.entries.items() if isinstance(inputs, MappingNode) else ())
        },
    )
    for name, node in outputs.entries.items() if isinstance(outputs, MappingNode) else ():
        job.outputs[name] = node
    return job


def step_from_tree(
    node: MappingNode, context: Context, *, as_component: bool = False, path: str = "", around: tuple[str, ...] = ()
) -> Step:
    """Make a step of a file, with its component, which declares inputs and outputs. `path`: the component's file."""
    if control_type(node):
        return ControlStep(control_type(node), node)
    component = node if as_component else None
    written = node.entries.get("component")
    if isinstance(written, MappingNode):
        component = written
    elif isinstance(written, Scalar) and written.value is not None:
        found = _local_file(written)
        if found is not None and found not in around:  # else reading the job reports it
            component, path = _component_file(found, context), found
    kind = _type(node) or (_type(component) if component else "") or "parallel"
    settings = {} if as_component else {k: v for k, v in node.entries.items() if k not in _APART}
    if component is None and written is not None:
        settings["component"] = written
    inputs = {} if as_component else _members(node, "inputs")
    outputs = {} if as_component else _members(node, "outputs")
    if kind == "pipeline" and component is not None:
        inner = pipeline_from_tree(component, path, context, (*around, path) if path else around)
        step: Step = PipelineStep(inner, settings=settings, inputs=inputs, outputs=outputs)
    else:
        step = Step(kind, settings, inputs=inputs, outputs=outputs, component=component)
    step._place = node.place
    for name in settings:
        step._places[name] = node.key_places[name]
    return step


_APART = ("type", "component", "inputs", "outputs")


def _local_file(written: Scalar) -> str | None:
    location = parse_location(written.text)
    path = absolute(location.value, written.place.source.folder) if location.kind == "local" else ""
    return path if os.path.isfile(path) else None  # reading the job reports it


def _component_file(path: str, context: Context) -> MappingNode | None:
    root = read_yaml(path, "component", context.problems)
    return root if isinstance(root, MappingNode) and not is_flow(root) else None  # reading the job reports it


def _members(node: MappingNode, name: str) -> dict[str, Node]:
    there = node.entries.get(name)
    return dict(there.entries) if isinstance(there, MappingNode) else {}


def _type(node: MappingNode) -> str:
    written = node.entries.get("type")
    if isinstance(written, Scalar) and not is_null(written):
        return written.text.strip().casefold()
    return told_type(node) or ""


def _pipeline_input(name: str, node: Node) -> PipelineInput:
    port = PipelineInput(name, node)
    port._place = node.place
    return port
