"""As `azureml.core.compute_target`."""

from __future__ import annotations

from windrow.ml.v1.compute import ComputeTarget, ComputeTargetException

__all__ = ["ComputeTarget", "ComputeTargetException"]
