"""As `azureml.core.run`."""

from __future__ import annotations

from windrow.ml.v1.absent import refusing
from windrow.ml.v1.runs import PipelineRun as Run

__all__ = ["Run"]

__getattr__ = refusing(__name__)
