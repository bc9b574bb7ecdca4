# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.bindings import PipelineData
from windrow.ml.v1.pipelines import StepSequence
from windrow.ml.v1.steps import PipelineStep

__all__ = [
    "PipelineData",
    "PipelineStep",
    "StepSequence",
]
