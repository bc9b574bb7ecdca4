"""As `azureml.data.dataset_factory`."""

from __future__ import annotations

from windrow.ml.v1.column_types import DataType

__all__ = ["DataType"]
