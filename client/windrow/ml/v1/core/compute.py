"""As `azureml.core.compute`."""

from __future__ import annotations

from windrow.ml.v1.compute import AmlCompute, ComputeTarget

__all__ = ["AmlCompute", "ComputeTarget"]
