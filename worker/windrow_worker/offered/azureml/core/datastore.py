"""`azureml.core.datastore`: see `workspace`."""

from __future__ import annotations

from .workspace import Datastore, __getattr__

__all__ = ["Datastore", "__getattr__"]
