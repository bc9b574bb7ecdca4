"""The Python API shaped like `azure.ai.ml`: a notebook written for that changes its imports, and runs on Windrow.

The builders make the same tree of settings as a YAML file, and the same reader checks it.
Reference: docs/reference/azure-ml/parallel-job.md#pipelines, #parallel-steps, #tasks, #inputs-and-outputs;
docs/reference/azure-ml/client.md. What is not here: docs/reference/python.md.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from windrow.ml.assets.data import Input, Output
    from windrow.ml.client import MLClient
    from windrow.ml.jobs.command_step import command
    from windrow.ml.jobs.loading import load_component, load_data, load_environment, load_job, load_model
    from windrow.ml.jobs.settings import (
        AmlTokenConfiguration,
        ManagedIdentityConfiguration,
        MpiDistribution,
        PyTorchDistribution,
        TensorFlowDistribution,
        UserIdentityConfiguration,
    )

__all__ = [
    "AmlTokenConfiguration",
    "Input",
    "MLClient",
    "ManagedIdentityConfiguration",
    "MpiDistribution",
    "Output",
    "PyTorchDistribution",
    "TensorFlowDistribution",
    "UserIdentityConfiguration",
    "command",
    "load_component",
    "load_data",
    "load_environment",
    "load_job",
    "load_model",
]

_LAZY = {
    "AmlTokenConfiguration": "jobs.settings",
    "ManagedIdentityConfiguration": "jobs.settings",
    "MpiDistribution": "jobs.settings",
    "PyTorchDistribution": "jobs.settings",
    "TensorFlowDistribution": "jobs.settings",
    "UserIdentityConfiguration": "jobs.settings",
    "Input": "assets.data",
    "MLClient": "client",
    "Output": "assets.data",
    "command": "jobs.command_step",
    "load_component": "jobs.loading",
    "load_data": "jobs.loading",
    "load_environment": "jobs.loading",
    "load_job": "jobs.loading",
    "load_model": "jobs.loading",
}


def __getattr__(name: str) -> object:
    """Import a name when it is first used."""
    if name not in _LAZY:
        from windrow.ml.absent import standing_in

        return standing_in(__name__)(name)
    from importlib import import_module

    return getattr(import_module(f"windrow.ml.{_LAZY[name]}"), name)
