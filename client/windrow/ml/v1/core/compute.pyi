# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.compute import AmlCompute
from windrow.ml.v1.compute import ComputeTarget

__all__ = [
    "AmlCompute",
    "ComputeTarget",
]
