"""As `azureml.core.datastore`."""

from __future__ import annotations

from windrow.ml.v1.stores import Datastore

__all__ = ["Datastore"]
