"""As `azureml.core.model`."""

from __future__ import annotations

from windrow.ml.v1.absent import refusing
from windrow.ml.v1.models import Model

__all__ = ["Model"]

__getattr__ = refusing(__name__)
