"""As `azureml.exceptions`."""

from __future__ import annotations

from windrow.errors import UsageError as UserErrorException
from windrow.ml.v1.compute import ComputeTargetException

__all__ = ["ComputeTargetException", "UserErrorException"]
