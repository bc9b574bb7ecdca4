"""What v1 notebooks say by the way, and mean: options, older names, how runs are looked at.

Reference: docs/reference/azure-ml/parallel-job.md#version-1; signatures of azureml-core 1.61 and azureml-pipeline-core
1.62.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest
from v1_notebooks import config, rows_of, script
from windrow.errors import NotFound, UsageError
from windrow.ml.exceptions import JobWarning
from windrow.ml.v1.core import Dataset, Datastore, Environment, Experiment, Model, Workspace
from windrow.ml.v1.core.authentication import InteractiveLoginAuthentication
from windrow.ml.v1.core.compute import AmlCompute
from windrow.ml.v1.core.runconfig import CondaDependencies, RunConfiguration
from windrow.ml.v1.data import DataType, OutputFileDatasetConfig
from windrow.ml.v1.data.datapath import DataPath, DataPathComputeBinding
from windrow.ml.v1.data.dataset_type_definitions import PromoteHeadersBehavior
from windrow.ml.v1.pipeline.core import Pipeline, PipelineData, PipelineParameter, PipelineRun
from windrow.ml.v1.pipeline.core.pipeline_output_dataset import PipelineOutputFileDataset
from windrow.ml.v1.pipeline.steps import ParallelRunStep, PythonScriptStep

pytestmark = pytest.mark.filterwarnings("ignore::windrow.ml.exceptions.JobWarning")

ECHO = "import sys\ndef run(mini_batch):\n    return [sys.argv[sys.argv.index('--said') + 1]] * len(mini_batch)\n"
SHAPE = (
    "def run(mini_batch):\n    return [f'{type(mini_batch).__name__} {list(mini_batch.columns)}'] * len(mini_batch)\n"
)
WRITE = "import os, sys\nos.makedirs(sys.argv[2], exist_ok=True)\n"
WRITE += "open(sys.argv[2] + '/a.csv', 'w').write('x,y\\n1,2\\n3,4\\n')\n"


def _rows(workspace: Workspace, notebook: Path, data: Any, settings: Any, before: Any = (), **more: Any) -> list[str]:
    rows = PipelineData("rows")
    step = ParallelRunStep("rows-of", settings, [data], rows, **more)
    run = Experiment(workspace, "habits").submit(Pipeline(workspace, [*before, step]))
    run.wait_for_completion(show_output=False)
    return rows_of(run, step, rows, settings, notebook / "got")


@pytest.mark.parametrize("kind", ["PipelineData", "PipelineOutputFileDataset", "OutputFileDatasetConfig"])
def test_an_output_that_is_parsed_is_divided_as_a_table(workspace: Workspace, notebook: Path, kind: str) -> None:
    makers: dict[str, Callable[[str], Any]] = {
        "PipelineData": lambda name: PipelineData(name).as_dataset(),
        "PipelineOutputFileDataset": lambda name: PipelineOutputFileDataset(PipelineData(name)),
        "OutputFileDatasetConfig": OutputFileDatasetConfig,
    }
    made = makers[kind]("made")
    is_data = kind != "OutputFileDatasetConfig"
    table = made.parse_delimited_files() if is_data else made.read_delimited_files().as_input("made")
    outputs = [made] if is_data else None
    write = PythonScriptStep(
        script(notebook, "write.py", WRITE), "write", ["--to", made], outputs=outputs, source_directory="src"
    )
    settings = config(entry_script=script(notebook, "shape.py", SHAPE))
    assert _rows(workspace, notebook, table, settings, [write]) == ["DataFrame ['x', 'y']"] * 2


def test_a_table_may_stand_for_the_output_that_it_reads(workspace: Workspace, notebook: Path) -> None:
    table = OutputFileDatasetConfig("made").read_delimited_files().register_on_complete("tables")
    name = script(notebook, "write.py", WRITE)
    first = PythonScriptStep(name, "first", ["--to", table], source_directory="src")
    last = PythonScriptStep(name, "last", ["--from", table], inputs=[table], source_directory="src")
    assert [(made.name, made.registered_as) for made in first.outputs] == [("made", "tables")]
    loaded = Pipeline(workspace, [last]).load()
    assert [(step.name, step.depends_on) for step in loaded.job.steps] == [("last", ("first",)), ("first", ())]


def test_how_an_output_is_parsed_is_refused_where_it_is_not_carried_out() -> None:
    made = PipelineData("made")
    made.parse_delimited_files(
        separator=",", header=PromoteHeadersBehavior.ALL_FILES_HAVE_SAME_HEADERS, file_extension=""
    )
    made.parse_parquet_files(file_extension=None)
    for options in (
        {"separator": ";"},
        {"include_path": True},
        {"header": PromoteHeadersBehavior.NO_HEADERS},
        {"header": False},
    ):
        with pytest.raises(UsageError, match=r"made: \w+=.* is not supported .* write an MLTable file"):
            made.parse_delimited_files(**options)
    with pytest.raises(UsageError, match="partition_format"):
        OutputFileDatasetConfig("made").read_parquet_files(False, "{year}/data.parquet")


def test_columns_of_files_with_headers_of_their_own(workspace: Workspace, notebook: Path) -> None:
    (notebook / "table/1.csv").write_text("x,y\n1,2\n")
    (notebook / "table/2.csv").write_text("y,x\n4,3\n")
    table = Dataset.Tabular.from_delimited_files("table/?.csv", header=PromoteHeadersBehavior.COMBINE_ALL_FILES_HEADERS)
    same = "def run(mini_batch):\n    return [f'{row.x} {row.y}' for row in mini_batch.itertuples()]\n"
    settings = config(entry_script=script(notebook, "same.py", same))
    assert _rows(workspace, notebook, table.as_named_input("t"), settings) == ["1 2", "3 4"]


def test_a_table_is_looked_at_as_its_options_say(notebook: Path) -> None:
    first, last = notebook / "table/1.csv", notebook / "table/2.csv"
    first.write_text("x,y\n\u00e9,007\n", "latin1")
    last.write_text("b,008\n")
    read: Any = Dataset.Tabular.from_delimited_files
    only_first = PromoteHeadersBehavior.ONLY_FIRST_FILE_HAS_HEADERS
    table = read("table/?.csv", header=only_first, infer_column_types=False, encoding="iso88591")
    assert table.to_pandas_dataframe().to_numpy().tolist() == [["\u00e9", "007"], ["b", "008"]]
    assert table.skip(1).take(1).keep_columns("y").to_pandas_dataframe().to_dict("list") == {"y": ["008"]}
    assert table.drop_columns(["y"]).to_pandas_dataframe().columns.tolist() == ["x"]
    bare = read("table/2.csv", header=False, include_path=True).to_pandas_dataframe()
    assert bare.to_dict("list") == {"Path": [str(last)], "Column1": ["b"], "Column2": [8]}
    with pytest.raises(UsageError, match="has others: take_random_sample"):
        table.take_sample(0.5, 1).to_pandas_dataframe()
    (notebook / "lines.jsonl").write_text('{"x": 1}\nno\n')
    lines = Dataset.Tabular.from_json_lines_files
    assert len(lines("lines.jsonl", invalid_lines="drop").to_pandas_dataframe()) == 1
    with pytest.raises(UsageError, match="line 2 is not a JSON object"):
        lines("lines.jsonl").to_pandas_dataframe()


def test_a_table_is_looked_at_in_the_encoding_that_a_job_reads(workspace: Workspace, notebook: Path) -> None:
    """latin1 means windows-1252, utf16 the little-endian one; marks are no part of the first name."""
    read: Any = Dataset.Tabular.from_delimited_files
    names = "def run(mini_batch):\n    return [f'{row.x} {row.y}' for row in mini_batch.itertuples()]\n"
    settings = config(entry_script=script(notebook, "names.py", names))
    for encoding, codec in (("latin1", "cp1252"), ("utf16", "utf-16"), ("utf8", "utf-8-sig"), ("utf32", "utf-32-le")):
        (notebook / "table/1.csv").write_text("x,y\n\u20ac,1\n", codec)
        (notebook / "table/2.csv").write_text("x,y\n\u2019,2\n", codec)
        table = read("table/?.csv", encoding=encoding)
        frame = table.to_pandas_dataframe()
        assert frame.to_dict("list") == {"x": ["\u20ac", "\u2019"], "y": [1, 2]}
        if encoding == "latin1":
            assert _rows(workspace, notebook, table.as_named_input("t"), settings) == ["\u20ac 1", "\u2019 2"]
    (notebook / "lines.jsonl").write_text('{"x": 1}\n', "utf-8-sig")
    assert len(Dataset.Tabular.from_json_lines_files("lines.jsonl").to_pandas_dataframe()) == 1
    with pytest.raises(UsageError, match="encoding='cp1250' is not supported"):
        read("table/?.csv", encoding="cp1250").to_pandas_dataframe()


def test_options_of_a_table_that_no_reader_has_are_refused() -> None:
    with pytest.raises(UsageError, match=r"decimal_mark=','\) is not supported"):
        DataType.to_float(",")
    assert DataType.to_float(".").name == "float"
    with pytest.raises(UsageError, match="header='ONLY_FIRST_FILE' is not known"):
        Dataset.Tabular.from_delimited_files("table/?.csv", header="ONLY_FIRST_FILE")
    for header in ("no_header", PromoteHeadersBehavior.NO_HEADERS, False):
        (step,) = Dataset.Tabular.from_delimited_files("table/?.csv", header=header).steps
        assert step["read_delimited"]["header"] == "no_header"


def test_lines_that_are_dropped(workspace: Workspace, notebook: Path) -> None:
    (notebook / "lines.jsonl").write_text('{"x": 1}\nno\n{"x": 2}\n')
    table = Dataset.Tabular.from_json_lines_files("lines.jsonl", invalid_lines="drop")
    settings = config(entry_script=script(notebook, "shape.py", SHAPE))
    assert _rows(workspace, notebook, table.as_named_input("t"), settings) == ["DataFrame ['x']"] * 2


def test_versions_of_a_dataset(workspace: Workspace, notebook: Path) -> None:
    first = Dataset.File.from_files("files/a.txt").register(workspace, "letters")
    last = Dataset.File.from_files("files/b.txt").register(workspace, "letters", create_new_version=True)
    found = [Dataset.get_by_name(workspace, "letters", version) for version in (1, "2", "latest")]
    assert [(one.version, one.paths) for one in found] == [(1, first.paths), (2, last.paths), (2, last.paths)]
    assert last.register(workspace, "letters").version == 2
    again = Dataset.File.from_files("files/b.txt").register(workspace, "letters")
    assert again.version == 2
    with pytest.warns(JobWarning, match=r"description and tags .* is version 2 already, and a version never changes"):
        assert last.register(workspace, "letters", "told").version == 2
    assert first.registered == "azureml:letters:1"
    with pytest.raises(UsageError, match=r"has another dataset 'letters' \(version 2\): pass create_new_version=True"):
        Dataset.File.from_files("files/c.txt").register(workspace, "letters")
    with pytest.raises(NotFound, match="no dataset 'letters' of version 3"):
        Dataset.get_by_name(workspace, "letters", version=3)


def test_what_a_workspace_lists(workspace: Workspace, notebook: Path) -> None:
    assert workspace.environments["AzureML-Minimal"].clone("mine").name == "mine"
    assert "AzureML-Minimal" not in workspace.environments
    made = Experiment(workspace, "made")
    assert workspace.experiments == {"made": made}
    step = PythonScriptStep(script(notebook, "nothing.py"), source_directory="src")
    Pipeline(workspace, [step]).submit("submitted").wait_for_completion(show_output=False)
    assert sorted(workspace.experiments) == ["made", "submitted"]
    assert len(list(workspace.experiments["submitted"].get_runs())) == 1


def test_local_files_of_a_dataset_are_copied(notebook: Path) -> None:
    (notebook / "files/below").mkdir()
    (notebook / "files/below/d.csv").write_text("d")
    files = Dataset.File.from_files("files/")
    got = [Path(path).relative_to(notebook) for path in files.download("got")]
    assert [str(path) for path in got] == ["got/a.txt", "got/b.txt", "got/below/d.csv", "got/c.txt"]
    with pytest.raises(UsageError, match=r"4 files already in place, such as .*got/a.txt; overwrite=True"):
        files.download("got")
    assert len(files.download("got", overwrite=True)) == 4
    (one,) = Dataset.File.from_files("files/*/*.csv").download()
    assert one.endswith("/below/d.csv")
    assert Path(one).read_text() == "d"
    assert [Path(path).name for path in files.skip(1).take(1).to_path()] == ["b.txt"]
    with pytest.raises(UsageError, match="take_random_sample of a dataset works only in jobs"):
        files.take_sample(0.5).to_path()
    with pytest.raises(UsageError, match=r"no local file at abfss://.* read it in a step"):
        Dataset.File.from_files("abfss://a@b.dfs.core.windows.net/c").download("got")


def test_values_of_partition_keys(notebook: Path) -> None:
    (notebook / "table/data.csv").write_text("x,y\n2,b\n1,a\n2,b\n")
    table = Dataset.Tabular.from_delimited_files("table/data.csv")
    assert table.get_partition_key_values() == []
    divided = table.partition_by(["x", "y"])
    assert divided.get_partition_key_values() == [{"x": 2, "y": "b"}, {"x": 1, "y": "a"}]
    assert divided.get_partition_key_values(["y"]) == [{"y": "b"}, {"y": "a"}]
    with pytest.raises(UsageError, match=r"'z' is not a partition key .* Its keys: x, y"):
        divided.get_partition_key_values(["z"])


def test_versions_of_a_model(workspace: Workspace, notebook: Path) -> None:
    (notebook / "model2.txt").write_text("m2")
    for path in ("model.txt", "model2.txt"):
        Model.register(workspace, path, "letters")
    found = [Model(workspace, "letters", version=version) for version in (None, 1, 2)]
    assert [(model.version, Path(model.path).name) for model in found] == [
        (2, "model2.txt"),
        (1, "model.txt"),
        (2, "model2.txt"),
    ]
    with pytest.raises(NotFound, match="no model 'letters' of version 3"):
        Model(workspace, "letters", version=3)


def test_a_place_in_a_datastore_as_a_parameter(workspace: Workspace, notebook: Path) -> None:
    store = workspace.get_default_datastore()
    for name in ("a", "b"):
        store.upload_files([f"files/{name}.txt"], target_path=name)
    place = PipelineParameter("place", DataPath(store, "a"))
    bound = (place, DataPathComputeBinding(mode="mount"))
    look = script(
        notebook, "look.py", "import os, sys\nopen(sys.argv[2] + '/f', 'w').write(os.listdir(sys.argv[1])[0])\n"
    )
    found = OutputFileDatasetConfig("found", destination="./found")
    step = PythonScriptStep(look, arguments=[bound, found], inputs=[bound], source_directory="src")
    pipeline = Pipeline(workspace, [step])
    assert list(pipeline.load().job.steps[0].inputs) == ["place"]
    for given, file in ({}, "a.txt"), ({"place": DataPath(store, "b")}, "b.txt"):
        pipeline.submit("places", given).wait_for_completion(show_output=False)
        assert (notebook / "found/f").read_text() == file


def test_what_is_uploaded(workspace: Workspace, notebook: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = workspace.get_default_datastore()
    (notebook / "files/below").mkdir()
    (notebook / "files/below/d.csv").write_text("d")
    found = Dataset.File.upload_directory("files", (store, "up"), pattern="*.csv")
    assert [Path(path).name for path in found.to_path()] == ["d.csv"]
    with pytest.raises(UsageError, match="no path of a file below files matches"):
        Dataset.File.upload_directory("files", (store, "up"), pattern="*.png")
    there = Path(found.to_path()[0])
    (notebook / "files/below/d.csv").write_text("new")
    store.upload("files", "up")
    store.upload_files(["files/below/d.csv"], "files", "up")
    assert there.read_text() == "d"
    assert "Kept 1 file already in place" in capsys.readouterr().out
    (notebook / "got/up/below").mkdir(parents=True)
    (notebook / "got/up/below/d.csv").write_text("mine")
    assert store.download("got", prefix="up") == 3
    assert (notebook / "got/up/below/d.csv").read_text() == "mine"
    store.upload("files", "up", overwrite=True)
    assert there.read_text() == "new"


def test_truth_reaches_a_script_as_v1_writes_it(workspace: Workspace, notebook: Path) -> None:
    settings = config(entry_script=script(notebook, "echo.py", ECHO))
    data = Dataset.File.from_files("files/a.txt").as_named_input("files")
    assert _rows(workspace, notebook, data, settings, arguments=["--said", True]) == ["True"]


def test_packages_of_a_run_configuration(workspace: Workspace) -> None:
    run_config = RunConfiguration(conda_dependencies=CondaDependencies.create(pip_packages=["pandas"]))
    assert run_config.environment.to_plain()["python"]["condaDependencies"] == {"dependencies": [{"pip": ["pandas"]}]}


def test_runs_as_notebooks_look_at_them(workspace: Workspace, notebook: Path) -> None:
    settings, rows = config(entry_script=script(notebook, "echo.py", ECHO)), PipelineData("rows")
    files = Dataset.File.from_files("files/a.txt").as_named_input("files")
    said = PipelineParameter("said", "nothing")
    step = ParallelRunStep("echo", settings, [files], rows, arguments=["--said", said])
    experiment = Experiment(workspace, "looked-at")
    run = experiment.submit(Pipeline(workspace, [step]), {"kind": "test"}, pipeline_params={"said": "something"})
    assert run.wait_for_completion(False, 60, True) == "Finished"
    assert rows_of(run, step, rows, settings, notebook / "got") == ["something"]
    assert next(experiment.get_runs()).id == run.id
    assert [step.name for step in PipelineRun(experiment, run.id).get_children()] == ["echo"]
    assert PipelineRun.get(workspace, run.id).get_status() == "Finished"
    with pytest.raises(NotFound):
        PipelineRun.get(workspace, "no-such-run")


@pytest.mark.parametrize("show_output", [True, False])
def test_who_waits_only_so_long_gets_the_status(workspace: Workspace, notebook: Path, show_output: bool) -> None:
    until = "import os, time\ndef run(mini_batch):\n    while not os.path.exists(mini_batch[0] + '.go'):\n"
    until += "        time.sleep(0.02)\n    return mini_batch\n"
    settings = config(entry_script=script(notebook, "until.py", until))
    step = ParallelRunStep("until", settings, [Dataset.File.from_files("files/a.txt")], PipelineData("rows"))
    run = Pipeline(workspace, [step]).submit("waits")
    assert run.wait_for_completion(show_output=show_output, timeout_seconds=0.3) in ("NotStarted", "Running")
    (notebook / "files/a.txt.go").write_text("")
    assert run.wait_for_completion(show_output=show_output) == "Finished"


def test_what_notebooks_ask_of_workspaces_pools_and_stores(workspace: Workspace, notebook: Path) -> None:
    first, second = Experiment(workspace, "first"), Experiment(workspace, "second")
    assert Experiment.list(workspace) == [first, second]
    assert Experiment.list(workspace, "second") == [second]
    Environment("mine").register(workspace)
    assert list(Environment.list(workspace)) == ["mine"]
    lake = Datastore.register_folder(workspace, "lake", "lake")
    workspace.set_default_datastore("lake")
    assert workspace.get_default_datastore() is lake and Datastore.get_default(workspace) is lake
    assert lake.account_name is None
    blob = Datastore.register_azure_blob_container(
        workspace, datastore_name="public", container_name="data", account_name="account1"
    )
    assert (blob.account_name, blob.container_name) == ("account1", "data")
    beside = Datastore.register_azure_blob_container(
        workspace,
        datastore_name="predictions",
        container_name="forecasts",
        account_name=lake.account_name,
        account_key=lake.account_key,
        create_if_not_exists=True,
    )
    assert beside.is_folder and Path(beside.root) == Path(lake.root).with_name("forecasts")
    assert Path(beside.root).is_dir()
    assert AmlCompute.supported_vmsizes(workspace) == []
    pool = workspace.compute_targets["cpu"]
    assert pool.scale_settings.maximum_node_count is None
    status = pool.get_status()
    # As notebooks write `node_count=…`: all nodes of the pool.
    assert status.scale_settings.maximum_node_count is None and status.provisioning_state == "Succeeded"
    assert workspace.get_details()["name"] == workspace.name
    with pytest.raises(AttributeError, match=r"AmlCompute has no serialize: a pool has the nodes whose agents join it"):
        pool.serialize()
    with pytest.raises(AttributeError, match=r"no get_authentication_header: .* published_pipeline.submit"):
        InteractiveLoginAuthentication().get_authentication_header()
    with pytest.raises(AttributeError, match=r"Tables has no from_sql_query: read the rows into a pandas.DataFrame"):
        Dataset.Tabular.from_sql_query((blob, "SELECT 1"))


def test_a_frame_becomes_a_dataset(workspace: Workspace, notebook: Path) -> None:
    frame = pandas.DataFrame({"x": [1, 2], "y": ["a", "b"]}, index=[7, 8])
    store = workspace.get_default_datastore()
    made = Dataset.Tabular.register_pandas_dataframe(frame, store, "frame", "d", {"a": "b"})
    assert Dataset.get_by_name(workspace, "frame").paths == made.paths
    assert made.to_pandas_dataframe().to_dict("list") == {"x": [1, 2], "y": ["a", "b"]}
    assert Dataset.Tabular.register_pandas_dataframe(frame, (store, ""), "frame").version == 1, "the same again"
    assert Dataset.Tabular.register_pandas_dataframe(frame[:1], (store, "mine"), "frame").version == 2
    plain = Dataset.Tabular.register_pandas_dataframe(
        frame, store.path("plain"), "other", make_target_path_unique=False
    )
    assert plain.paths == (str(notebook / "workspaceblobstore" / "plain" / "other.parquet"),)
    settings = config(entry_script=script(notebook, "shape.py", SHAPE))
    assert _rows(workspace, notebook, made.as_named_input("frame"), settings) == ["DataFrame ['x', 'y']"] * 2
    lake = Datastore.register_azure_blob_container(workspace, "lake", "data", "account1")
    with pytest.raises(UsageError, match="The datastore lake is not a folder of this machine"):
        Dataset.Tabular.register_pandas_dataframe(frame, lake, "frame")
    with pytest.raises(UsageError, match="The target is str; it must be a datastore"):
        Dataset.Tabular.register_pandas_dataframe(frame, "lake", "frame")


KINDS = """\
def run(mini_batch):
    kinds = {name: str(kind) if str(kind) in ("bool", "int64") else "text" for name, kind in mini_batch.dtypes.items()}
    return [str(kinds)] * len(mini_batch)
