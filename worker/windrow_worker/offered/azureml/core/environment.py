"""`azureml.core.environment`: see `workspace`."""

from __future__ import annotations

from .workspace import Environment, __getattr__

__all__ = ["Environment", "__getattr__"]
