# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.steps import ParallelRunStep

__all__ = [
    "ParallelRunStep",
]
