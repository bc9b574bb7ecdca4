"""A step that is a pipeline itself: one whose function was called in another's, or a component of that type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.ml.pipeline_job import PipelineJob
from windrow.ml.steps import Step
from windrow.spec.reading.from_python import mapping
from windrow.spec.reading.nodes import Mapping as MappingNode


class PipelineStep(Step):
    """The step. The steps in it are those of a pipeline of its own, and may still be changed."""

    def __init__(
        self,
        pipeline: PipelineJob,
        *,
        settings: Mapping[str, Any] | None = None,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
    ) -> None:
        """`settings`, `inputs`, `outputs`: what stands beside the pipeline; inputs that are None are not given."""
        self._pipeline = pipeline
        super().__init__("pipeline", settings or {}, outputs=outputs, component=_component(pipeline))
        for name, given in (inputs or {}).items():
            if given is not None:
                setattr(self._inputs, name, given)

    @property
    def jobs(self) -> dict[str, Step]:
        """The steps in it by name."""
        return self._pipeline.jobs

    @property
    def component(self) -> PipelineJob:  # type: ignore[override]  # that of other steps is the step itself
        """The pipeline in it."""
        return self._pipeline

    def to_node(self) -> MappingNode:
        """The entry in the pipeline's `jobs`, with the steps in it as they are now."""
        self._component = _component(self._pipeline)
        return super().to_node()

    def __deepcopy__(self, memo: dict[int, Any]) -> PipelineStep:
        from windrow.ml.loading import pipeline_of_tree

        made = super().__deepcopy__(memo)
        assert isinstance(made, PipelineStep)
        made._pipeline = pipeline_of_tree(_component(self._pipeline), self._pipeline.file)
        return made


def _component(pipeline: PipelineJob) -> MappingNode:
    """The pipeline as a component, which declares all of its inputs, also those of no type and without a value."""
    place = pipeline._place
    node = pipeline.to_node()
    inputs = mapping({name: port.to_entry() for name, port in pipeline.inputs.items()}, place)
    return mapping({**node.entries, "inputs": inputs}, place)


__all__ = ["PipelineStep"]
