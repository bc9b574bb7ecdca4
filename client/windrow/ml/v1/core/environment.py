"""As `azureml.core.environment`."""

from __future__ import annotations

from windrow.ml.v1.absent import refusing
from windrow.ml.v1.environment import CondaDependencies, Environment

__all__ = ["CondaDependencies", "Environment"]

__getattr__ = refusing(__name__)
