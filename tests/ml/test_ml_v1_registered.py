"""Data assets and models of the master in v1 notebooks, and what such notebooks register themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from v1_notebooks import config, rows_of
from windrow.errors import NotFound, UsageError
from windrow.ml import Input, load_job
from windrow.ml.dsl import pipeline
from windrow.ml.v1.core import Dataset, Environment, Model, Workspace
from windrow.ml.v1.data import FileDataset, OutputFileDatasetConfig, TabularDataset
from windrow.ml.v1.pipeline.core import Pipeline, PipelineData
from windrow.ml.v1.pipeline.steps import ParallelRunStep
from windrow.spec.reading.problems import JobFileError

pytestmark = pytest.mark.filterwarnings("ignore::windrow.ml.exceptions.JobWarning")


@pytest.fixture
def registered(workspace: Workspace, notebook: Path) -> Workspace:
    """A workspace whose master has a folder, a file, a table, a list of files, and a model."""
    client = workspace.ml_client.windrow
    client.create_data("letters", notebook / "files")
    client.create_data("letters", notebook / "files" / "a.txt", type="uri_file")
    client.create_data("sales", notebook / "table", type="mltable")
    (notebook / "list").mkdir()
    (notebook / "list" / "MLTable").write_text("paths: [{pattern: ../files/*.txt}]\ntransformations: [{skip: 1}]\n")
    client.create_data("most", notebook / "list", type="mltable")
    client.create_model("net", notebook / "model.txt")
    return workspace


def test_files_are_found_read_and_copied(registered: Workspace, notebook: Path) -> None:
    folder = Dataset.get_by_name(registered, "letters", version=1)
    assert isinstance(folder, FileDataset)
    assert [Path(path).name for path in folder.to_path()] == ["a.txt", "b.txt", "c.txt"]
    assert [Path(path).name for path in folder.take(1).to_path()] == ["a.txt"]
    newest = registered.datasets["letters"]
    assert (newest.name, newest.version, newest.to_path()) == ("letters", 2, [str(notebook / "files" / "a.txt")])
    assert [Path(path).read_text() for path in newest.download(str(notebook / "got"))] == ["a"]
    most = Dataset.get_by_name(registered, "most")
    assert isinstance(most, FileDataset)
    assert [Path(path).name for path in most.to_path()] == ["b.txt", "c.txt"]


def test_a_table_is_one(registered: Workspace) -> None:
    table = Dataset.get_by_name(registered, "sales")
    assert isinstance(table, TabularDataset)
    assert table.to_pandas_dataframe().to_dict("list") == {"x": [1, 3], "y": [2, 4]}
    assert table.keep_columns(["y"]).take(1).to_pandas_dataframe().to_dict("list") == {"y": [2]}


def test_a_table_file_that_became_wrong_is_told_with_its_line(registered: Workspace, notebook: Path) -> None:
    (notebook / "list" / "MLTable").write_text("paths:\n- patern: ../files/*.txt\n")
    with pytest.raises(JobFileError, match=r"list/MLTable:2.*patern"):
        Dataset.get_by_name(registered, "most")
    (notebook / "list" / "MLTable").write_text("paths: [\n")
    with pytest.raises(JobFileError, match="list/MLTable"):
        Dataset.get_by_name(registered, "most")


def test_names_are_those_of_the_workspace_and_of_the_master(registered: Workspace) -> None:
    Dataset.File.from_files("files/b.txt").register(registered, "own")
    assert sorted(registered.datasets) == ["letters", "most", "own", "sales"]
    assert len(registered.datasets) == 4 and "sales" in registered.datasets and "none" not in registered.datasets
    with pytest.raises(KeyError, match="There is no dataset 'none'"):
        registered.datasets["none"]
    with pytest.raises(NotFound, match=r"no dataset 'letters' of version 7.*`windrow data list`"):
        Dataset.get_by_name(registered, "letters", version=7)
    with pytest.raises(UsageError, match=r"another dataset 'letters' \(version 2\): pass create_new_version=True"):
        Dataset.File.from_files("files/b.txt").register(registered, "letters")
    Dataset.File.from_files("files/b.txt").register(registered, "letters", create_new_version=True)
    assert [Path(path).name for path in registered.datasets["letters"].to_path()] == ["b.txt"]


def test_a_dataset_s_name_may_hold_blanks(registered: Workspace) -> None:
    made = Dataset.File.from_files("files/b.txt").register(registered, "Two words (new)")
    assert OutputFileDatasetConfig().register_on_complete("Two words (new)").registered_as == made.name
    assert made.name == "Two_words_new" and "Two words (new)" in registered.datasets
    assert Dataset.get_by_name(registered, "Two words (new)").to_path() == made.to_path()
    Dataset.File.from_files("files/a.txt").register(registered, "Two words (new)", create_new_version=True)
    assert registered.datasets["Two_words_new"].version == 2
    registered.ml_client.windrow.create_data("ends-", registered.datasets["letters"].to_path()[0], type="uri_file")
    assert registered.datasets["ends-"].name == "ends-"


def test_a_model_is_found_and_copied(registered: Workspace, notebook: Path) -> None:
    model = Model(registered, "net")
    assert (model.version, model.path) == (1, str(notebook / "model.txt"))
    assert registered.models["net"].path == model.path and list(registered.models) == ["net"]
    place = model.download(str(notebook / "got"))
    assert place == str(notebook / "got" / "model.txt") and Path(place).read_text() == "m1"
    model.path = str(notebook / "files")
    assert model.download(str(notebook)) == model.path and len(list((notebook / "files").iterdir())) == 3
    with pytest.raises(NotFound, match="There is no model 'other'"):
        Model(registered, "other")


@pytest.mark.parametrize("name", ["letters", "most"])
def test_a_pipeline_over_them_is_validated_and_run(registered: Workspace, notebook: Path, name: str) -> None:
    rows = PipelineData("rows")
    data = Dataset.get_by_name(registered, name)
    step = ParallelRunStep("upper", (settings := config()), [data.as_named_input("letters")], rows)
    pipeline = Pipeline(registered, [step])
    assert pipeline.validate() == []
    run = pipeline.submit("registered")
    run.wait_for_completion(show_output=False)
    found = sorted(rows_of(run, step, rows, settings, notebook / "got"))
    assert found == {"letters": ["A"], "most": ["B", "C"]}[name]
    document = registered.ml_client.windrow.document(run.id)
    assert document["steps"][0]["inputs"]["letters"]["asset"] == f"azureml:{name}:{data.version}"


SETUP = """
from windrow.ml import Input, Output
from windrow.ml.dsl import pipeline
from windrow.ml.entities import Environment as V2Environment
from windrow.ml.parallel import RunFunction, parallel_run_function
from windrow.ml.v1.core import Dataset, Environment, Model, Workspace

