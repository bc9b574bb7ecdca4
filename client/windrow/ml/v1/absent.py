"""Names of `azureml` that are missing by design: using one raises an error that says what to do instead."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any

from windrow.errors import UsageError
from windrow.ml.exceptions import JobWarning
from windrow.spec.reading.problems import did_you_mean, listed

_PUBLISH = (
    "Windrow does not publish pipelines. Keep the notebook or pipeline.to_yaml() in a file, and run that: `windrow run "
    "pipeline.yml`, or Experiment.submit"
)
_SCHEDULE = "Windrow has no schedules. Let cron, or another timer, run `windrow job create FILE`"
_ONE_STEP = "runs of a single script are pipelines of one step: PythonScriptStep, and Pipeline(workspace, [step])"
_CONTAINERS = "workers do not run in containers. Give the Environment its conda_dependencies, and leave this out"
_SEARCH = (
    "Windrow does not search hyperparameters or models. Give a PythonScriptStep the values itself, or make a "
    "ParallelRunStep whose items are the values to try"
)
_ELSEWHERE = "Windrow does not use other services for this work. Do it in a PythonScriptStep with a library of your own"
_DISTRIBUTED = "Windrow does not start a script on several nodes at once. Divide the data with a ParallelRunStep"
_SERVICES = "Windrow does not deploy models. Score data in a ParallelRunStep"
_TABLE_OUTPUT = (
    "outputs are files. Use OutputFileDatasetConfig, and its read_delimited_files() or read_parquet_files() where the "
    "table is read"
)

_INSTEAD: dict[str, str] = {
    **dict.fromkeys(
        ("PublishedPipeline", "PipelineEndpoint", "PipelineDraft", "publish", "publish_pipeline"), _PUBLISH
    ),
    **dict.fromkeys(("Schedule", "ScheduleRecurrence", "ScheduleStatus", "TimeZone"), _SCHEDULE),
    **dict.fromkeys(("ScriptRunConfig", "ScriptRun"), _ONE_STEP),
    "CommandStep": "commands of v1 are scripts. Call it from a PythonScriptStep, or use windrow.ml.command",
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
    "filter": "filter expressions are not supported. Write an MLTable file with `filter`, or select rows in the script",
    "random_split": "data is not split at random. Write the parts in an earlier step, or use take_sample(p, seed)",
}


def why_absent(name: str) -> str:
    """What to do instead of a missing name, as a sentence; "" for other names."""
    instead = _INSTEAD.get(name)
    return f"{instead}." if instead else ""


def refusing(module: str) -> Callable[[str], object]:
    """A `__getattr__` for a module: it raises, and for a name that is missing by design, says what to do instead."""

    def getattr_(name: str) -> object:
        if why := why_absent(name):
            # `from … import` keeps the words of an ImportError, and not those of an AttributeError.
            raise ImportError(f"{module} has no {name}: {why}", name=module)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return getattr_


class Refusing:
    """A base of classes: the AttributeError of a method that is missing by design says what to do instead."""

    def __getattr__(self, name: str) -> object:
        """Raise AttributeError."""
        why = why_absent(name)
        raise AttributeError(f"{type(self).__name__} has no {name}" + (f": {why}" if why else "."))


def refuse_unknown(call: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise UsageError for a keyword that a call does not take. `known`: the keywords that it takes."""
    for name in given:
        raise UsageError(f"{call} has no {name!r}.{did_you_mean(name, known)} It takes: {listed(known)}")


def tell_no_effect(what: str, why: str) -> None:
    """Warn (JobWarning) that something is accepted but has no effect."""
    warnings.warn(f"{what} has no effect: {why}.", JobWarning, stacklevel=3)
