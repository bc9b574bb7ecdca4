"""As `azureml.data`."""

from __future__ import annotations

from windrow.ml.v1.absent import refusing
from windrow.ml.v1.column_types import DataType
from windrow.ml.v1.datasets import FileDataset, TabularDataset
from windrow.ml.v1.named import OutputFileDatasetConfig

__all__ = ["DataType", "FileDataset", "OutputFileDatasetConfig", "TabularDataset"]

__getattr__ = refusing(__name__)
