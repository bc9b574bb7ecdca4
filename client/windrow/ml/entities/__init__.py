"""What jobs are made of beside steps: environments, assets, resources, pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.ml.entities.assets import Asset, Data, Model
from windrow.ml.entities.compute import AmlCompute, Compute
from windrow.ml.entities.environment import BuildContext, Environment
from windrow.ml.entities.identity import ManagedIdentityConfiguration, UserIdentityConfiguration
from windrow.ml.entities.resources import (
    JobResourceConfiguration,
    PipelineJobSettings,
    ResourceConfiguration,
    RetrySettings,
)

if TYPE_CHECKING:
    from windrow.ml.pipeline_job import PipelineJob
    from windrow.ml.steps import Step

    Command = Component = Parallel = Step

__all__ = [
    "AmlCompute",
    "Asset",
    "BuildContext",
    "Command",
    "Component",
    "Compute",
    "Data",
    "Environment",
    "JobResourceConfiguration",
    "ManagedIdentityConfiguration",
    "Model",
    "Parallel",
    "PipelineJob",
    "PipelineJobSettings",
    "ResourceConfiguration",
    "RetrySettings",
    "Step",
    "UserIdentityConfiguration",
]

_LAZY = {"PipelineJob": "windrow.ml.pipeline_job", "Step": "windrow.ml.steps"}
_STEPS = ("Command", "Component", "Parallel")
"""What the vendor has classes for is all a `Step` here."""


def __getattr__(name: str) -> object:
    """Imports what is asked for: jobs and steps use these entities."""
    if name in _STEPS:
        name = "Step"
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
