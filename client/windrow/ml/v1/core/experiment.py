"""As `azureml.core.experiment`."""

from __future__ import annotations

from windrow.ml.v1.pipelines import Experiment

__all__ = ["Experiment"]
