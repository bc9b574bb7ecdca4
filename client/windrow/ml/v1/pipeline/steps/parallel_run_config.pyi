# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.steps import ParallelRunConfig

__all__ = [
    "ParallelRunConfig",
]
