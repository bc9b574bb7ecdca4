"""As `azureml.data.output_dataset_config`."""

from __future__ import annotations

from windrow.ml.v1.named import OutputFileDatasetConfig

__all__ = ["OutputFileDatasetConfig"]
