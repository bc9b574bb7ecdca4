"""`windrow validate`: everything that is wrong with a file at once, before anything runs."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from client_workspace import Workspace

COMPONENT = """
name: scorer
type: parallel
inputs:
  data: {type: uri_folder}
  size: {type: integer}
  word: {type: string}
outputs:
  rows: {type: uri_file}
input_data: ${{inputs.data}}
mini_batch_size: ${{inputs.size}}
task:
  type: run_function
  code: ./code
  entry_script: score.py
  program_arguments: --word ${{inputs.word}}
  append_row_to: ${{outputs.rows}}
"""


def told(workspace: Workspace, *arguments: str, code: int) -> dict[str, Any]:
    """The JSON document of a validation that ends with this exit code."""
    done = workspace.run("validate", *arguments, "--format", "json")
    assert done.returncode == code, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["valid"] is (code == 0)
    return document


def write_script(workspace: Workspace, source: str) -> None:
    (workspace.folder / "code" / "score.py").write_text(source)


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_good_file_is_valid_under_both_names_and_leaves_no_trace(workspace: Workspace) -> None:
    workspace.write(["a"])
    before = tree(workspace.folder)
    for command in (("validate",), ("job", "validate")):
        done = workspace.run(*command, "job.yml")
        assert done.returncode == 0
        assert done.stdout.splitlines()[-1] == "job.yml is a valid job file."
    assert tree(workspace.folder) == before


def test_errors_of_file_and_code_and_warnings_are_told_together_with_their_places(workspace: Workspace) -> None:
    workspace.write(["a"], mini_batch_size="ten")
    workspace.job_file.write_text(workspace.job_file.read_text() + "no_such_key: 1\n")
    write_script(workspace, "def run(mini_batch):\n    return [\n")
    document = told(workspace, "job.yml", code=2)
    assert document["kind"] == "job file"
    size, script = document["errors"]
    assert (size["file"], size["key"]) == ("job.yml", "jobs.score.mini_batch_size")
    assert size["line"] > 1 and size["column"] > 1
    assert (script["file"], script["line"]) == ("code/score.py", 2)
    assert script["key"] == "jobs.score.task.entry_script"
    assert [warning["key"] for warning in document["warnings"]] == ["no_such_key"]
    text = workspace.run("validate", "job.yml")
    assert text.returncode == 2
    assert "code/score.py:2:" in text.stderr and "2 errors" in text.stderr


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def Run(mini_batch):\n    pass\n", "it has Run; the name must be run"),
        ("x = 1\n", "does not define a run() function"),
        ("async def run(mini_batch):\n    pass\n", "async def"),
        ("def run(a, b, c):\n    pass\n", "takes 3 arguments"),
        ("def run():\n    pass\n", "takes no argument"),
        ("import beside\ndef run(a):\n    return a\n", "never closed"),
        ("def run(a):\n    return a\nreturn 1\n", "'return' outside function"),
    ],
)
def test_a_script_that_cannot_serve_is_an_error(workspace: Workspace, source: str, said: str) -> None:
    workspace.write(["a"])
    (workspace.folder / "code" / "beside.py").write_text("x = (1,\n")
    write_script(workspace, source)
    (error,) = told(workspace, "job.yml", code=2)["errors"]
    assert said in error["message"]


@pytest.mark.parametrize(
    "source",
    [
        "from beside import run\n",
        "from beside import *\n",
        "try:\n    import no_such_package\nexcept ImportError:\n    pass\ndef run(a, b=None):\n    return a\n",
        "def run(a):\n    import no_such_package\n    return a\n",
        "if True:\n    def run(a):\n        return a\n",
        "from azureml_user.parallel_run import EntryScript\ndef run(*batches):\n    return batches\n",
        "import azureml.core.run\nfrom azureml.core import Run\ndef run(a):\n    return a",
        "from azureml.core.run import Run\ndef run(a):\n    return a",
        "def run(a, *, b=1):\n    return a\n",
        "exec('def run(a): return a')\n",
    ],
)
def test_a_script_that_may_serve_is_left_alone(workspace: Workspace, source: str) -> None:
    workspace.write(["a"])
    (workspace.folder / "code" / "beside.py").write_text("def run(a):\n    return a\n")
    write_script(workspace, source)
    assert told(workspace, "job.yml", code=0)["warnings"] == []


@pytest.mark.parametrize(
    "line", ["from azureml.core import Run, ScriptRun", "import azureml.core.compute", "from azureml.data import X"]
)
def test_what_workers_do_not_offer_of_azureml_is_lacking(workspace: Workspace, line: str) -> None:
    workspace.write(["a"])
    write_script(workspace, f"{line}\ndef run(a):\n    return a\n")
    (warning,) = told(workspace, "job.yml", code=0)["warnings"]
    assert "imports azureml, which is neither in the code folder nor in the Python" in warning["message"]
    assert "pip install azureml-core" in warning["message"]


def test_a_script_that_is_not_python_is_one_error(workspace: Workspace) -> None:
    workspace.write(["a"])
    (workspace.folder / "code" / "score.R").write_text("x <- commandArgs(trailingOnly = TRUE)\n")
    document = told(workspace, "job.yml", "--set", "jobs.score.task.entry_script=score.R", code=2)
    (error,) = document["errors"]
    assert "is not Python" in error["message"]


def test_packages_that_the_scripts_python_lacks_are_warnings_also_of_modules_beside(workspace: Workspace) -> None:
    workspace.write(["a"])
    (workspace.folder / "code" / "beside.py").write_text("\nimport no_such_package.part\n")
    write_script(workspace, "import beside, json\nimport no_other_package\ndef run(a):\n    return a\n")
    warnings = told(workspace, "job.yml", "--python", sys.executable, code=0)["warnings"]
    assert [(warning["file"], warning["line"]) for warning in warnings] == [
        ("code/beside.py", 2),
        ("code/score.py", 2),
    ]
    assert f"{shlex.quote(sys.executable)} -m pip install no_such_package" in warnings[0]["message"]


def test_the_script_is_read_and_never_run(workspace: Workspace) -> None:
    workspace.write(["a"])
    write_script(workspace, f"open({str(workspace.folder / 'ran')!r}, 'w')\ndef run(a):\n    return a\n")
    told(workspace, "job.yml", code=0)
    assert not (workspace.folder / "ran").exists()


def test_a_code_folder_that_cannot_be_packed_is_an_error_where_it_is_named(workspace: Workspace) -> None:
    workspace.write(["a"])
    (workspace.folder / "code" / "outside").symlink_to("/etc/hostname")
    (error,) = told(workspace, "job.yml", code=2)["errors"]
    assert (error["file"], error["key"]) == ("job.yml", "jobs.score.task.code")
    assert "points outside the code folder" in error["message"]
    assert workspace.job_file.read_text().splitlines()[error["line"] - 1].strip() == "code: ./code"


def test_somebody_elses_file_at_an_output_is_a_warning_and_our_own_is_none(workspace: Workspace) -> None:
    workspace.write(["a"])
    workspace.rows.parent.mkdir()
    workspace.rows.write_text("not ours\n")
    (warning,) = told(workspace, "job.yml", code=0)["warnings"]
    assert warning["key"] == "jobs.score.outputs.rows" and warning["line"] > 0
    assert "was not written by Windrow" in warning["message"]
    workspace.rows.unlink()
    assert workspace.run("run", "job.yml").returncode == 0
    assert told(workspace, "job.yml", code=0)["warnings"] == []
    assert told(workspace, "job.yml", "--state", "other", code=0)["warnings"]
    assert not (workspace.folder / "other").exists()


def test_a_component_is_checked_by_itself(workspace: Workspace) -> None:
    workspace.write(["a"])
    component = workspace.folder / "component.yml"
    component.write_text(COMPONENT)
    done = workspace.run("validate", "component.yml")
    assert (done.returncode, done.stdout) == (0, "component.yml is a valid component.\n"), done.stderr
    component.write_text(COMPONENT.replace("score.py", "other.py").replace("--word", "--x ${{inputs.nope}} --word"))
    document = told(workspace, "component.yml", code=2)
    assert document["kind"] == "component"
    assert [error["key"] for error in document["errors"]] == ["task.entry_script", "task.program_arguments"]
    assert all(error["file"] == "component.yml" and error["line"] > 0 for error in document["errors"])


def test_what_a_component_leaves_to_its_steps_is_a_warning(workspace: Workspace) -> None:
    workspace.write(["a"])
    (workspace.folder / "component.yml").write_text(COMPONENT.replace("input_data: ${{inputs.data}}\n", ""))
    (warning,) = told(workspace, "component.yml", code=0)["warnings"]
    assert warning["key"] == "input_data"


def test_a_command_component_is_one_too(workspace: Workspace) -> None:
    (workspace.folder / "command.yml").write_text(
        "type: command\ninputs: {x: {type: number}}\ncommand: echo ${{inputs.y}}\n"
    )
    (error,) = told(workspace, "command.yml", code=2)["errors"]
    assert error["key"] == "command" and "inputs.y" in error["message"]


def test_a_table_is_checked_by_itself(workspace: Workspace) -> None:
    table = workspace.folder / "table"
    table.mkdir()
    (table / "MLTable").write_text(
        "paths:\n  - file: ./rows.csv\ntransformations:\n  - read_delimited:\n      delimter: ','\n"
    )
    document = told(workspace, "table", code=2)
    assert document["kind"] == "table"
    places = {(Path(error["file"]).name, error["line"]) for error in document["errors"]}
    assert ("MLTable", 5) in places
    (table / "MLTable").write_text("paths:\n  - file: ./rows.csv\ntransformations:\n  - read_delimited\n")
    (error,) = told(workspace, "table/MLTable", code=2)["errors"]
    assert "does not exist" in error["message"]
    (table / "rows.csv").write_text("a,b\n1,2\n")
    assert workspace.run("validate", "table").stdout == "table is a valid table.\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing.yml",), "nothing.yml: does not exist"),
        (("data",), "a folder without an MLTable file"),
        ((".",), "Give one of its files: job.yml"),
        (("job.yml", "--python", "/no/python"), "does not exist"),
        (("component.yml", "--set", "a=b"), "--set changes job files only"),
    ],
)
def test_what_cannot_be_checked_is_told(workspace: Workspace, arguments: tuple[str, ...], said: str) -> None:
    workspace.write(["a"])
    if "component.yml" in arguments:
        (workspace.folder / "component.yml").write_text(COMPONENT)
    done = workspace.run("validate", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


SUB = """
$schema: https://azuremlschemas.azureedge.net/latest/pipelineComponent.schema.json
type: pipeline
inputs:
  data: {type: uri_folder}
  node: {type: string}
