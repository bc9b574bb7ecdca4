"""What jobs are made of beside steps: environments, assets, resources, pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.ml.absent import refuse_absent
from windrow.ml.entities.assets import Asset, Data, Model
from windrow.ml.entities.compute import AmlCompute, Compute
from windrow.ml.entities.environment import BuildContext, Environment
from windrow.ml.entities.identity import ManagedIdentityConfiguration, UserIdentityConfiguration
from windrow.ml.entities.job import Job
from windrow.ml.entities.resources import (
    JobResourceConfiguration,
    PipelineJobSettings,
    ResourceConfiguration,
    RetrySettings,
)
from windrow.ml.entities.services import (
    JobService,
    JupyterLabJobService,
    SshJobService,
    TensorBoardJobService,
    VsCodeJobService,
)

if TYPE_CHECKING:
    from windrow.ml.command_step import command as CommandComponent
    from windrow.ml.parallel import parallel_run_function as ParallelComponent
    from windrow.ml.pipeline_job import PipelineJob
    from windrow.ml.pipeline_step import PipelineStep as PipelineComponent
    from windrow.ml.steps import Step

    Command = Component = Parallel = Step

__all__ = [
    "AmlCompute",
    "Asset",
    "BuildContext",
    "Command",
    "CommandComponent",
    "Component",
    "Compute",
    "Data",
    "Environment",
    "Job",
    "JobResourceConfiguration",
    "JobService",
    "JupyterLabJobService",
    "ManagedIdentityConfiguration",
    "Model",
    "Parallel",
    "ParallelComponent",
    "PipelineComponent",
    "PipelineJob",
    "PipelineJobSettings",
    "ResourceConfiguration",
    "RetrySettings",
    "SshJobService",
    "Step",
    "TensorBoardJobService",
    "UserIdentityConfiguration",
    "VsCodeJobService",
]

_LAZY = {
    "CommandComponent": ("windrow.ml.command_step", "command"),
    "ParallelComponent": ("windrow.ml.parallel", "parallel_run_function"),
    "PipelineComponent": ("windrow.ml.pipeline_step", "PipelineStep"),
    "PipelineJob": ("windrow.ml.pipeline_job", "PipelineJob"),
    "Step": ("windrow.ml.steps", "Step"),
}
_STEPS = ("Command", "Component", "Parallel")
"""What the vendor has classes for is all a `Step` here."""


def __getattr__(name: str) -> object:
    """Imports what is asked for: jobs and steps use these entities."""
    if name in _STEPS:
        name = "Step"
    if name not in _LAZY:
        refuse_absent(__name__, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _LAZY[name]
    return getattr(import_module(module), attribute)