"""


def test_a_column_of_0_and_1_has_numbers_as_the_notebook_sees_them(workspace: Workspace, notebook: Path) -> None:
    (notebook / "flags.csv").write_text("id,flag,one,said,yes\n5,0,1,true,Yes\n7,1,1,False,No\n")
    store = workspace.get_default_datastore()
    store.upload_files(["flags.csv"], target_path="flags")
    tables = Dataset.Tabular
    table = tables.from_delimited_files((store, "flags/flags.csv"))
    settings = config(entry_script=script(notebook, "kinds.py", KINDS))
    kinds = {"id": "int64", "flag": "int64", "one": "int64", "said": "bool", "yes": "text"}
    assert [str(kind) for kind in table.to_pandas_dataframe().dtypes][:4] == list(kinds.values())[:4]
    assert _rows(workspace, notebook, table.as_named_input("flags"), settings) == [str(kinds)] * 2
    told = tables.from_delimited_files((store, "flags/flags.csv"), set_column_types={"one": DataType.to_bool()})
    assert _rows(workspace, notebook, told.as_named_input("flags"), settings) == [str({**kinds, "one": "bool"})] * 2
    registered = table.register(workspace, "flags")
    assert _rows(workspace, notebook, registered.as_named_input("flags"), settings) == [str(kinds)] * 2


def test_models_of_an_older_step_are_told(workspace: Workspace, notebook: Path) -> None:
    model = Model.register(workspace, "model.txt", "letters")
    files = Dataset.File.from_files("files/")
    with pytest.warns(JobWarning, match=r"upper: models has no effect: .* arguments=\['--model', model.path\]"):
        ParallelRunStep("upper", config(), [files.as_named_input("f")], PipelineData("rows"), models=[model], tags={})


OPEN = """\
from azureml.core import Model, Run

