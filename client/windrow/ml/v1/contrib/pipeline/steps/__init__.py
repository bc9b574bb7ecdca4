"""As `azureml.contrib.pipeline.steps`, the older place of these: `azureml.pipeline.steps`."""

from __future__ import annotations

from windrow.ml.v1.steps import ParallelRunConfig, ParallelRunStep

__all__ = ["ParallelRunConfig", "ParallelRunStep"]
