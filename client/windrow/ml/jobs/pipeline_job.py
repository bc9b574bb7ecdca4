"""A pipeline job as a Python object: made by a pipeline function or loaded from YAML, and written as YAML."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from windrow.ml.attributes import Attributes
from windrow.ml.exceptions import job_file_error
from windrow.ml.jobs.ports import PipelineInput, Ports, StepOutput
from windrow.ml.jobs.step import Step
from windrow.ml.places import calling_file
from windrow.spec.reading.context import Context, ListPools
from windrow.spec.reading.from_python import mapping, scalar
from windrow.spec.reading.nodes import Mapping as MappingNode
from windrow.spec.reading.nodes import Node, Scalar, Source, is_null
from windrow.spec.writing.dumping import to_yaml

if TYPE_CHECKING:
    from windrow.spec import LoadedJob
    from windrow.spec.naming.assets import OpenLookup

_APART = ("type", "inputs", "outputs", "jobs")


class Job:
    """The base of jobs, submitted jobs and their steps, for `isinstance`. `PipelineJob` and `load_job` make jobs.

    Not `windrow.Job`, which is what a master answers about a job.
    """


class PipelineJob(Attributes, Job):
    """A pipeline: `inputs`, `outputs` and `jobs` (its steps) by name, `settings`, and its other keys as attributes.

    `MLClient.jobs` returns submitted jobs, which have a state.
    """

    def __init__(
        self,
        *,
        steps: list[Step] | None = None,
        inputs: Mapping[str, PipelineInput] | None = None,
        outputs: Mapping[str, StepOutput] | None = None,
        jobs: Mapping[str, Step] | None = None,
        written: MappingNode | None = None,
        file: str = "",
        spelled: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        """`written`: the keys of a file; `file`: its path; `spelled`: how it spells them (`Problems.spelled`)."""
        kept = written and MappingNode(
            written.place,
            {name: node for name, node in written.entries.items() if name not in _APART},
            written.key_places,
        )
        super().__init__(kept, **settings)
        self._file = file or calling_file()
        self._spelled = dict(spelled or {})
        for name, step in (jobs or {}).items():
            step._key = name
        self._steps = [*(steps or ()), *(jobs or {}).values()]
        members = {name: _input(name, given) for name, given in (inputs or {}).items()}
        self._inputs = Ports("input", "the pipeline", members, make=_input)
        self._outputs = Ports("output", "the pipeline", {}, make=_output)
        for name, bound in (outputs or {}).items():
            self._outputs._members[name] = _bound_output(name, bound)

    @property
    def type(self) -> str:
        """`pipeline`."""
        return "pipeline"

    @property
    def inputs(self) -> Ports:
        """The inputs by name."""
        return self._inputs

    @property
    def outputs(self) -> Ports:
        """The outputs by name."""
        return self._outputs

    @property
    def jobs(self) -> dict[str, Step]:
        """The steps by name."""
        return {step.key: step for step in self._steps}

    @property
    def file(self) -> str:
        """The job's file, or the script that made it."""
        return self._file

    @property
    def component(self) -> PipelineJob:
        """The pipeline itself."""
        return self

    def to_node(self) -> MappingNode:
        """Return the job as the tree of a job file."""
        settings = super().to_node()
        entries: dict[str, Node | None] = {
            "type": scalar("pipeline", self._place),
            **settings.entries,
            "inputs": mapping(
                {
                    name: port.to_entry()
                    for name, port in self._inputs.items()
                    if not port.is_optional_without_value or port._values or port.is_missing
                },
                self._place,
            ),
            "outputs": mapping({name: _entry(port) for name, port in self._outputs.items()}, self._place),
            "jobs": mapping({step.key: step.to_node() for step in self._steps}, self._place),
        }
        return mapping(entries, self._place)

    def load(
        self,
        *,
        embedded: bool = True,
        datastores: Collection[str] = (),
        assets: OpenLookup | None = None,
        pools: ListPools | None = None,
    ) -> LoadedJob:
        """Read and check the job as a job file is. Raises windrow.spec.JobFileError with all its problems.

        `assets`: opens the registry of what jobs name. `pools`: lists those of the cluster.
        """
        from windrow.spec.job.pipeline import read_pipeline

        place = self._place.source
        context = Context(
            Source("job", place.label, os.path.dirname(self._file)),
            embedded=embedded,
            datastores=datastores,
            assets=assets,
            pools=pools,
        )
        context.problems.spelled.update(self._spelled)
        loaded = read_pipeline(self.to_node(), self._file, context)
        if loaded is None:
            raise job_file_error(context)
        return loaded

    def validate(self) -> LoadedJob:
        """The same as `load`."""
        return self.load()

    def dump(self, dest: Any = None, **more: Any) -> str:
        """The job as YAML, with absolute paths; also written to `dest` (a path or an open file), if that is given."""
        text = str(self)
        if dest is not None and hasattr(dest, "write"):
            dest.write(text)
        elif dest is not None:
            with open(dest, "w", encoding="utf-8") as file:
                file.write(text)
        return text

    def __str__(self) -> str:
        """The job as YAML, with absolute paths."""
        return to_yaml(self.to_node())

    def __repr__(self) -> str:
        """Show name and steps, for a notebook's cell."""
        return f"PipelineJob({self.get('display_name') or self.get('name') or ''!r}, steps: {', '.join(self.jobs)})"


class PipelineOutput(Attributes):
    """An output of the pipeline. Its settings start as those of the step's output.

    Not the `PipelineOutput` of the effective job, which is resolved.
    """

    def __init__(self, written: MappingNode | None = None) -> None:
        """`written`: its settings."""
        super().__init__(written)


def _input(name: str, given: Any) -> PipelineInput:
    return given if isinstance(given, PipelineInput) else PipelineInput(name, given)


def _output(name: str, written: Any) -> PipelineOutput:
    if isinstance(written, MappingNode):
        return PipelineOutput(written)
    if isinstance(written, Scalar):
        entries = {} if is_null(written) else {"path": written}
        return PipelineOutput(mapping(entries, written.place))
    if isinstance(written, str):
        written = Attributes(path=written)
    elif isinstance(written, Mapping):
        written = Attributes(**written)
    return PipelineOutput(Attributes.to_node(written) if isinstance(written, Attributes) else None)


def _bound_output(name: str, bound: StepOutput) -> PipelineOutput:
    """An output of a step that a pipeline's function returned. Raises ValueError if it was returned twice."""
    other = bound.__dict__.get("_pipeline_output")
    if other is not None and other != name:
        raise ValueError(
            f"the pipeline returns {bound.port_name} of step {bound.step.key} as {other} and as {name}; one name is "
            "enough"
        )
    bound._pipeline_output = name
    return PipelineOutput(mapping(bound.settings(), bound._place))


def _entry(port: PipelineOutput) -> Node:
    node = Attributes.to_node(port)
    return node if node.entries else scalar(None, port._place)
