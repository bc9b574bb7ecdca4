"""As `azureml.pipeline.steps`."""

from __future__ import annotations

from windrow.ml.v1.absent import refusing
from windrow.ml.v1.steps import ParallelRunConfig, ParallelRunStep, PythonScriptStep

__all__ = ["ParallelRunConfig", "ParallelRunStep", "PythonScriptStep"]

__getattr__ = refusing(__name__)
