"""`azureml.core.dataset`: see `workspace`."""

from __future__ import annotations

from .workspace import Dataset, __getattr__

__all__ = ["Dataset", "__getattr__"]
