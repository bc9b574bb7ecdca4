"""The modules below `windrow.ml.v1` that notebooks import from, and the names in each."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import windrow.ml.v1

MODULES = {
    "contrib": "",
    "contrib.pipeline": "",
    "contrib.pipeline.steps": "ParallelRunConfig ParallelRunStep",
    "core": "ComputeTarget ContainerRegistry Dataset Datastore Environment Experiment "
    "Model Run RunConfiguration VERSION Workspace",
    "core.authentication": "AzureCliAuthentication InteractiveLoginAuthentication MsiAuthentication "
    "ServicePrincipalAuthentication",
    "core.compute": "AmlCompute ComputeTarget",
    "core.compute_target": "ComputeTarget ComputeTargetException",
    "core.conda_dependencies": "CondaDependencies",
    "core.container_registry": "ContainerRegistry",
    "core.dataset": "Dataset",
    "core.datastore": "Datastore",
    "core.environment": "CondaDependencies ContainerRegistry DockerSection Environment",
    "core.experiment": "Experiment",
    "core.keyvault": "",
    "core.model": "Model",
    "core.run": "Run",
    "core.runconfig": "CondaDependencies ContainerRegistry DockerConfiguration DockerSection RunConfiguration",
    "core.script_run": "",
    "core.script_run_config": "",
    "core.webservice": "",
    "core.workspace": "Workspace",
    "data": "DataType FileDataset OutputFileDatasetConfig TabularDataset",
    "data.data_reference": "DataReference",
    "data.datapath": "DataPath DataPathComputeBinding",
    "data.dataset_consumption_config": "DatasetConsumptionConfig",
    "data.dataset_factory": "DataType",
    "data.dataset_type_definitions": "PromoteHeadersBehavior",
    "data.file_dataset": "FileDataset",
    "data.output_dataset_config": "OutputFileDatasetConfig",
    "data.tabular_dataset": "TabularDataset",
    "exceptions": "ActivityFailedException AzureMLException ComputeTargetException ExperimentExecutionException "
    "UserErrorException",
    "pipeline": "",
    "pipeline.core": "Pipeline PipelineData PipelineEndpoint PipelineParameter PipelineRun PublishedPipeline Schedule "
    "ScheduleRecurrence StepRun StepSequence",
    "pipeline.core.builder": "PipelineData PipelineStep StepSequence",
    "pipeline.core.graph": "PipelineParameter PublishedPipeline",
    "pipeline.core.pipeline": "Pipeline",
    "pipeline.core.pipeline_draft": "",
    "pipeline.core.pipeline_endpoint": "PipelineEndpoint PublishedPipeline",
    "pipeline.core.pipeline_output_dataset": "PipelineOutputFileDataset",
    "pipeline.core.run": "PipelineRun StepRun",
    "pipeline.core.schedule": "PublishedPipeline Schedule ScheduleRecurrence",
    "pipeline.steps": "ParallelRunConfig ParallelRunStep PythonScriptStep",
    "pipeline.steps.automl_step": "",
    "pipeline.steps.command_step": "",
    "pipeline.steps.data_transfer_step": "",
    "pipeline.steps.databricks_step": "",
    "pipeline.steps.hyper_drive_step": "",
    "pipeline.steps.mpi_step": "",
    "pipeline.steps.parallel_run_config": "ParallelRunConfig",
    "pipeline.steps.parallel_run_step": "ParallelRunStep",
    "pipeline.steps.python_script_step": "PythonScriptStep",
    "pipeline.core._restclients": "",
    "pipeline.core._restclients.aeva": "",
    "pipeline.core._restclients.aeva.models": "",
    "pipeline.core._restclients.aeva.models.error_response": "ErrorResponseException",
    "telemetry": "set_diagnostics_collection",
    "train": "",
    "train.automl": "",
    "train.hyperdrive": "",
    "widgets": "RunDetails",
}
ALIASES = {
    "DatasetConsumptionConfig": "NamedInput",
    "Run": "PipelineRun",
    "UserErrorException": "UsageError",
    "ActivityFailedException": "JobFailed",
    "ErrorResponseException": "RequestRefused",
    "ExperimentExecutionException": "JobFailed",
}
"""Names of classes that are called otherwise where they are made."""
TUPLES = ("AzureMLException",)
"""Names of several classes, for `except`."""


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_its_names_and_no_others(module: str) -> None:
    found = importlib.import_module(f"windrow.ml.v1.{module}")
    names = MODULES[module].split()
    assert found.__all__ == sorted(names)
    for name in names:
        value = getattr(found, name)
        if name.isupper():
            assert isinstance(value, str)
        elif name not in TUPLES:
            assert value.__name__ == ALIASES.get(name, name)
        exec(f"from windrow.ml.v1.{module} import {name}")
    exec(f"from windrow.ml.v1.{module} import *", namespace := {})
    assert set(names) <= set(namespace)


def test_the_table_has_no_other_modules() -> None:
    from windrow.ml.v1 import finder, names

    assert set(names.MODULES) == set(MODULES)
    assert {name.partition(".")[0] for name in names.module_names() - {"azureml"}} == finder.FIRST_NAMES


def test_each_module_with_names_has_a_stub_and_nothing_else_has() -> None:
    folder = Path(windrow.ml.v1.__file__).parent
    stubs = {".".join(stub.relative_to(folder).with_suffix("").parts) for stub in folder.rglob("*.pyi")}
    packages = {stub.removesuffix(".__init__") for stub in stubs if stub.endswith(".__init__")}
    public = {name for name in packages if "._" not in name}
    assert public == {"contrib", "contrib.pipeline", "core", "data", "pipeline", "pipeline.core", "pipeline.steps"}
    assert {stub.removesuffix(".__init__") for stub in stubs} == packages | {name for name in MODULES if MODULES[name]}


def test_modules_are_imported_as_files_would_be() -> None:
    script = """
