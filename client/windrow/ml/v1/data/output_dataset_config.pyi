# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.bindings import OutputFileDatasetConfig

__all__ = [
    "OutputFileDatasetConfig",
]