outputs:
  rows: {type: uri_file}
jobs:
  score:
    type: parallel
    compute: ${{parent.inputs.node}}
    component: ./scorer.yml
    inputs: {data: "${{parent.inputs.data}}", size: 3, word: w}
    outputs: {rows: "${{parent.outputs.rows}}"}
"""


def test_a_pipeline_that_is_a_component_is_checked_by_itself(workspace: Workspace) -> None:
    (workspace.folder / "scorer.yml").write_text(COMPONENT)
    (workspace.folder / "sub.yml").write_text(SUB)
    assert told(workspace, "sub.yml", code=0)["errors"] == []
    (workspace.folder / "sub.yml").write_text(SUB.replace("size: 3", "size: x"))
    (error,) = told(workspace, "sub.yml", code=2)["errors"]
    assert error["key"] == "jobs.score.mini_batch_size"
    (workspace.folder / "sub.yml").write_text(SUB)
    write_script(workspace, "x = 1\n")
    (error,) = told(workspace, "sub.yml", code=2)["errors"]
    assert (error["file"], error["key"]) == ("code/score.py", "jobs.score.task.entry_script")
    (workspace.folder / "outer.yml").write_text(
        "type: pipeline\njobs:\n  sub:\n    type: pipeline\n    component: ./sub.yml\n"
        "    inputs: {data: {path: ./code}, node: any}\n"
    )
    (error,) = told(workspace, "outer.yml", code=2)["errors"]
    assert (error["file"], error["key"]) == ("code/score.py", "jobs.sub.jobs.score.task.entry_script")


def test_a_file_that_names_an_asset_is_checked_where_nothing_is_registered(workspace: Workspace) -> None:
    workspace.write(["a"])
    done = told(workspace, "job.yml", "--set", "inputs={data: {type: uri_folder, path: 'azureml:flowers:1'}}",
                "--set", "jobs.score.inputs.data=${{parent.inputs.data}}", code=2)  # fmt: skip
    assert any("Register it: windrow data create --name flowers" in error["message"] for error in done["errors"])


@pytest.mark.parametrize(
    ("written", "said"),
    [("'A=B': c", '"A=B" is not a valid environment'), ('A: "c\\0d"', '"A" is not a valid environment')],
)
def test_a_variable_that_no_process_can_have_is_an_error(workspace: Workspace, written: str, said: str) -> None:
    workspace.write(["a"])
    job = workspace.job_file.read_text()
    workspace.job_file.write_text(job.replace("environment_variables:", "environment_variables:\n      " + written))
    (error,) = told(workspace, "job.yml", code=2)["errors"]
    assert error["key"] == "jobs.score.environment_variables" and said in error["message"]


def test_the_datastores_of_the_state_folder_are_known(workspace: Workspace) -> None:
    workspace.write(["a"])
    text = workspace.job_file.read_text().replace("./data", "azureml://datastores/lake/paths/")
    workspace.job_file.write_text(text)
    (error,) = told(workspace, "job.yml", code=2)["errors"]
    assert "lake" in error["message"]
    done = workspace.run("run", "job.yml", "--datastore", "lake=./data")
    assert done.returncode == 0, done.stderr
    told(workspace, "job.yml", code=0)
