"""As `azureml.pipeline.steps.parallel_run_config`."""

from __future__ import annotations

from windrow.ml.v1.steps import ParallelRunConfig

__all__ = ["ParallelRunConfig"]
