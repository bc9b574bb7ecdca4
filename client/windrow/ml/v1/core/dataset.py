"""As `azureml.core.dataset`."""

from __future__ import annotations

from windrow.ml.v1.datasets import Dataset

__all__ = ["Dataset"]
