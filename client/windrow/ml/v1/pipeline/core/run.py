"""As `azureml.pipeline.core.run`."""

from __future__ import annotations

from windrow.ml.v1.absent import refusing
from windrow.ml.v1.runs import PipelineRun, StepRun

__all__ = ["PipelineRun", "StepRun"]

__getattr__ = refusing(__name__)
