# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.runs import PipelineRun
from windrow.ml.v1.runs import StepRun

__all__ = [
    "PipelineRun",
    "StepRun",
]
