"""As `azureml.pipeline.core.builder`."""

from __future__ import annotations

from windrow.ml.v1.named import PipelineData
from windrow.ml.v1.pipelines import StepSequence
from windrow.ml.v1.steps import PipelineStep

__all__ = ["PipelineData", "PipelineStep", "StepSequence"]
