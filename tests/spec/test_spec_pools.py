"""Which pool of nodes a step runs on: by `compute`, else by `resources.instance_type`."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from spec_workspace import STEP, Workspace, changed
from windrow.spec import LoadedJob, load_job

NC6 = "resources: {instance_type: Standard_NC6}"


def on_cluster(workspace: Workspace, changes: str, pools: Collection[str], more: str = "") -> LoadedJob:
    """A job as it is read for a cluster with these pools."""
    workspace.write("job.yml", workspace.job_of(changed(STEP, changes), more))
    return load_job(workspace.folder / "job.yml", embedded=False, pools=lambda: pools)


def test_an_instance_type_is_the_pool_of_that_name(workspace: Workspace) -> None:
    loaded = on_cluster(workspace, NC6, {"cpu", "Standard_NC6"})
    assert loaded.job.steps[0].compute == "Standard_NC6"
    assert not loaded.warnings
    line = (workspace.folder / "job.yml").read_text().splitlines().index("    " + NC6) + 1
    assert loaded.origins["jobs.score.compute"].where.endswith(f"job.yml:{line}")


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        (f"compute: azureml:serverless\n{NC6}", ""),
        (NC6, "settings: {default_compute: serverless}\n"),
        ("resources: {instance_type: [Standard_NC12, Standard_NC6]}", ""),
        ("resources: {instance_type: '${{parent.inputs.size}}'}", "inputs: {size: Standard_NC6}\n"),
    ],
)
def test_it_counts_where_no_pool_is_named_otherwise(workspace: Workspace, changes: str, more: str) -> None:
    loaded = on_cluster(workspace, changes, {"Standard_NC6"}, more)
    assert loaded.job.steps[0].compute == "Standard_NC6"
    assert not loaded.warnings


@pytest.mark.parametrize(
    ("changes", "more"), [(f"compute: azureml:cpu\n{NC6}", ""), (NC6, "settings: {default_compute: cpu}\n")]
)
def test_compute_wins_and_the_instance_type_is_named(workspace: Workspace, changes: str, more: str) -> None:
    loaded = on_cluster(workspace, changes, {"cpu", "Standard_NC6"}, more)
    (warning,) = loaded.warnings
    assert loaded.job.steps[0].compute == "cpu"
    assert warning.key == "jobs.score.resources.instance_type"
    assert "the pool cpu, which its compute names" in warning.message


def test_the_same_name_twice_is_no_news(workspace: Workspace) -> None:
    loaded = on_cluster(workspace, f"compute: azureml:Standard_NC6\n{NC6}", ())
    assert loaded.job.steps[0].compute == "Standard_NC6"
    assert not loaded.warnings


def test_without_such_a_pool_the_warning_says_what_to_do(workspace: Workspace) -> None:
    loaded = on_cluster(workspace, NC6, {"cpu"})
    (warning,) = loaded.warnings
    assert loaded.job.steps[0].compute == ""
    assert "has no effect" in warning.message and "--pool Standard_NC6" in warning.message


def test_a_run_on_this_machine_has_no_pools(workspace: Workspace) -> None:
    loaded = workspace.loaded(NC6)
    (warning,) = loaded.warnings
    assert loaded.job.steps[0].compute == ""
    assert "a run on this machine uses this machine" in warning.message


def test_a_command_runs_in_the_pool_of_its_instance_type(workspace: Workspace) -> None:
    workspace.write(
        "job.yml",
        "type: pipeline\njobs:\n  prepare:\n    type: command\n    command: 'true'\n    environment: azureml:e@latest\n"
        f"    {NC6}\n",
    )
    loaded = load_job(workspace.folder / "job.yml", embedded=False, pools=lambda: ["Standard_NC6"])
    assert loaded.job.steps[0].compute == "Standard_NC6"


def test_properties_of_the_machine_are_named_unless_there_are_none(workspace: Workspace) -> None:
    (warning,) = workspace.loaded("resources: {properties: {AISuperComputer: {slaTier: Premium}}}").warnings
    assert warning.key == "jobs.score.resources.properties"
    assert "gpus_per_worker" in warning.message
    assert not workspace.loaded("resources: {properties: {}}").warnings
