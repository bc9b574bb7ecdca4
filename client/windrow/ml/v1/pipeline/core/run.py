"""As `azureml.pipeline.core.run`."""

from __future__ import annotations

from windrow.ml.v1.runs import PipelineRun, StepRun

__all__ = ["PipelineRun", "StepRun"]
