"""As `azureml.pipeline.steps.parallel_run_step`."""

from __future__ import annotations

from windrow.ml.v1.steps import ParallelRunStep

__all__ = ["ParallelRunStep"]
