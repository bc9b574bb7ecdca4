"""As `azureml.data`."""

from __future__ import annotations

from windrow.ml.v1.datasets import DataType, FileDataset, TabularDataset
from windrow.ml.v1.named import OutputFileDatasetConfig

__all__ = ["DataType", "FileDataset", "OutputFileDatasetConfig", "TabularDataset"]
