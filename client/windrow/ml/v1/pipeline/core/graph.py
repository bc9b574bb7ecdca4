"""As `azureml.pipeline.core.graph`."""

from __future__ import annotations

from windrow.ml.v1.absent import refusing
from windrow.ml.v1.named import PipelineParameter

__all__ = ["PipelineParameter"]

__getattr__ = refusing(__name__)