ws = Workspace.from_config(slots=1)
files = Dataset.File.from_files("files/")
files.register(ws, "letters")
Dataset.File.from_files("files/a.txt").register(ws, "letters", "one file", {"a": "b"}, create_new_version=True)
table = Dataset.Tabular.from_delimited_files("table/data.csv", set_column_types=None)
table.partition_by(["x"]).register(ws, "divided")
Dataset.File.from_files(["files/a.txt", "files/b.txt"]).register(ws, "two")
Model.register(ws, "model.txt", "net", tags={"a": "b"})
open("model.txt", "w").write("m2")
Model.register(ws, "model.txt", "net")
made = Environment.from_conda_specification("six", "src/conda.yml")
made.environment_variables["A"] = "a"
made.register(ws)
client = ws.ml_client
pip = V2Environment(name="pip", conda_file="src/conda.yml", image="img", tags={"a": "b"})
client.environments.create_or_update(pip)
upper = parallel_run_function(
    name="upper",
    inputs={"lines": Input(type="uri_folder"), "times": 2},
    outputs={"out": Output(type="uri_file")},
    input_data="${{inputs.lines}}",
    task=RunFunction(
        code="./src", entry_script="upper.py", append_row_to="${{outputs.out}}", environment="azureml:pip:1"
    ),
)
assert client.components.create_or_update(upper).version == "1"
assert client.components.create_or_update(upper).version == "1", "the same again"

@pipeline()
def twice(lines: Input(type="uri_folder")):
    upper(lines=lines)
    upper(lines=lines)

