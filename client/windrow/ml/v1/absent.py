"""What is not here by design: who asks for any of it is told what to do instead."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any

from windrow.errors import UsageError
from windrow.ml.exceptions import JobWarning
from windrow.spec.reading.problems import did_you_mean, listed

_PUBLISH = (
    "pipelines are not published. Keep the notebook or pipeline.to_yaml() in a file, and run that: `windrow run "
    "pipeline.yml`, or Experiment.submit"
)
_SCHEDULE = "nothing is run by the clock. Let cron, or what else starts programs by it, call `windrow job create FILE`"
_ONE_STEP = "runs of a single script are pipelines of one step: PythonScriptStep, and Pipeline(workspace, [step])"
_CONTAINERS = "workers are no containers. Give the Environment its conda_dependencies, and leave this out"
_SEARCH = (
    "hyperparameters and models are not searched. Give a PythonScriptStep the values itself, or make a ParallelRunStep "
    "whose items are the values to try"
)
_ELSEWHERE = "this work is not given to other services. Do it in a PythonScriptStep with a library of your own"
_DISTRIBUTED = "scripts are not started on several nodes at once. Divide the data by a ParallelRunStep"
_SERVICES = "models are not deployed. Score data in a ParallelRunStep"
_TABLE_OUTPUT = (
    "outputs are files. Take OutputFileDatasetConfig, and its read_delimited_files() or read_parquet_files() where the "
    "table is read"
)

_INSTEAD: dict[str, str] = {
    **dict.fromkeys(
        ("PublishedPipeline", "PipelineEndpoint", "PipelineDraft", "publish", "publish_pipeline"), _PUBLISH
    ),
    **dict.fromkeys(("Schedule", "ScheduleRecurrence", "ScheduleStatus", "TimeZone"), _SCHEDULE),
    **dict.fromkeys(("ScriptRunConfig", "ScriptRun"), _ONE_STEP),
    "CommandStep": "commands of v1 are scripts. Call it from a PythonScriptStep, or take windrow.ml.command",
    "Keyvault": "secrets are not kept. Put credentials into the nodes' environment (docs/how-to/use-object-storage.md)",
    **dict.fromkeys(("DockerConfiguration", "DockerSection", "ContainerRegistry", "ContainerInstance"), _CONTAINERS),
    **dict.fromkeys(
        ("HyperDriveStep", "HyperDriveStepRun", "HyperDriveConfig", "AutoMLStep", "AutoMLStepRun", "AutoMLConfig"),
        _SEARCH,
    ),
    **dict.fromkeys(
        (
            "AdlaStep",
            "AzureBatchStep",
            "DatabricksStep",
            "DataTransferStep",
            "EstimatorStep",
            "KustoStep",
            "ModuleStep",
            "RScriptStep",
            "SynapseSparkStep",
        ),
        _ELSEWHERE,
    ),
    **dict.fromkeys(("MpiStep", "MpiConfiguration", "PyTorchConfiguration", "TensorflowConfiguration"), _DISTRIBUTED),
    **dict.fromkeys(("Webservice", "AksWebservice", "AciWebservice", "Image", "ContainerImage"), _SERVICES),
    **dict.fromkeys(
        ("OutputTabularDatasetConfig", "LinkTabularOutputDatasetConfig", "LinkFileOutputDatasetConfig"), _TABLE_OUTPUT
    ),
    "HDFSOutputDatasetConfig": _TABLE_OUTPUT,
    "TrainingOutput": _SEARCH,
    "filter": "expressions of datasets are not read. Write an MLTable file with `filter`, or choose rows in the script",
    "random_split": "data is not split at random. Write the parts in a step before, or take take_sample(p, seed)",
}


def why_absent(name: str) -> str:
    """What to do instead of it, as a sentence; "" for a name that this does not know."""
    instead = _INSTEAD.get(name)
    return f"{instead}." if instead else ""


def refusing(module: str) -> Callable[[str], object]:
    """A module's `__getattr__` that raises, with what to do instead of what is not there by design."""

    def getattr_(name: str) -> object:
        if why := why_absent(name):
            # `from … import` keeps the words of an ImportError, and not those of an AttributeError.
            raise ImportError(f"{module} has no {name}: {why}", name=module)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return getattr_


class Refusing:
    """Of a class: methods that are not there by design say so, by an AttributeError."""

    def __getattr__(self, name: str) -> object:
        """Raises AttributeError."""
        why = why_absent(name)
        raise AttributeError(f"{type(self).__name__} has no {name}" + (f": {why}" if why else "."))


def refuse_unknown(call: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuses the keywords of a call that it does not have. `known`: those that it has. Raises UsageError."""
    for name in given:
        raise UsageError(f"{call} has no {name!r}.{did_you_mean(name, known)} It takes: {listed(known)}")


def tell_no_effect(what: str, why: str) -> None:
    """A JobWarning that something accepted has no effect."""
    warnings.warn(f"{what} has no effect: {why}.", JobWarning, stacklevel=3)