def init():
    global said
    model = Model(Run.get_context().experiment.workspace, "letters")
    said = f"{model.version} {open(model.download('.', exist_ok=True)).read()}"

def run(mini_batch):
    return [said] * len(mini_batch)
"""
PREDICT = """\
from azureml.core import Model

def init():
    global said
    assert open(Model.get_model_path("upper.py")).read(), "in the code"
    said = [open(Model.get_model_path("letters", version)).read() for version in (None, 1)]

def run(mini_batch):
    return [" ".join(said)] * len(mini_batch)
"""


def test_scripts_find_the_models_that_the_notebook_registered(workspace: Workspace, notebook: Path) -> None:
    Model.register(workspace, "model.txt", "letters")
    (notebook / "second.txt").write_text("m2")
    Model.register(workspace, "second.txt", "letters")
    settings = config(entry_script=script(notebook, "predict.py", PREDICT))
    data = Dataset.File.from_files("files/a.txt")
    assert _rows(workspace, notebook, data.as_named_input("f"), settings) == ["m2 m1"]


def test_scripts_open_the_models_of_the_workspace_of_their_run(workspace: Workspace, notebook: Path) -> None:
    Model.register(workspace, "model.txt", "letters")
    settings = config(entry_script=script(notebook, "open.py", OPEN))
    data = Dataset.File.from_files("files/a.txt")
    assert _rows(workspace, notebook, data.as_named_input("f"), settings) == ["1 m1"]


def test_a_notebook_whose_scripts_are_beside_it_uses_a_model_that_is_a_folder(
    workspace: Workspace, notebook: Path
) -> None:
    (notebook / "trained").mkdir()
    (notebook / "trained" / "weights.txt").write_text("7")
    Model.register(workspace, "trained", "net")
    workspace.get_default_datastore().upload("files", "data")
    (notebook / "ask.py").write_text(
        "import os\n"
        "from azureml.core import Model\n"
        "def run(mini_batch):\n"
        "    weights = open(os.path.join(Model.get_model_path('net'), 'weights.txt')).read()\n"
        "    return [f'{weights} {os.path.exists(\"workspaceblobstore\")}'] * len(mini_batch)\n"
    )
    settings = config(entry_script="ask.py", source_directory=".")
    data = Dataset.File.from_files((workspace.get_default_datastore(), "data/a.txt"))
    assert _rows(workspace, notebook, data.as_named_input("f"), settings) == ["7 False"]
