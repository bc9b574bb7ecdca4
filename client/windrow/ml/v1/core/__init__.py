"""As `azureml.core`."""

from __future__ import annotations

from windrow import __version__ as VERSION
from windrow.ml.v1.absent import refusing
from windrow.ml.v1.compute import ComputeTarget
from windrow.ml.v1.datasets import Dataset
from windrow.ml.v1.environment import Environment, RunConfiguration
from windrow.ml.v1.models import Model
from windrow.ml.v1.pipelines import Experiment
from windrow.ml.v1.runs import PipelineRun as Run
from windrow.ml.v1.stores import Datastore
from windrow.ml.v1.workspace import Workspace

__all__ = [
    "VERSION",
    "ComputeTarget",
    "Dataset",
    "Datastore",
    "Environment",
    "Experiment",
    "Model",
    "Run",
    "RunConfiguration",
    "Workspace",
]

__getattr__ = refusing(__name__)
