"""Tags and properties of runs, which scripts and notebooks give and read; models that notebooks register from a run;
what scripts find of the notebook by name.

Reference: docs/reference/azure-ml/parallel-job.md#metrics; signatures of azureml-core 1.61, `azureml.core.run.Run`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from v1_notebooks import config, script
from windrow.errors import NotFound, RequestRefused
from windrow.ml.v1.core import Dataset, Datastore, Experiment, Model, Run, Workspace
from windrow.ml.v1.core.runconfig import RunConfiguration
from windrow.ml.v1.pipeline.core import Pipeline, PipelineData
from windrow.ml.v1.pipeline.steps import ParallelRunStep, PythonScriptStep
from windrow_command import windrow as command

pytestmark = pytest.mark.filterwarnings("ignore::windrow.ml.exceptions.JobWarning")

GET = "from azureml.core import Run\nrun_ = Run.get_context()\n"
SCORE = GET + (
    "import os\n"
    "def run(b):\n"
    "    run_.log('seen', len(b))\n"
    "    run_.tag('model', 'net')\n"
    "    run_.parent.tag('build', 'of the script')\n"
    "    run_.parent.add_properties({'data': 'the first'})\n"
    "    run_.parent.log('share', 0.5)\n"
    "    return b\n"
)
LOOK = GET + (
    "import json\n"
    "parent = run_.parent\n"
    "run_.upload_file('outputs/model.txt', 'model.txt')\n"
    "run_.upload_folder('net', 'net')\n"
    "parent.upload_file('notes/all.txt', 'model.txt')\n"
    "run_.parent.add_properties({'data': 'the second'})\n"
    "run_.tag('seen by', json.dumps([parent.get_tags(), parent.get_properties(), parent.get_metrics()]))\n"
)


@pytest.fixture
def run(workspace: Workspace, notebook: Path) -> Run:
    """A run that has ended: a step that divides data, and one that reads what it has logged."""
    rows = PipelineData("rows")
    score = ParallelRunStep(
        "score",
        config(entry_script=script(notebook, "score.py", SCORE), mini_batch_size="1"),
        [Dataset.File.from_files("files/")],
        rows,
        # Copies in the logs of the job are no tags of the job.
        arguments=["--copy_logs_to_parent", "True"],
    )
    for name in ("model.txt", "net/a.txt", "net/below/b.txt"):
        (notebook / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (notebook / "src" / name).write_text(f"content of {name}")
    look = PythonScriptStep(script(notebook, "look.py", LOOK), "look", inputs=[rows], source_directory="src")
    submitted = {"build": "of the notebook", "kind": "test"}
    made = Experiment(workspace, "e").submit(Pipeline(workspace, [score, look]), tags=submitted)
    assert made.wait_for_completion(show_output=False) == "Finished"
    return made


def test_tags_of_scripts_and_of_the_notebook_are_kept_with_the_run(run: Run, notebook: Path) -> None:
    (scored,), (looked,) = run.find_step_run("score"), run.find_step_run("look")
    # What a step's script reads is all that the steps before it have logged: no result counts without its metrics.
    tags, properties, metrics = json.loads(looked.get_tags()["seen by"])
    assert tags == {"build": "of the script", "kind": "test"}
    assert (properties, metrics) == ({"data": "the first"}, {"share": [0.5, 0.5, 0.5]})
    assert run.get_tags() == run.tags == tags
    assert run.get_properties() == run.properties == properties
    assert (scored.get_tags(), scored.properties) == ({"model": "net"}, {})
    # Tags are no metrics.
    assert run.get_metrics() == {"share": [0.5, 0.5, 0.5]} and "model" not in scored.get_metrics()

    run.tag("checked", "by hand")
    run.set_tags({"build": "of tomorrow", "bare": None})
    run.remove_tags(["kind", "never"])
    run.add_properties({"data": "the third", "owner": "me"})
    scored.tag("model", "other")
    assert run.get_tags() == {"build": "of tomorrow", "checked": "by hand", "bare": None}
    assert run.get_properties() == {"data": "the first", "owner": "me"}
    assert scored.get_tags() == {"model": "other"}
    assert Run.get(run.workspace, run.id).get_tags() == run.get_tags()
    with pytest.raises(RequestRefused, match=r"The name of a tag is one line of text, not 'a\\nb'"):
        run.tag("a\nb", "c")
    with pytest.raises(RequestRefused, match=r"65,536 are the most"):
        run.tag("long", "x" * 70_000)
    for number in range(16):
        run.tag("long", str(number) * 30_000)
    with pytest.raises(RequestRefused, match=r"have 1 MiB at most"):
        for _ in range(30):
            run.tag("long", "x" * 60_000)
    run.remove_tags("long")
    # And shown where metrics are.
    shown = command("job", "show", run.id, "--metrics", cwd=notebook).stdout.splitlines()
    at = next(number for number, line in enumerate(shown) if line.split()[:2] == ["STEP", "TAG"])
    assert shown[at].split() == ["STEP", "TAG", "VALUE", "SET"]
    assert [line.split()[:3] for line in shown[at + 1 :] if line.startswith("score")] == [["score", "model", "other"]]
    assert any(line.startswith("(job)") and "data (property)" in line and "the first" in line for line in shown)
    told = json.loads(command("job", "show", run.id, "--metrics", "--format", "json", cwd=notebook).stdout)
    kinds = {(one["step"], one["name"]): (one["kind"], one["newest"]) for one in told}
    assert kinds["", "build"] == ("tag", "of tomorrow") and kinds["", "share"] == ("metric", 0.5)
    assert kinds["", "owner"] == ("property", "me")
    assert command("job", "report", run.id, "--to", "report.html", cwd=notebook).returncode == 0
    page = (notebook / "report.html").read_text()
    assert page.count("<h2>Tags of the job</h2>") == 1 and '<th scope="row">model</th><td>tag</td><td>other' in page


def test_a_notebook_registers_models_from_the_files_of_a_run(run: Run, workspace: Workspace) -> None:
    (looked,), (scored,) = run.find_step_run("look"), run.find_step_run("score")
    one = looked.register_model("one", "outputs/model.txt", tags={"a": "b"}, description="of a step")
    assert (one.version, one.tags, one.description) == (1, {"a": "b"}, "of a step")
    assert Path(Model(workspace, "one").path).read_text() == "content of model.txt"
    folder = Path(looked.register_model(model_name="whole", model_path="net/").path)
    assert (folder / "below" / "b.txt").read_text() == "content of net/below/b.txt"
    # Of the run of the pipeline: its own files, then those of the only step that has them.
    assert Path(run.register_model("own", "notes/all.txt").path).read_text() == "content of model.txt"
    assert Path(run.register_model("net").path).is_dir()
    # An output, and a file in it.
    rows = Path(scored.register_model("rows", "rows/rows.txt").path)
    assert len(rows.read_text().splitlines()) == 3
    assert (Path(scored.register_model("folder", "rows").path) / "rows.txt").is_file()
    with pytest.raises(NotFound, match=r"has no file 'outputs/none'. Its files: net/a.txt, net/below/b.txt, outputs/m"):
        looked.register_model("none", "outputs/none")
    with pytest.raises(NotFound, match=r"A script gives it files by run.upload_file"):
        run.register_model("none", "outputs/none")


def test_the_run_of_a_notebook_itself_has_tags_and_properties(workspace: Workspace) -> None:
    own = Experiment(workspace, "e").start_logging()
    own.set_tags({"a": "1", "b": "2"})
    own.remove_tags(["a", "never"])
    own.add_properties({"of": "first"})
    own.add_properties({"of": "second"})
    assert (own.get_tags(), own.get_properties()) == ({"b": "2"}, {"of": "first"})


STORED = GET + (
    "import os\n"
    "from azureml.core import Dataset, Datastore\n"
    "ws = run_.experiment.workspace\n"
    "store = ws.get_default_datastore()\n"
    "rows = Dataset.Tabular.from_delimited_files((store, 'rows/data.csv')).to_pandas_dataframe()\n"
    "store.upload_files(['look.py'], target_path='made', overwrite=True)\n"
    "text = open(Dataset.get_by_name(ws, 'files').to_path()[0]).read()\n"
    "other = Datastore.get(ws, 'other').path('x').location\n"
    "run_.set_tags({'store': store.name, 'rows': len(rows), 'text': text, 'other': other})\n"
    "run_.tag('mlflow', ws.get_mlflow_tracking_uri() + ' ' + os.environ['MLFLOW_RUN_ID'])\n"
)


def test_scripts_find_the_datastores_data_and_mlflow_settings_of_the_notebook(
    workspace: Workspace, notebook: Path
) -> None:
    store = workspace.get_default_datastore()
    store.upload("table", "rows")
    Dataset.File.from_files("files/a.txt").register(workspace, "files")
    (notebook / "lab").mkdir()
    Datastore.register_folder(workspace, "other", notebook / "lab")
    settings = RunConfiguration()
    settings.environment.environment_variables = {"MLFLOW_TRACKING_URI": "file:///logged", "MLFLOW_RUN_ID": "7"}
    name = script(notebook, "look.py", STORED)
    look = PythonScriptStep(name, "look", source_directory="src", runconfig=settings)
    run = Experiment(workspace, "e").submit(Pipeline(workspace, [look]))
    assert run.wait_for_completion(show_output=False) == "Finished"
    assert run.find_step_run("look")[0].get_tags() == {
        "store": "workspaceblobstore",
        "rows": "2",
        "text": "a",
        "other": str(notebook / "lab" / "x"),
        "mlflow": "file:///logged 7",
    }
    assert Path(store.place_of("made/look.py")).read_text() == STORED
