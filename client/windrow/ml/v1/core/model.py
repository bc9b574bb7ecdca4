"""As `azureml.core.model`."""

from __future__ import annotations

from windrow.ml.v1.models import Model

__all__ = ["Model"]
