"""What v1 notebooks say that has no effect, or is not there: told, never dropped.

Reference: docs/reference/azure-ml/parallel-job.md#version-1; signatures of azureml-core 1.61 and azureml-pipeline-core
1.62.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from v1_notebooks import config, script
from windrow.errors import UsageError
from windrow.ml.exceptions import JobWarning
from windrow.ml.v1.core import Dataset, Environment, Experiment, Workspace
from windrow.ml.v1.core.runconfig import CondaDependencies
from windrow.ml.v1.data import OutputFileDatasetConfig
from windrow.ml.v1.data.datapath import DataPath, DataPathComputeBinding
from windrow.ml.v1.pipeline.core import Pipeline, PipelineData, PipelineParameter
from windrow.ml.v1.pipeline.steps import ParallelRunConfig, ParallelRunStep, PythonScriptStep


def _told(pipeline: Pipeline) -> list[str]:
    """The warnings of its submission."""
    return [str(warning) for warning in pipeline.load().warnings]


def _look(notebook: Path, **bound: Any) -> PythonScriptStep:
    return PythonScriptStep(script(notebook, "look.py"), "look", source_directory="src", **bound)


def _inputs(workspace: Workspace) -> dict[str, Any]:
    store, files = workspace.get_default_datastore(), Dataset.File.from_files("files/a.txt")
    store.upload("files", "a")
    place = PipelineParameter("place", DataPath(store, "a"))
    return {
        "as_mount": files.as_mount("/tmp/x"),
        "as_download": files.as_download("/tmp/x"),
        "named": files.as_named_input("n").as_mount("/tmp/x"),
        "named_last": files.as_download("/tmp/x").as_named_input("n"),
        "output": PipelineData("made").as_download(path_on_compute="/tmp/x"),
        "reference": store.path("a").as_download("/tmp/x"),
        "binding": (place, DataPathComputeBinding("download", path_on_compute="/tmp/x")),
    }


@pytest.mark.parametrize("how", ["as_mount", "as_download", "named", "named_last", "output", "reference", "binding"])
def test_where_data_is_to_be_on_a_node_has_no_effect_and_is_told(
    workspace: Workspace, notebook: Path, how: str
) -> None:
    bound = _inputs(workspace)[how]
    steps: list[Any] = [_look(notebook, inputs=[bound])]
    if how == "output":
        steps.append(PythonScriptStep(script(notebook, "make.py"), "make", outputs=[bound], source_directory="src"))
    told = [line for line in _told(Pipeline(workspace, steps)) if "path_on_compute" in line]
    assert len(told) == 1
    assert "data is read in place" in told[0]


def test_where_an_output_is_to_be_on_a_node_has_no_effect_and_is_told(workspace: Workspace, notebook: Path) -> None:
    for made in (PipelineData("made", output_path_on_compute="/tmp/x"), OutputFileDatasetConfig(source="/tmp/x")):
        (told,) = (
            line
            for line in _told(Pipeline(workspace, [_look(notebook, arguments=[made], outputs=[made])]))
            if "path_on_compute" in line
        )
        assert "outputs are written in place" in told


def _with_dockerfile(notebook: Path, how: str, packages: Any) -> ParallelRunConfig:
    if how == "from_dockerfile":
        environment = Environment.from_dockerfile("e", "FROM ubuntu:22.04")
    else:
        environment = Environment("e")
        environment.docker.base_dockerfile = "FROM ubuntu:22.04"
    environment.python.conda_dependencies = CondaDependencies(content={"dependencies": packages})
    made = config(environment=environment)
    if how == "load_yaml":
        made.save_to_yaml("config.yml")
        made = ParallelRunConfig.load_yaml(None, "config.yml")
    return made


@pytest.mark.parametrize("packages", [[], ["six"]])
@pytest.mark.parametrize("how", ["base_dockerfile", "from_dockerfile", "load_yaml"])
def test_a_dockerfile_has_no_effect_and_is_told(
    workspace: Workspace, notebook: Path, how: str, packages: list[str]
) -> None:
    files = Dataset.File.from_files("files/a.txt")
    settings = _with_dockerfile(notebook, how, packages)
    step = ParallelRunStep("divide", settings, [files], PipelineData("rows"))
    (told,) = (line for line in _told(Pipeline(workspace, [step])) if "environment.build.dockerfile" in line)
    assert "has no effect: workers do not run in containers" in told


def test_keywords_that_there_are_not_are_refused(workspace: Workspace, notebook: Path) -> None:
    step = _look(notebook)
    pipeline = Pipeline(workspace, [step])
    with pytest.raises(UsageError, match=r"Pipeline has no 'nonsense'\. It takes: workspace, steps,"):
        Pipeline(workspace, [step], nonsense=1)
    with pytest.raises(UsageError, match=r"Pipeline\.submit has no 'regenerate_output'\. Did you mean"):
        pipeline.submit("e", regenerate_output=True)
    with pytest.raises(UsageError, match=r"Pipeline\.submit has no 'nonsense'"):
        Experiment(workspace, "e").submit(pipeline, nonsense=1)
    with pytest.raises(UsageError, match="takes a Pipeline, not PythonScriptStep"):
        Experiment(workspace, "e").submit(step)  # type: ignore[arg-type]
    calls: list[Any] = [PipelineData, OutputFileDatasetConfig, Dataset.File.from_files, CondaDependencies.create]
    for call in calls:
        with pytest.raises(TypeError, match="nonsense"):
            call("data", nonsense=1)


def test_keywords_that_have_no_effect_are_told(workspace: Workspace, notebook: Path) -> None:
    step = _look(notebook)
    with pytest.warns(JobWarning, match="parent_run_id has no effect: jobs have no parents"):
        Pipeline(workspace, [step]).submit("e", parent_run_id="r").cancel()
    with pytest.warns(JobWarning, match="made: pipeline_output_name='all' has no effect: .* its own name, made"):
        PipelineData("made", pipeline_output_name="all")
    with pytest.warns(JobWarning, match="made: source_globs has no effect"):
        OutputFileDatasetConfig("made").as_upload(source_globs="*.csv")
    with pytest.raises(UsageError, match="partition_by copies nothing, so there are no files"):
        Dataset.Tabular.from_delimited_files("table/data.csv").partition_by(["x"], partition_as_file_dataset=True)


def test_tags_are_those_of_the_job(workspace: Workspace, notebook: Path) -> None:
    run = Experiment(workspace, "e").submit(Pipeline(workspace, [_look(notebook)]), tags={"kind": "test", "n": "1"})
    assert workspace.ml_client.windrow.document(run.id)["tags"] == {"kind": "test", "n": "1"}
    run.cancel()


def test_packages_beside_an_image(notebook: Path) -> None:
    (notebook / "requirements.txt").write_text("six\n")
    for made in (
        Environment.from_docker_image("e", "img", pip_requirements="requirements.txt"),
        Environment.from_dockerfile("e", "FROM img", pip_requirements="requirements.txt"),
    ):
        assert made.python.conda_dependencies.pip_packages == ["six"]


@pytest.mark.parametrize(
    ("module", "name", "instead"),
    [
        ("pipeline.core.pipeline_draft", "PipelineDraft", "no drafts"),
        ("core", "ScriptRunConfig", "pipelines of one step"),
        ("core", "Keyvault", "secrets are not kept"),
        ("core.keyvault", "Keyvault", "secrets are not kept"),
        ("core.environment", "RSection", "call Rscript from a Python script"),
        ("core.compute.aks", "AksCompute", "does not create machines"),
        ("data.datacache", "DatacacheStore", "Leave it out"),
        ("core.runconfig", "MpiConfiguration", "ParallelRunStep"),
        ("pipeline.steps", "CommandStep", "windrow.ml.command"),
        ("pipeline.steps", "HyperDriveStep", "does not search"),
        ("pipeline.steps.data_transfer_step", "DataTransferStep", "PythonScriptStep"),
        ("data.output_dataset_config", "OutputTabularDatasetConfig", "OutputFileDatasetConfig"),
        ("train.hyperdrive", "HyperDriveConfig", "does not search"),
        ("train.automl", "AutoMLConfig", "does not search"),
    ],
)
def test_names_that_are_not_there_by_design_say_at_use_what_to_do(module: str, name: str, instead: str) -> None:
    exec(f"from windrow.ml.v1.{module} import {name}", there := {})
    with pytest.raises(UsageError, match=rf"^windrow\.ml\.v1 has no {name}: .*{instead}"):
        there[name]()


def test_settings_of_containers_and_telemetry_are_accepted(workspace: Workspace, notebook: Path) -> None:
    from windrow.ml.v1.core.runconfig import DockerConfiguration, RunConfiguration
    from windrow.ml.v1.telemetry import set_diagnostics_collection

    set_diagnostics_collection(send_diagnostics=True)
    settings = RunConfiguration()
    with pytest.warns(JobWarning, match="DockerConfiguration has no effect: workers do not run in containers"):
        settings.docker = DockerConfiguration(use_docker=True, shm_size="2g")
    assert settings.docker.use_docker and settings.docker.shm_size == "2g"


def test_methods_that_are_not_there_by_design_say_what_to_do(workspace: Workspace, notebook: Path) -> None:
    table: Any = Dataset.Tabular.from_delimited_files("table/data.csv")
    with pytest.raises(AttributeError, match=r"TabularDataset has no filter: .* in the script"):
        table.filter(table)
    with pytest.raises(AttributeError, match=r"FileDataset has no random_split: .* take_sample"):
        Dataset.File.from_files("files/a.txt").random_split(0.5)
    with pytest.raises(UsageError, match="A workspace has no Keyvault: secrets are not kept"):
        workspace.get_default_keyvault()
    assert not hasattr(table, "nonsense")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("pipeline.steps.parallel_run_step", "ParallelRunStep"),
        ("pipeline.steps.parallel_run_config", "ParallelRunConfig"),
        ("pipeline.steps.python_script_step", "PythonScriptStep"),
        ("contrib.pipeline.steps", "ParallelRunStep"),
        ("contrib.pipeline.steps", "ParallelRunConfig"),
        ("pipeline.core.pipeline", "Pipeline"),
        ("pipeline.core.builder", "PipelineData"),
    ],
)
def test_modules_that_notebooks_import_from(module: str, name: str) -> None:
    assert getattr(importlib.import_module(f"windrow.ml.v1.{module}"), name).__name__ == name
