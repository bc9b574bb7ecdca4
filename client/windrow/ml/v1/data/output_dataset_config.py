"""As `azureml.data.output_dataset_config`."""

from __future__ import annotations

from windrow.ml.v1.absent import refusing
from windrow.ml.v1.named import OutputFileDatasetConfig

__all__ = ["OutputFileDatasetConfig"]

__getattr__ = refusing(__name__)
