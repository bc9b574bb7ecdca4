# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.runs import PipelineRun as Run

__all__ = [
    "Run",
]
