"""As `azureml.pipeline.core.graph`."""

from __future__ import annotations

from windrow.ml.v1.named import PipelineParameter

__all__ = ["PipelineParameter"]
