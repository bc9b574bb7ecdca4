"""As `azureml.core.conda_dependencies`."""

from __future__ import annotations

from windrow.ml.v1.environment import CondaDependencies

__all__ = ["CondaDependencies"]
