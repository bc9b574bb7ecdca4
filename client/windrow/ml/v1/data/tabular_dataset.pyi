# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.datasets import TabularDataset

__all__ = [
    "TabularDataset",
]