import windrow.ml.v1.pipeline.core.graph
from windrow.ml.v1.core import compute, authentication
from windrow.ml.v1 import data
import windrow.ml.v1.core as core
assert windrow.ml.v1.pipeline.core.graph.PipelineParameter.__name__ == "PipelineParameter"
assert core.compute is compute and core.ComputeTarget is compute.ComputeTarget
assert data.__name__ == "windrow.ml.v1.data" and data.__doc__ == "As `azureml.data`."
try:
    import windrow.ml.v1.core.nothing
except ModuleNotFoundError as error:
    assert str(error) == "No module named 'windrow.ml.v1.core.nothing'", error
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_folder_hides_no_module(tmp_path: Path) -> None:
    (tmp_path / "core" / "__pycache__").mkdir(parents=True)
    script = f"""
import windrow.ml.v1
windrow.ml.v1.__path__.append({str(tmp_path)!r})
from windrow.ml.v1.core import Workspace
import windrow.ml.v1.runs
assert windrow.ml.v1.runs.__file__
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_threads_import_at_the_same_time() -> None:
    script = f"""
import importlib, sys, threading
import windrow.ml.v1  # a module that is on its way in one thread is there, half-made, for the others
begin, found = threading.Barrier(8), []

def work(number):
    begin.wait()
    names = {sorted(MODULES)!r}[number::8] + ["names", "runs", "steps", "workspace"]
    found.extend(importlib.import_module("windrow.ml.v1." + name) for name in names)

sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(found) == {len(MODULES) + 32}, len(found)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_module_can_be_reloaded_and_its_classes_pickled() -> None:
    script = """
import importlib, pickle, sys
import windrow.ml.v1
from windrow.ml.v1 import core
from windrow.ml.v1.core import Environment, Workspace
assert importlib.reload(core) is core and core.Workspace is Workspace
importlib.reload(windrow.ml.v1)
assert [type(finder).__module__ for finder in sys.meta_path].count("windrow.ml.v1.finder") == 1
assert pickle.loads(pickle.dumps(Workspace)) is Workspace
assert type(pickle.loads(pickle.dumps(Environment("one")))) is Environment
"""
    subprocess.run([sys.executable, "-c", script], check=True)