client.components.create_or_update(twice)
ws.close()
"""


JOB = """
type: pipeline
outputs: {rows: {type: uri_file, path: ./rows.txt}}
jobs:
  named:
    type: parallel
    component: azureml:upper@latest
    inputs: {lines: {type: uri_folder, path: ./files}}
    outputs: {out: "${{parent.outputs.rows}}"}
"""


def test_another_notebook_finds_what_one_has_registered(notebook: Path) -> None:
    subprocess.run([sys.executable, "-c", SETUP], check=True, cwd=notebook)
    workspace = Workspace.from_config(slots=1)
    try:
        newest = Dataset.get_by_name(workspace, "letters")
        assert (newest.version, newest.description, newest.tags) == (2, "one file", {"a": "b"})
        assert newest.to_path() == [str(notebook / "files" / "a.txt")]
        assert len(Dataset.get_by_name(workspace, "letters", version=1).to_path()) == 3
        divided = workspace.datasets["divided"]
        assert isinstance(divided, TabularDataset) and divided.partition_keys == ["x"]
        assert divided.get_partition_key_values() == [{"x": 1}, {"x": 3}]
        two = workspace.datasets["two"]
        assert isinstance(two, FileDataset) and len(two.to_path()) == 2
        assert sorted(workspace.datasets) == ["divided", "letters", "two"] and list(workspace.models) == ["net"]
        found = [Model(workspace, "net", version=version) for version in (1, 2, None)]
        assert [(model.version, Path(model.path).read_text(), model.tags) for model in found] == [
            (1, "m1", {"a": "b"}),
            (2, "m2", {}),
            (2, "m2", {}),
        ]
        # Azure ML's newer client finds the same.
        client = workspace.ml_client
        assert client.data.get("letters", label="latest").version == "2"
        assert sorted(data.name for data in client.data.list()) == ["divided", "letters", "two"]
        assert Dataset.File.from_files("files/a.txt").register(workspace, "letters").version == 2, "the same again"
        assert sorted(workspace.environments) == ["pip", "six"]
        six = Environment.get(workspace, "six")
        assert (six.version, six.environment_variables) == ("1", {"A": "a"})
        assert six.python.conda_dependencies.conda_packages == ["pip"]
        pip = client.environments.get("pip", label="latest")
        assert (pip.version, pip.image, pip.tags) == ("1", "img", {"a": "b"})
        assert pip.conda_file.to_dict() == {"dependencies": ["pip"]}
        assert sorted(one.name for one in client.environments.list()) == ["pip", "six"]
        assert workspace.environments["pip"].docker.base_image == "img"
        # The code of a component is what it was.
        (notebook / "src" / "upper.py").write_text("def run(mini_batch):\n    return ['changed'] * len(mini_batch)\n")
        assert sorted((one.name, one.version) for one in client.components.list()) == [("twice", "1"), ("upper", "1")]
        upper, twice = client.components.get("upper"), client.components.get("twice", "1")
        assert (upper.type, twice.type) == ("parallel", "pipeline")

        @pipeline()
        def job(lines: Any) -> Any:
            twice(lines=lines)
            return {"rows": upper(lines=lines).outputs.out}

        made = job(Input(type="uri_folder", path="./files"))
        made.outputs.rows.path = "./rows.txt"
        steps = client.jobs.load(made).job.steps
        assert [step.environment.requirements for step in steps if step.environment is not None] == [("pip",)] * 3
        (notebook / "job.yml").write_text(JOB)
        for wanted in (made, load_job("job.yml")):
            # One after the other: both write the same file.
            client.windrow.wait(client.jobs.create_or_update(wanted).name)
            assert sorted((notebook / "rows.txt").read_text().split()) == ["A", "B", "C"]
            (notebook / "rows.txt").unlink()
    finally:
        workspace.close()


def test_names_that_were_never_registered_start_no_master(workspace: Workspace, notebook: Path) -> None:
    with pytest.raises(NotFound, match=r"There is no dataset 'none'\. `windrow data list` lists what is registered"):
        Dataset.get_by_name(workspace, "none")
    assert not list(workspace.datasets) and "none" not in workspace.models
    assert not Path(workspace.ml_client.connection.state).exists()
