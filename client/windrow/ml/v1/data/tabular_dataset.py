"""As `azureml.data.tabular_dataset`."""

from __future__ import annotations

from windrow.ml.v1.datasets import TabularDataset

__all__ = ["TabularDataset"]
