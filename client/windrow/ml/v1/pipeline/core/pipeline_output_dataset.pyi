# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.bindings import PipelineOutputFileDataset

__all__ = [
    "PipelineOutputFileDataset",
]
