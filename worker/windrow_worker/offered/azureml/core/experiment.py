"""`azureml.core.experiment`: see `workspace`."""

from __future__ import annotations

from .workspace import Experiment, __getattr__

__all__ = ["Experiment", "__getattr__"]
