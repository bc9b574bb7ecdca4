"""As `azureml.data.data_reference`."""

from __future__ import annotations

from windrow.ml.v1.stores import DataReference

__all__ = ["DataReference"]
