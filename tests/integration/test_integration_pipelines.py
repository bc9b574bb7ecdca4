"""Published pipelines: kept by the master with all that they name, and run by name."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path

import windrow
import windrow_command
from embedded_run import DEADLINE_S, EmbeddedRun
from served import Served
from upload_bench import FILES, JOB, Laptop, finished
from windrow.ml.v1.core import Dataset, Model, Workspace
from windrow.ml.v1.pipeline.core import Pipeline
from windrow.ml.v1.pipeline.steps import PythonScriptStep

WORDS = """
import os, sys

word = sys.argv[sys.argv.index("--word") + 1]

def run(mini_batch):
    return [os.path.basename(path) + " " + word for path in mini_batch]
"""


def command(folder: Path, *arguments: str, code: int = 0, **environment: str) -> str:
    """What a command prints: on stdout, or on stderr if it fails."""
    done = windrow_command.windrow(
        *arguments, cwd=folder, timeout=DEADLINE_S, environment={**os.environ, **environment}
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def with_word(run: EmbeddedRun) -> None:
    """Gives the job a parameter."""
    job, bound = run.folder / "job.yml", '{data: "${{parent.inputs.data}}"'
    text = job.read_text().replace("inputs:\n", "inputs:\n  word: one\n", 1)
    text = text.replace(bound, f'{bound}, word: "${{{{parent.inputs.word}}}}"')
    script = "entry_script: entry.py\n"
    job.write_text(text.replace(script, f'{script}      program_arguments: --word "${{{{inputs.word}}}}"\n'))


def test_a_pipeline_of_this_machine_runs_by_name_without_its_files(tmp_path: Path) -> None:
    run = EmbeddedRun(tmp_path / "run", WORDS, 3)
    with_word(run)
    assert command(run.folder, "pipeline", "publish", "job.yml", "-n", "words", "--tag", "a=b") == "words:1\n"
    assert command(run.folder, "pipeline", "publish", "job.yml", "-n", "words", "--tag", "a=b") == "words:1\n"
    shown = json.loads(command(run.folder, "pipeline", "show", "words", "--format", "json"))
    assert (shown["version"], shown["tags"]) == ("1", {"a": "b"})
    assert shown["parameters"] == {"word": "one", "data": str(run.folder / "data")}
    (run.folder / "job.yml").unlink()
    shutil.rmtree(run.folder / "code")
    command(run.folder, "pipeline", "run", "words", "-p", "word=two  words")
    assert run.output.read_text() == "f00000 two  words\nf00001 two  words\nf00002 two  words\n"
    command(run.folder, "pipeline", "run", "words:1")
    assert run.output.read_text() == "f00000 one\nf00001 one\nf00002 one\n"
    (run.folder / "more").mkdir()
    (run.folder / "more" / "x").touch()
    command(run.folder, "pipeline", "run", "words", "--param", "data=more", "--param", "word=1.10")
    assert run.output.read_text() == "x 1.10\n"
    listed = command(run.folder, "pipeline", "list").splitlines()
    assert [line.split()[:2] for line in listed] == [["NAME", "VERSION"], ["words", "1"]]
    assert '"wrod" is not a parameter' in command(run.folder, "pipeline", "run", "words", "-p", "wrod=1", code=2)
    assert "There is no pipeline others here" in command(run.folder, "pipeline", "run", "others", code=2)
    with windrow.Client(state=run.state) as client:
        job = client.run_pipeline("words", {"word": "three"})
        client.wait(job.job_id, timeout_s=DEADLINE_S, progress=False)
    assert run.output.read_text() == "f00000 three\nf00001 three\nf00002 three\n"


def test_a_pipeline_of_a_served_master(served: Served, tmp_path: Path) -> None:
    laptop = Laptop(tmp_path / "laptop", FILES)
    expected = laptop.embedded_output()
    served.start_agent("one")
    where = {"WINDROW_MASTER": served.address}
    refused = command(laptop.folder, "pipeline", "publish", "job.yml", "--name", "texts", code=2, **where)
    assert "reads data of this machine (inputs.data, inputs.side)" in refused and "windrow data create" in refused
    command(laptop.folder, "data", "create", "--name", "texts", "--path", "./data", **where)
    command(laptop.folder, "data", "create", "--name", "side", "--path", "./side.txt", "--type", "uri_file", **where)
    laptop.job.write_text(
        JOB.format(kind="uri_folder", path="azureml:texts@latest", size=2).replace("./side.txt", "azureml:side:1")
    )
    command(laptop.folder, "pipeline", "publish", "job.yml", "--name", "texts", **where)
    # From any other machine.
    other = tmp_path / "other"
    other.mkdir()
    job = json.loads(command(other, "pipeline", "run", "texts", "--format", "json", **where))
    assert finished(served, job["job_id"]) == expected
    with served.client() as client:
        document = client.document(job["job_id"])
    assert (document["display_name"], document["job_file"]) == ("texts", "texts:1")
    command(other, "pipeline", "run", "texts", "--stream", **where)
    assert "--restart is for runs on this machine" in command(
        other, "pipeline", "run", "texts", "--restart", code=2, **where
    )
    assert not list(other.iterdir()), "nothing is left behind"
    _registers_everything(served, laptop.folder, other, where)


def _registers_everything(served: Served, folder: Path, other: Path, where: dict[str, str]) -> None:
    """Components, environments, and what a notebook of version 1 registers are there for other machines."""
    (folder / "environment.yml").write_text(ENVIRONMENT)
    (folder / "more.txt").write_text("attrs\n")
    (folder / "component.yml").write_text(COMPONENT.replace("src", "code"))
    (folder / "code" / "say.py").write_text(SAY)
    assert command(folder, "environment", "create", "-f", "environment.yml", **where) == "azureml:listed:3\n"
    assert command(folder, "component", "create", "-f", "component.yml", **where) == "azureml:say:1\n"
    (other / "job.yml").write_text(NAMED.replace("./src", "azureml:texts@latest"))
    with served.client() as client:
        loaded = client.read_job(other / "job.yml").load()
    step = loaded.job.steps[0]
    assert step.environment is not None and step.environment.requirements == ("six", "attrs")
    assert Path(loaded.code_folders[step.name], "say.py").read_text() == SAY
    (folder / "rows.csv").write_text("x,y\n1,2\n")
    (folder / "net.txt").write_text("weights")
    with contextlib.chdir(folder):
        workspace = Workspace("", "", "", master=served.address, state=folder / "none")
        data = workspace.ml_client.windrow.create_data("rows", "rows.csv", type="uri_file")
        Dataset.Tabular.from_delimited_files(data.path).register(workspace, "table")
        Model.register(workspace, "net.txt", "net")
        workspace.close()
    workspace = Workspace("", "", "", master=served.address, state=other / "none")
    table, model = workspace.datasets["table"], Model(workspace, "net")
    assert table.to_pandas_dataframe().to_dict("list") == {"x": [1], "y": [2]}
    assert Path(model.path).read_text() == "weights"
    (other / "code").mkdir()
    (other / "code" / "use.py").write_text(USE)
    with contextlib.chdir(other):
        step = PythonScriptStep("use.py", "use", inputs=[table.as_named_input("rows")], source_directory="code")
        Pipeline(workspace, [step]).submit("use").wait_for_completion(show_output=False)
    workspace.close()


USE = """
from azureml.core import Model, Run

