"""Names of `azure.ai.ml` without a counterpart in Windrow: what to do instead of each. `stand_ins` stand for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from windrow.errors import UsageError

_SPARK = (
    "steps of type spark are not supported; do the work in a command or parallel step with pandas, pyarrow "
    "or DuckDB, or beforehand, and give steps that read its outputs a path."
)
_ENDPOINTS = (
    "Windrow has no endpoints and deployments. Submit the pipeline or the parallel step that scores, as a job, each "
    "time there is data for it."
)
_CODE_CONFIGURATION = (
    "it belongs to deployments, which Windrow does not have. A parallel step names its script itself: "
    "RunFunction(code=..., entry_script=...)."
)
_SCHEDULES = "Windrow has no schedules. Let cron, or another timer, run: windrow job create FILE"
_WORKSPACES = (
    "the workspace is a master, which you start yourself (docs/how-to/run-a-cluster.md). "
    "MLClient(master=ADDRESS) names it, and client.workspaces.get() returns its names."
)
_DATASTORES = (
    "datastores are named where the master is started (--datastore NAME=PLACE), or for jobs on this machine: "
    "MLClient(datastores={NAME: PLACE}). client.datastores lists them."
)
_CREDENTIALS = "agents read stores with credentials of their own (docs/how-to/use-object-storage.md). Remove it."
_MACHINES = (
    "Windrow does not create machines: agents join a pool when they start (docs/how-to/run-a-cluster.md). "
    "A step names a pool by compute=NAME."
)
_COMMAND_JOB = (
    "write the job as a step, command(...) of windrow.ml: client.jobs.create_or_update takes it as it is. To ask "
    "whether an object is a job, there is windrow.ml.entities.Job."
)
_PARALLEL_JOB = (
    "write the job as a step, parallel_run_function(...) of windrow.ml.parallel: client.jobs.create_or_update takes it "
    "as it is. To ask whether an object is a job, there is windrow.ml.entities.Job."
)
_REGISTRIES = (
    "Windrow makes no registries. Data and models are registered with the master (client.data, client.models); "
    "components are shared as files, for load_component, or in a folder that mirrors a registry (windrow registry add)."
)
_LOADED = "Only jobs, components, data, models and environments are read from files"

_ABSENT: dict[str, tuple[str, ...]] = {
    _SPARK: ("spark", "entities.Spark", "entities.SparkComponent", "entities.SparkJob"),
    _ENDPOINTS: (
        "entities.BatchDeployment",
        "entities.BatchEndpoint",
        "entities.BatchRetrySettings",
        "entities.KubernetesOnlineDeployment",
        "entities.KubernetesOnlineEndpoint",
        "entities.ManagedOnlineDeployment",
        "entities.ManagedOnlineEndpoint",
        "entities.ModelBatchDeployment",
        "entities.ModelBatchDeploymentSettings",
        "entities.OnlineRequestSettings",
        "entities.PipelineComponentBatchDeployment",
        "entities.ProbeSettings",
    ),
    _CODE_CONFIGURATION: ("entities.CodeConfiguration",),
    _SCHEDULES: ("entities.Schedule",),
    _WORKSPACES: ("entities.Hub", "entities.Project", "entities.Workspace", "entities.WorkspaceConnection"),
    _DATASTORES: (
        "entities.AzureBlobDatastore",
        "entities.AzureDataLakeGen1Datastore",
        "entities.AzureDataLakeGen2Datastore",
        "entities.AzureFileDatastore",
        "entities.Datastore",
        "entities.OneLakeDatastore",
    ),
    _CREDENTIALS: (
        "entities.AccountKeyConfiguration",
        "entities.CertificateConfiguration",
        "entities.NoneCredentialConfiguration",
        "entities.SasTokenConfiguration",
        "entities.ServicePrincipalConfiguration",
    ),
    _MACHINES: (
        "entities.ComputeInstance",
        "entities.KubernetesCompute",
        "entities.SynapseSparkCompute",
        "entities.VirtualMachineCompute",
    ),
    _COMMAND_JOB: ("entities.CommandJob",),
    _PARALLEL_JOB: ("entities.ParallelJob", "parallel.ParallelJob"),
    _REGISTRIES: ("entities.Registry", "entities.RegistryRegionDetails"),
    f"{_LOADED}; {_ENDPOINTS}": (
        "load_batch_deployment",
        "load_batch_endpoint",
        "load_online_deployment",
        "load_online_endpoint",
    ),
    f"{_LOADED}; {_SCHEDULES}": ("load_schedule",),
    f"{_LOADED}; {_WORKSPACES}": ("load_workspace", "load_connection"),
    f"{_LOADED}; {_DATASTORES}": ("load_datastore",),
    f"{_LOADED}; {_MACHINES}": ("load_compute",),
    f"{_LOADED}; {_REGISTRIES}": ("load_registry",),
}
"""By reason, the names below `windrow.ml`; `_OF_MODULES` has what is said of others."""

_OF_CLIENT = {
    **dict.fromkeys(("batch_endpoints", "batch_deployments", "online_endpoints", "online_deployments"), _ENDPOINTS),
    "registries": _REGISTRIES,
    "connections": _CREDENTIALS,
}
"""What is said of attributes of an `MLClient`."""
_SEARCH = "steps that search {} are not supported. "
_OF_MODULES = {
    "automl": _SEARCH.format("models")
    + "Train in a command or parallel step with a script of your own, and give steps "
    "that read the model a path.",
    "data_transfer": "Windrow does not copy data between stores. Read it where it is, by an address "
    "(docs/how-to/use-object-storage.md), or copy it in a command step.",
    "finetuning": "Windrow does not fine-tune models as a service. Train in a command step with a script of your own.",
    "model_customization": "Windrow does not fine-tune models as a service. Train in a command step with a script of "
    "your own.",
    "operations": "operations are attributes of an MLClient, such as client.jobs and client.data.",
    "sweep": _SEARCH.format("hyperparameters")
    + "Remove the calls of .sweep(), and give the step the values itself; or "
    "make a parallel step whose items are the values to try.",
}
"""What is said of the other names of a module."""
_LEAVE_OUT = "nothing in Windrow corresponds to it. Leave it out (docs/reference/python.md says what is there)."
VENDOR = "azure.ai.ml"

_REASONS = {f"windrow.ml.{name}": reason for reason, names in _ABSENT.items() for name in names}


def refuse_attribute(name: str) -> NoReturn:
    """Raise AttributeError for an attribute of an `MLClient`, with what to do instead of it."""
    why = _OF_CLIENT.get(name)
    raise AttributeError(f"MLClient has no {name}" + (f": {why}" if why else "."))


def refuse_label(what: str, label: str | None) -> None:
    """Raise UsageError for a label other than `latest`. `what`: what has the label, such as `data asset images`."""
    if label not in (None, "latest"):
        raise UsageError(f"The {what} has no label {label!r}: the only label is latest. Name a version instead.")


def standing_in(module: str) -> Callable[[str], object]:
    """The `__getattr__` of a module: stand-ins for the names that the vendor's has and this one has not."""

    def getattr_(name: str) -> object:
        from windrow.ml.stand_ins import stand_in

        below = module.removeprefix("windrow.ml").removeprefix(".")
        why = _REASONS.get(f"{module}.{name}") or _OF_MODULES.get(below) or _LEAVE_OUT
        try:
            return stand_in(VENDOR, f"{VENDOR}.{below}".rstrip("."), name, f"windrow.ml has no {name}: {why}")
        except KeyError:
            raise AttributeError(f"module {module!r} has no attribute {name!r}") from None

    return getattr_
