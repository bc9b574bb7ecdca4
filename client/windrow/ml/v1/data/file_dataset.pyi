# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.datasets import FileDataset

__all__ = [
    "FileDataset",
]
