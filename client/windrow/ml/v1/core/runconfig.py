"""As `azureml.core.runconfig`."""

from __future__ import annotations

from windrow.ml.v1.absent import refusing
from windrow.ml.v1.environment import DEFAULT_CPU_IMAGE, DEFAULT_GPU_IMAGE, CondaDependencies, RunConfiguration

__all__ = ["DEFAULT_CPU_IMAGE", "DEFAULT_GPU_IMAGE", "CondaDependencies", "RunConfiguration"]

__getattr__ = refusing(__name__)
