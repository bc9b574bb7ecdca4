"""As `azureml.pipeline.steps.data_transfer_step`."""

from __future__ import annotations

from windrow.ml.v1.absent import refusing

__getattr__ = refusing(__name__)
