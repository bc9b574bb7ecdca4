"""As `azureml.pipeline.core.pipeline`."""

from __future__ import annotations

from windrow.ml.v1.pipelines import Pipeline

__all__ = ["Pipeline"]
