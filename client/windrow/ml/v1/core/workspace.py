"""As `azureml.core.workspace`."""

from __future__ import annotations

from windrow.ml.v1.workspace import Workspace

__all__ = ["Workspace"]
