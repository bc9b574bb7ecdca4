"""The modules that notebooks import from `azureml`, and what each of them holds."""

from __future__ import annotations

from collections.abc import Mapping

from windrow import __version__
from windrow.errors import JobFailed, RequestRefused, UsageError, WindrowError
from windrow.ml.stand_ins import mirrored
from windrow.ml.v1.absent import VENDOR
from windrow.ml.v1.bindings import (
    NamedInput,
    OutputFileDatasetConfig,
    PipelineData,
    PipelineOutputFileDataset,
    PipelineParameter,
)
from windrow.ml.v1.compute import AmlCompute, ComputeTarget, ComputeTargetException
from windrow.ml.v1.datasets import Dataset, FileDataset, TabularDataset
from windrow.ml.v1.datastores import DataPath, DataPathComputeBinding, DataReference, Datastore
from windrow.ml.v1.environment import CondaDependencies, Environment, RunConfiguration
from windrow.ml.v1.ignored import ContainerRegistry, DockerConfiguration, DockerSection, set_diagnostics_collection
from windrow.ml.v1.models import Model
from windrow.ml.v1.pipelines import Experiment, Pipeline, StepSequence
from windrow.ml.v1.published import PipelineEndpoint, PublishedPipeline
from windrow.ml.v1.runs import PipelineRun, RunDetails, StepRun
from windrow.ml.v1.schedules import Schedule, ScheduleRecurrence
from windrow.ml.v1.steps import ParallelRunConfig, ParallelRunStep, PipelineStep, PythonScriptStep
from windrow.ml.v1.table_options import DataType, PromoteHeadersBehavior
from windrow.ml.v1.workspace import (
    AzureCliAuthentication,
    InteractiveLoginAuthentication,
    MsiAuthentication,
    ServicePrincipalAuthentication,
    Workspace,
)
from windrow.spec.reading.problems import JobFileError


def _by_name(*classes: type) -> dict[str, object]:
    return {made.__name__: made for made in classes}


MODULES: Mapping[str, Mapping[str, object]] = {
    "contrib": {},
    "contrib.pipeline": {},
    # The older place of `pipeline.steps`.
    "contrib.pipeline.steps": _by_name(ParallelRunConfig, ParallelRunStep),
    "core": {
        **_by_name(ComputeTarget, ContainerRegistry, Dataset, Datastore, Environment, Experiment),
        **_by_name(Model, RunConfiguration, Workspace),
        "Run": PipelineRun,
        "VERSION": __version__,
    },
    "core.authentication": _by_name(
        AzureCliAuthentication, InteractiveLoginAuthentication, MsiAuthentication, ServicePrincipalAuthentication
    ),
    "core.compute": _by_name(AmlCompute, ComputeTarget),
    "core.compute_target": _by_name(ComputeTarget, ComputeTargetException),
    "core.conda_dependencies": _by_name(CondaDependencies),
    "core.container_registry": _by_name(ContainerRegistry),
    "core.dataset": _by_name(Dataset),
    "core.datastore": _by_name(Datastore),
    "core.environment": _by_name(CondaDependencies, ContainerRegistry, DockerSection, Environment),
    "core.experiment": _by_name(Experiment),
    "core.keyvault": {},
    "core.model": _by_name(Model),
    "core.run": {"Run": PipelineRun},
    "core.runconfig": _by_name(
        CondaDependencies, ContainerRegistry, DockerConfiguration, DockerSection, RunConfiguration
    ),
    "core.script_run": {},
    "core.script_run_config": {},
    "core.webservice": {},
    "core.workspace": _by_name(Workspace),
    "data": _by_name(DataType, FileDataset, OutputFileDatasetConfig, TabularDataset),
    "data.data_reference": _by_name(DataReference),
    "data.datapath": _by_name(DataPath, DataPathComputeBinding),
    "data.dataset_consumption_config": {"DatasetConsumptionConfig": NamedInput},
    "data.dataset_factory": _by_name(DataType),
    "data.dataset_type_definitions": _by_name(PromoteHeadersBehavior),
    "data.file_dataset": _by_name(FileDataset),
    "data.output_dataset_config": _by_name(OutputFileDatasetConfig),
    "data.tabular_dataset": _by_name(TabularDataset),
    "exceptions": {
        **_by_name(ComputeTargetException),
        "ActivityFailedException": JobFailed,
        "AzureMLException": (WindrowError, JobFileError),
        "ExperimentExecutionException": JobFailed,
        "UserErrorException": UsageError,
    },
    "pipeline": {},
    "pipeline.core": _by_name(
        *(Pipeline, PipelineData, PipelineEndpoint, PipelineParameter, PipelineRun, PublishedPipeline, Schedule),
        *(ScheduleRecurrence, StepRun, StepSequence),
    ),
    # Not public, but the only place of the error that a PipelineEndpoint raises which is not there.
    "pipeline.core._restclients": {},
    "pipeline.core._restclients.aeva": {},
    "pipeline.core._restclients.aeva.models": {},
    "pipeline.core._restclients.aeva.models.error_response": {"ErrorResponseException": RequestRefused},
    "pipeline.core.builder": _by_name(PipelineData, PipelineStep, StepSequence),
    "pipeline.core.pipeline_output_dataset": _by_name(PipelineOutputFileDataset),
    "pipeline.core.graph": _by_name(PipelineParameter, PublishedPipeline),
    "pipeline.core.pipeline": _by_name(Pipeline),
    "pipeline.core.pipeline_draft": {},
    "pipeline.core.pipeline_endpoint": _by_name(PipelineEndpoint, PublishedPipeline),
    "pipeline.core.run": _by_name(PipelineRun, StepRun),
    "pipeline.core.schedule": _by_name(PublishedPipeline, Schedule, ScheduleRecurrence),
    "pipeline.steps": _by_name(ParallelRunConfig, ParallelRunStep, PythonScriptStep),
    "pipeline.steps.automl_step": {},
    "pipeline.steps.command_step": {},
    "pipeline.steps.data_transfer_step": {},
    "pipeline.steps.databricks_step": {},
    "pipeline.steps.hyper_drive_step": {},
    "pipeline.steps.mpi_step": {},
    "pipeline.steps.parallel_run_config": _by_name(ParallelRunConfig),
    "pipeline.steps.parallel_run_step": _by_name(ParallelRunStep),
    "pipeline.steps.python_script_step": _by_name(PythonScriptStep),
    "telemetry": {"set_diagnostics_collection": set_diagnostics_collection},
    "train": {},
    "train.automl": {},
    "train.hyperdrive": {},
    "widgets": _by_name(RunDetails),
}
"""By module below `azureml`: its names. `absent` says of the vendor's other names what to do instead."""

ALL_NAMES: Mapping[str, object] = {name: made for names in MODULES.values() for name, made in names.items()}
"""The names of all modules: the vendor's modules have those that they import, too."""


def module_names() -> set[str]:
    """The modules below `azureml` that can be imported."""
    return {*MODULES, *(name.removeprefix(f"{VENDOR}.") for name in mirrored(VENDOR))}