assert open(Model.get_model_path("net")).read() == "weights"
assert Run.get_context().input_datasets["rows"].to_pandas_dataframe().to_dict("list") == {"x": [1], "y": [2]}
"""


ENVIRONMENT = """\
name: listed
version: 3
conda_file: {dependencies: [python>=3.8, {pip: [six, -r more.txt]}]}
"""
SAY = "def run(mini_batch):\n    return ['said'] * len(mini_batch)\n"
COMPONENT = """\
name: say
type: parallel
inputs: {texts: {type: uri_folder}}
outputs: {rows: {type: uri_file}}
input_data: ${{inputs.texts}}
task:
  type: run_function
  code: src
  entry_script: say.py
  environment: azureml:listed@latest
  append_row_to: ${{outputs.rows}}
"""
NAMED = """\
type: pipeline
jobs:
  said:
    type: parallel
    component: azureml:say@latest
    inputs: {texts: {type: uri_folder, path: ./src}}
    outputs: {rows: {type: uri_file, path: ./rows.txt}}
"""


def test_environments_and_components_of_this_machine_are_named_in_job_files(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    files = {"environment.yml": ENVIRONMENT, "more.txt": "attrs\n", "component.yml": COMPONENT, "src/say.py": SAY}
    for name, text in {**files, "job.yml": NAMED}.items():
        (tmp_path / name).write_text(text)
    assert "is not a registered component. Register it" in command(tmp_path, "validate", "job.yml", code=2)
    for _ in range(2):
        assert command(tmp_path, "environment", "create", "-f", "environment.yml") == "azureml:listed:3\n"
    (tmp_path / "more.txt").write_text("other\n")
    refused = command(tmp_path, "environment", "create", "-f", "environment.yml", code=2)
    assert "The environment listed:3 already exists, and a version cannot be changed. Give another version" in refused
    assert command(tmp_path, "component", "create", "-f", "component.yml", "--tag", "a=b") == "azureml:say:1\n"
    (tmp_path / "src" / "say.py").write_text("def run(mini_batch):\n    return ['changed']\n")
    assert "is a valid job file" in command(tmp_path, "validate", "job.yml")
    command(tmp_path, "run", "job.yml", "--environments", "own")
    assert (tmp_path / "rows.txt").read_text() == "said\n"
    assert [line.split()[:2] for line in command(tmp_path, "component", "list").splitlines()[1:]] == [["say", "1"]]
    shown = command(tmp_path, "component", "show", "say")
    assert "tag a         b" in shown and "- attrs" in shown and "- other" not in shown
    assert "- attrs" in json.loads(command(tmp_path, "environment", "show", "listed:3", "--format", "json"))["file"]
    (tmp_path / "more.yml").write_text("image: img\n")
    assert "The environment has no name" in command(tmp_path, "environment", "create", "-f", "more.yml", code=2)
