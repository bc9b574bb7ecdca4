"""As `azureml.pipeline.core`."""

from __future__ import annotations

from windrow.ml.v1.absent import refusing
from windrow.ml.v1.named import PipelineData, PipelineParameter
from windrow.ml.v1.pipelines import Pipeline, StepSequence
from windrow.ml.v1.runs import PipelineRun, StepRun

__all__ = ["Pipeline", "PipelineData", "PipelineParameter", "PipelineRun", "StepRun", "StepSequence"]

__getattr__ = refusing(__name__)
