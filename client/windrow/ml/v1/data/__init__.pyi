# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.bindings import OutputFileDatasetConfig
from windrow.ml.v1.datasets import FileDataset
from windrow.ml.v1.datasets import TabularDataset
from windrow.ml.v1.table_options import DataType

__all__ = [
    "DataType",
    "FileDataset",
    "OutputFileDatasetConfig",
    "TabularDataset",
]
