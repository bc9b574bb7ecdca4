# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.compute import ComputeTarget
from windrow.ml.v1.datasets import Dataset
from windrow.ml.v1.datastores import Datastore
from windrow.ml.v1.environment import Environment
from windrow.ml.v1.environment import RunConfiguration
from windrow.ml.v1.ignored import ContainerRegistry
from windrow.ml.v1.models import Model
from windrow.ml.v1.pipelines import Experiment
from windrow.ml.v1.runs import PipelineRun as Run
from windrow.ml.v1.workspace import Workspace
VERSION: str

__all__ = [
    "ComputeTarget",
    "ContainerRegistry",
    "Dataset",
    "Datastore",
    "Environment",
    "Experiment",
    "Model",
    "Run",
    "RunConfiguration",
    "VERSION",
    "Workspace",
]
