"""As `azureml.data.file_dataset`."""

from __future__ import annotations

from windrow.ml.v1.datasets import FileDataset

__all__ = ["FileDataset"]
