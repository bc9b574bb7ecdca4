"""v1 notebooks with their imports changed: real runs, and what they look at afterwards."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from v1_notebooks import config, rows_of
from windrow.errors import NotFound, UsageError
from windrow.ml.exceptions import JobWarning
from windrow.ml.v1.core import VERSION, Dataset, Environment, Experiment, Model, Workspace
from windrow.ml.v1.core.compute import AmlCompute, ComputeTarget
from windrow.ml.v1.core.datastore import Datastore
from windrow.ml.v1.data.dataset_consumption_config import DatasetConsumptionConfig
from windrow.ml.v1.pipeline.core import Pipeline, PipelineData, PipelineParameter
from windrow.ml.v1.pipeline.steps import ParallelRunConfig, ParallelRunStep
from windrow.spec import JobFileError, load_job

pytestmark = pytest.mark.filterwarnings("ignore::windrow.ml.exceptions.JobWarning")
"""What has no effect here (images, compute names) is said in every job of a notebook."""

SIZES = """\
import os


def run(mini_batch, context):
    keys = context.partition_key_value
    return [f"{os.path.basename(name)},{keys['user']},{keys['genre']},{len(mini_batch)}" for name in mini_batch]
"""


def test_files_by_folders(workspace: Workspace, notebook: Path) -> None:
    (notebook / "src" / "sizes.py").write_text(SIZES)
    store = workspace.get_default_datastore()
    for place in ("u1/winter/piano", "u1/fall/piano", "u2/fall/disco"):
        (notebook / "raw" / place).parent.mkdir(parents=True, exist_ok=True)
        (notebook / "raw" / f"{place}.wav").write_text(place)
    store.upload("raw", "parts", overwrite=True, show_progress=False)
    dataset = Dataset.File.from_files(
        path=(store, "parts/*/*/*.wav"), partition_format="parts/{user}/{season}/{genre}.wav", validate=False
    )
    assert dataset.partition_keys == ["user", "season", "genre"]
    output = PipelineData(name="inferences", datastore=store)
    settings = config(entry_script="sizes.py", partition_keys=["user", "genre"])
    step = ParallelRunStep(
        name="sum-sizes",
        inputs=[dataset.as_named_input("files")],
        output=output,
        parallel_run_config=settings,
        allow_reuse=False,
    )
    run = Experiment(workspace, "sizes").submit(Pipeline(workspace=workspace, steps=[step]))
    assert run.wait_for_completion(show_output=False) == "Finished"
    rows = rows_of(run, step, output, settings, notebook / "got")
    assert sorted(rows) == ["disco.wav,u2,disco,1", "piano.wav,u1,piano,2", "piano.wav,u1,piano,2"]
    data = run.find_step_run(step.name)[0].get_output_data(output.name)
    for overwrite, count, text in ((None, 0, "mine"), (False, 0, "mine"), (True, 1, "\n".join(rows) + "\n")):
        path = notebook / "got" / data.path_on_datastore / "rows.txt"
        path.write_text("mine")
        assert data.download(str(notebook / "got"), overwrite=overwrite) == count
        assert path.read_text() == text
        assert sorted(path.parent.parent.iterdir()) == [path.parent]
    assert [one.id for one in Experiment(workspace, "sizes").get_runs()] == [run.id]
    with pytest.raises(NotFound, match="Its outputs: inferences"):
        run.find_step_run("sum-sizes")[0].get_output_data("other")


def test_parameters_change_a_second_submission(workspace: Workspace, notebook: Path) -> None:
    (notebook / "other").mkdir()
    (notebook / "other" / "d.txt").write_text("d")
    files = PipelineParameter(name="files_param", default_value=Dataset.File.from_files("./files"))
    consumed = DatasetConsumptionConfig("files", files).as_mount()
    model = Dataset.File.from_files("model.txt").as_named_input("model").as_download()
    factor = PipelineParameter("factor", 3)
    output = PipelineData(name="rows")
    settings = config(entry_script="score.py", mini_batch_size=PipelineParameter("size", "2"), run_max_try=1)
    step = ParallelRunStep(
        name="score-files",
        inputs=[consumed],
        side_inputs=[model],
        arguments=["--model", model, "--factor", factor],
        output=output,
        parallel_run_config=settings,
    )
    pipeline = Pipeline(workspace=workspace, steps=[step])
    run = pipeline.submit("scores")
    run.wait_for_completion(show_output=False)
    assert rows_of(run, step, output, settings, notebook / "one") == ["a.txt m1 3", "b.txt m1 3", "c.txt m1 3"]
    again = Experiment(workspace, "scores").submit(
        pipeline, pipeline_parameters={"factor": 9, "size": "1", "files_param": Dataset.File.from_files("other")}
    )
    again.wait_for_completion(show_output=False)
    assert rows_of(again, step, output, settings, notebook / "two") == ["d.txt m1 9"]


def test_a_config_is_saved_and_loaded(workspace: Workspace, notebook: Path) -> None:
    settings = config(
        mini_batch_size=PipelineParameter("size", "5"),
        process_count_per_node=2,
        allowed_failed_count=3,
        allowed_failed_percent=12.5,
        environment_variables={"A": "b"},
        logging_level="DEBUG",
    )
    settings.save_to_yaml("config.yml")
    assert ParallelRunConfig.load_yaml(workspace, "config.yml").to_plain() == settings.to_plain()
    loaded = load_job("config.yml", ["inputs.input.path=files"])
    assert (loaded.job.steps[0].mini_batch_size, loaded.job.steps[0].mini_batch_error_threshold) == (5, 3)


CONDA = {"dependencies": ["python=3.11", {"pip": ["six"]}]}

# What a ParallelRunConfig file in conf/ says, and what the environment of the config then is.
LOADED_ENVIRONMENTS = {
    "v2": (
        "environment: {name: e, image: img, conda_file: {dependencies: [python=3.11, pip: [six]]}}",
        {"name": "e", "python": CONDA, "docker": {"baseImage": "img"}},
    ),
    "snake case": (
        "environment: {python: {conda_dependencies: {dependencies: [python=3.11, pip: [six]]}}, "
        "environment_variables: {N: 1}}",
        {"name": "environment", "python": CONDA, "environmentVariables": {"N": "1"}},
    ),
    "conda's file": (
        "environment: {python: {condaDependenciesFile: own.yml}}",
        {"name": "environment", "python": CONDA},
    ),
    "beside it": ("environment: environment.yml", {"name": "beside", "python": CONDA}),
    "working folder": ("environment: envs/other.yml", {"name": "other", "python": CONDA}),
    "folder": ("environment_dir_path: saved", {"name": "saved", "python": CONDA}),
    "name": ("environment_name: known", {"name": "known", "python": CONDA}),
    "name of v2": ("environment: azureml:known:3", {"name": "known", "python": CONDA}),
}


@pytest.mark.parametrize(("line", "expected"), LOADED_ENVIRONMENTS.values(), ids=LOADED_ENVIRONMENTS)
def test_the_environment_of_a_loaded_config(
    workspace: Workspace, notebook: Path, line: str, expected: dict[str, Any]
) -> None:
    conda = "dependencies: [python=3.11, pip: [six]]\n"
    for name, text in {
        "conf/own.yml": conda,
        "conf/environment.yml": f"name: beside\npython: {{condaDependencies: {{{conda.strip()}}}}}\n",
        "envs/other.yml": "name: other\nconda_file: conda.yml\n",
        "envs/conda.yml": conda,
        "conf/saved/azureml_environment.json": '{"name": "saved"}',
        "conf/saved/conda_dependencies.yml": conda,
    }.items():
        (notebook / name).parent.mkdir(parents=True, exist_ok=True)
        (notebook / name).write_text(text)
    Environment.from_conda_specification("known", "conf/own.yml").register(workspace)
    lines = ["entry_script: upper.py", "error_threshold: 0", "output_action: append_row", "compute_target: cpu", line]
    (notebook / "conf" / "config.yml").write_text("\n  ".join(["parallel_run_config:", *lines]))
    loaded = ParallelRunConfig.load_yaml(workspace, "conf/config.yml").to_plain()
    python = {"userManagedDependencies": False, "condaDependencies": expected["python"]}
    assert loaded["environment"] == {**expected, "python": python}
    assert loaded["compute_target_name"] == "cpu"


def test_a_clone_of_an_environment_is_changed_by_itself() -> None:
    first = Environment("first")
    first.python.conda_dependencies.add_pip_package("a")
    first.docker.base_image = "img"
    first.environment_variables["A"] = "a"
    before = first.to_plain()
    clone = first.clone("clone")
    assert clone.to_plain() == {**before, "name": "clone"}
    clone.python.conda_dependencies.add_pip_package("b")
    clone.docker.base_image = "other"
    clone.environment_variables["A"] = "b"
    assert first.to_plain() == before


def test_what_is_wrong_with_a_config_to_load_is_told_with_its_file(workspace: Workspace, notebook: Path) -> None:
    for text, line in (("name: x\n", 1), ("parallel_run_config:\n  environment: absent.yml\n", 2)):
        (notebook / "config.yml").write_text(text)
        with pytest.raises(JobFileError, match=rf"config\.yml:{line}:.*parallel_run_config"):
            ParallelRunConfig.load_yaml(workspace, "config.yml")


def test_a_wrong_config_is_refused_where_it_is_made(notebook: Path) -> None:
    with pytest.raises(JobFileError) as caught:
        config(error_threshold=-2, output_action="append", run_max_try=0)
    assert {problem.key for problem in caught.value.problems} == {
        "ParallelRunConfig.error_threshold",
        "ParallelRunConfig.output_action",
        "ParallelRunConfig.run_max_try",
    }
    assert all(problem.file.endswith("v1_notebooks.py") for problem in caught.value.problems)


def test_modules_that_older_notebooks_import_are_there(workspace: Workspace, notebook: Path, capsys: Any) -> None:
    from windrow.ml.v1.core.authentication import InteractiveLoginAuthentication
    from windrow.ml.v1.data.datapath import DataPath
    from windrow.ml.v1.pipeline.core.graph import PipelineParameter as OlderName
    from windrow.ml.v1.widgets import RunDetails

    assert OlderName is PipelineParameter
    workspace.write_config()
    assert Workspace.from_config(auth=InteractiveLoginAuthentication()).name == workspace.name
    store = workspace.get_default_datastore()
    assert Dataset.File.from_files(DataPath(store, "a/b")).paths == (str(notebook / "workspaceblobstore" / "a" / "b"),)
    step = ParallelRunStep("upper", config(), [Dataset.File.from_files("files").as_named_input("f")], PipelineData("o"))
    run = Pipeline(workspace, step).submit("x")
    run.wait_for_completion(show_output=False)
    RunDetails(run).show()
    assert capsys.readouterr().out == f"{run.id}: Finished\n  upper: Finished\n"


def test_what_notebooks_do_before_their_pipeline(workspace: Workspace, notebook: Path) -> None:
    assert VERSION
    assert "cpu-cluster" in workspace.compute_targets
    assert type(workspace.compute_targets["cpu-cluster"]) is AmlCompute
    target = ComputeTarget.create(workspace, "gpu", AmlCompute.provisioning_configuration(vm_size="x"))
    target.wait_for_completion(show_output=True)
    assert target.get_status().serialize()["provisioningState"] == "Succeeded"
    store = Datastore.register_azure_blob_container(
        workspace, datastore_name="public", container_name="data", account_name="account1", overwrite=True
    )
    assert store.path("mnist").location == "abfss://data@account1.dfs.core.windows.net/mnist"
    assert workspace.datastores["public"] is store
    with pytest.raises(UsageError, match="not a folder of this machine"):
        store.upload_files(["model.txt"])
    default = workspace.get_default_datastore()
    default.upload_files(["./table/data.csv"], ".", "sales", overwrite=True)
    table = Dataset.Tabular.from_delimited_files(path=(default, "sales/table/*.csv"))
    assert table.to_pandas_dataframe().shape == (2, 2)
    registered = table.register(workspace, "sales", create_new_version=True)
    found = Dataset.get_by_name(workspace, "sales")
    assert (found.version, found.steps, found.paths) == (registered.version, registered.steps, registered.paths)
    model = Model.register(workspace, "model.txt", "model", tags={"a": "b"})
    assert Model(workspace, "model").path == model.path and Path(model.path).read_text() == "m1"
    assert (model.version, model.tags, model.description) == (1, {"a": "b"}, "")
    with pytest.raises(NotFound, match="there is nothing at"):
        Model.register(workspace, "absent.txt", "model")


def test_versions_of_an_environment(workspace: Workspace, notebook: Path) -> None:
    made = Environment("mine")
    for number, package in enumerate(("six", "attrs"), 1):
        made.python.conda_dependencies.add_pip_package(package)
        assert made.register(workspace).version == str(number)
    assert made.register(workspace).version == "2"
    packages = {
        version: Environment.get(workspace, "mine", version).python.conda_dependencies.pip_packages
        for version in ("1", "2", None)
    }
    assert packages == {"1": ["six"], "2": ["six", "attrs"], None: ["six", "attrs"]}
    first = Environment.get(workspace, "mine", "1")
    assert first.register(workspace).version == "3"
    assert Environment.get(workspace, "mine", label="latest").version == "3"
    with pytest.raises(
        NotFound, match=r"There is no environment 'mine' of version 4\. `windrow environment list` lists"
    ):
        Environment.get(workspace, "mine", version="4")
    with pytest.raises(UsageError, match="environment mine has no label 'production'"):
        Environment.get(workspace, "mine", label="production")
    assert Environment.get(workspace, "AzureML-Minimal", "7").version == "7"
    with pytest.raises(NotFound, match=r"There is no environment 'other'\. .* Make it in this notebook"):
        Environment.get(workspace, "other")
    with pytest.raises(KeyError, match="There is no environment 'other'"):
        workspace.environments["other"]
    config = "entry_script: upper.py\n  error_threshold: 0\n  output_action: append_row\n  environment: azureml:mine:2"
    (notebook / "src" / "config.yml").write_text(f"parallel_run_config:\n  source_directory: src\n  {config}\n")
    loaded = ParallelRunConfig.load_yaml(workspace, "src/config.yml").environment
    assert loaded is not None
    assert loaded.version == "2"
    (notebook / "src" / "config.yml").write_text((notebook / "src" / "config.yml").read_text().replace(":2", ":9"))
    with pytest.warns(
        JobWarning, match=r"src/config\.yml:6: azureml:mine:9: .*no environment 'mine' of version 9.*newest one is used"
    ):
        loaded = ParallelRunConfig.load_yaml(workspace, "src/config.yml").environment
    assert loaded is not None
    assert loaded.version == "3"
    (notebook / "src" / "config.yml").write_text((notebook / "src" / "config.yml").read_text().replace("mine:9", "new"))
    with pytest.raises(NotFound, match="There is no environment 'new'"), warnings.catch_warnings():
        warnings.simplefilter("error", JobWarning)  # there is no newest one, which a warning would promise
        ParallelRunConfig.load_yaml(workspace, "src/config.yml")


def test_a_dataset_that_is_registered_again_behind_another_is_a_version_of_its_own(workspace: Workspace) -> None:
    first, other = Dataset.File.from_files("files/a.txt"), Dataset.File.from_files("files/b.txt")
    for dataset in (first, other, first):
        dataset.register(workspace, "letters", create_new_version=True)
    paths = [Dataset.get_by_name(workspace, "letters", version).paths for version in (1, 2, 3)]
    assert paths == [first.paths, other.paths, first.paths]
    with pytest.raises(NotFound, match="no dataset 'letters' of version 4"):
        Dataset.get_by_name(workspace, "letters", 4)
