"""As `azureml.data.dataset_consumption_config`."""

from __future__ import annotations

from windrow.ml.v1.named import NamedInput as DatasetConsumptionConfig

__all__ = ["DatasetConsumptionConfig"]
