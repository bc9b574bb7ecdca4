# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.steps import ParallelRunConfig
from windrow.ml.v1.steps import ParallelRunStep
from windrow.ml.v1.steps import PythonScriptStep

__all__ = [
    "ParallelRunConfig",
    "ParallelRunStep",
    "PythonScriptStep",
]
