"""`azureml.core.keyvault`: see `workspace`."""

from __future__ import annotations

from .workspace import Keyvault, __getattr__

__all__ = ["Keyvault", "__getattr__"]
