"""Names of `azureml` that are missing by design: using one raises an error that says what to do instead."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any

from windrow.errors import UsageError
from windrow.ml.exceptions import JobWarning
from windrow.ml.stand_ins import PLAIN, stand_in
from windrow.spec.reading.problems import did_you_mean, listed

_DRAFTS = "Windrow has no drafts of pipelines. Publish the pipeline (pipeline.publish), or run it (Experiment.submit)"
_PUBLISHED = (
    "what is published stays, its newest version is the default, and nothing runs it by itself. `windrow pipeline "
    "list` shows it"
)
_ONE_STEP = "runs of a single script are pipelines of one step: PythonScriptStep, and Pipeline(workspace, [step])"
_CONTAINERS = "workers do not run in containers. Give the Environment its conda_dependencies, and leave this out"
_R = (
    "scripts are Python. To run R, call Rscript from a Python script, with r-base in its conda file (the nodes need "
    "windrow[conda])"
)
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

_FILES = (
    "a run keeps no files of the notebook: they stay where the notebook writes them. A step keeps what its script "
    "writes into its outputs"
)
_NO_SIZE = (
    "a pool has the nodes whose agents join it (`windrow node list`), and no settings of its own. Write the number of "
    "nodes where the step wants it"
)
_NO_REQUESTS = (
    "Windrow has no addresses for HTTP requests, so there is nothing to sign in to. "
    "published_pipeline.submit(workspace, experiment_name, pipeline_parameters) runs a pipeline"
)
_FRAMES = "read the rows into a pandas.DataFrame, and keep that: Dataset.Tabular.register_pandas_dataframe"
_NO_CHILDREN = "a run has no further runs below it. experiment.start_logging() starts one of its own"

_INSTEAD: dict[str, str] = {
    **dict.fromkeys(("upload_file", "upload_files", "upload_folder"), _FILES),
    **dict.fromkeys(("serialize", "update", "get", "list_nodes"), _NO_SIZE),
    **dict.fromkeys(("get_authentication_header", "get_token"), _NO_REQUESTS),
    **dict.fromkeys(("from_sql_query", "register_spark_dataframe", "register_dask_dataframe"), _FRAMES),
    **dict.fromkeys(("child_run", "create_children", "submit_child"), _NO_CHILDREN),
    "PipelineDraft": _DRAFTS,
    **dict.fromkeys(("archive", "disable", "enable", "reactivate", "set_default", "set_default_version"), _PUBLISHED),
    **dict.fromkeys(("ScriptRunConfig", "ScriptRun"), _ONE_STEP),
    "CommandStep": "commands of v1 are scripts. Call it from a PythonScriptStep, or use windrow.ml.command",
    "Keyvault": "secrets are not kept. Put credentials into the nodes' environment (docs/how-to/use-object-storage.md)",
    "ContainerInstance": _CONTAINERS,
    **dict.fromkeys(("RSection", "REnvironment", "RCranPackage", "RCranLibrary", "RGitHubPackage"), _R),
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


_OF_MODULES = {
    "core.authentication": "credentials are not used: contexts give access to a master "
    "(docs/how-to/use-tls-and-tokens.md)",
    "core.compute": "Windrow does not create machines: agents join a pool when they start "
    "(docs/how-to/run-a-cluster.md)",
    "core.databricks": _ELSEWHERE,
    "core.image": _SERVICES,
    "core.script_run": _ONE_STEP,
    "core.script_run_config": _ONE_STEP,
    "core.webservice": _SERVICES,
    "train": _SEARCH,
    "pipeline.steps": _ELSEWHERE,
}
"""What is said of the names of a module, or of those below it."""
_LEAVE_OUT = "nothing in Windrow corresponds to it. Leave it out (docs/reference/python.md says what is there)"

VENDOR = "azureml"
PACKAGE = "windrow.ml.v1"


def why_absent(name: str) -> str:
    """What to do instead of a missing name, as a sentence; "" for other names."""
    instead = _INSTEAD.get(name)
    return f"{instead}." if instead else ""


def standing_in(module: str, elsewhere: Mapping[str, object]) -> Callable[[str], object]:
    """The `__getattr__` of a module: what the vendor's has and this one has not. `elsewhere`: names of other modules,
    which the vendor's modules import, too; the others get a stand-in.
    """

    def getattr_(name: str) -> object:
        below = module.removeprefix(f"{PACKAGE}.")
        vendors = f"{VENDOR}.{below}"
        why = why_absent(name) or f"{_of_module(below)}."
        try:
            found = stand_in(VENDOR, vendors, name, f"{PACKAGE} has no {name}: {why}")
        except KeyError:
            raise AttributeError(f"module {module!r} has no attribute {name!r}") from None
        # A constant is the module's own; of classes there is one, whichever module has it.
        return found if isinstance(found, PLAIN) else elsewhere.get(name, found)

    return getattr_


def _of_module(name: str) -> str:
    """What is said of the names of a module that have no words of their own."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        if instead := _OF_MODULES.get(".".join(parts[:length])):
            return instead
    return _LEAVE_OUT


class Refusing:
    """A base of classes: the AttributeError of a method that is missing by design says what to do instead."""

    def __getattr__(self, name: str) -> object:
        """Raise AttributeError."""
        why = why_absent(name)
        raise AttributeError(f"{type(self).__name__} has no {name}" + (f": {why}" if why else "."))


class RefusingType(type):
    """A metaclass of classes whose methods are static: their AttributeErrors, as of `Refusing`."""

    def __getattr__(cls, name: str) -> object:
        """Raise AttributeError."""
        why = why_absent(name)
        raise AttributeError(f"{cls.__name__.strip('_')} has no {name}" + (f": {why}" if why else "."))


def refuse_unknown(call: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise UsageError for a keyword that a call does not take. `known`: the keywords that it takes."""
    for name in given:
        raise UsageError(f"{call} has no {name!r}.{did_you_mean(name, known)} It takes: {listed(known)}")


def tell_no_effect(what: str, why: str) -> None:
    """Warn (JobWarning) that something is accepted but has no effect."""
    warnings.warn(f"{what} has no effect: {why}.", JobWarning, stacklevel=3)
