# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.compute import ComputeTarget
from windrow.ml.v1.compute import ComputeTargetException

__all__ = [
    "ComputeTarget",
    "ComputeTargetException",
]
