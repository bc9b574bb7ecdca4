"""Pipelines of v1 notebooks with their imports changed: which steps they have, and what these become.

Reference: docs/reference/azure-ml/parallel-job.md#version-1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from v1_notebooks import config, rows_of, script
from windrow.errors import JobFailed, UsageError
from windrow.ml.v1.core import Dataset, Workspace
from windrow.ml.v1.core.datastore import Datastore
from windrow.ml.v1.core.runconfig import RunConfiguration
from windrow.ml.v1.data import OutputFileDatasetConfig
from windrow.ml.v1.pipeline.core import Pipeline, PipelineData, PipelineParameter, StepSequence
from windrow.ml.v1.pipeline.steps import ParallelRunStep, PythonScriptStep
from windrow.spec import JobFileError, load_job

pytestmark = pytest.mark.filterwarnings("ignore::windrow.ml.exceptions.JobWarning")
"""What has no effect here (images, compute names) is said in every job of a notebook."""


def test_the_output_of_a_step_is_the_input_of_the_next(workspace: Workspace, notebook: Path) -> None:
    first_rows, last_rows = PipelineData("first_rows"), OutputFileDatasetConfig("last_rows", destination="./last")
    settings = config()
    first = ParallelRunStep("first", settings, [Dataset.File.from_files("files").as_named_input("files")], first_rows)
    last = ParallelRunStep("last", settings, [first_rows.as_dataset()], last_rows)
    loaded = Pipeline(workspace, [last, [first]]).load()
    assert [(step.name, step.depends_on) for step in loaded.job.steps] == [("last", ("first",)), ("first", ())]
    assert loaded.job.steps[0].outputs["last_rows"].path == str(notebook / "last")


def test_steps_before_those_of_a_pipeline_belong_to_it(workspace: Workspace, notebook: Path) -> None:
    copy = script(notebook, "copy.py", "import sys\nopen(sys.argv[2] + '/a.txt', 'w').write('a')\n")
    mark = script(notebook, "mark.py", "import sys\nopen(sys.argv[1], 'w').write('m1')\n")
    made, rows, marked = OutputFileDatasetConfig("made"), PipelineData("rows"), str(notebook / "marked")
    for name in ("of a cell", "of that cell again"):
        PythonScriptStep(copy, name, ["--to", made], source_directory="src")
    settings = config(entry_script="score.py")
    arguments = ["--model", marked, "--factor", 2]
    score = ParallelRunStep("score", settings, [made.as_input("made")], rows, arguments=arguments)
    score.run_after(PythonScriptStep(mark, arguments=[marked], source_directory="src"))
    run = Pipeline(workspace, [rows]).submit("closed")
    run.wait_for_completion(show_output=False)
    assert rows_of(run, score, rows, settings, notebook / "got") == ["a.txt m1 2"]
    assert [step.name for step in run.get_steps()] == ["score", "of_that_cell_again", "mark_py"]
    assert [step.name for step in run.find_step_run(mark)] == ["mark_py"]


def test_a_script_step_waits_for_another_one(workspace: Workspace, notebook: Path) -> None:
    first, last = (PythonScriptStep(script(notebook, f"{name}.py"), name, source_directory="src") for name in "ab")
    last.run_after(first)
    pipeline = Pipeline(workspace, [last])
    assert [(step.name, step.depends_on) for step in pipeline.load().job.steps] == [("b", ("a",)), ("a", ())]
    path = notebook / "job.yml"
    path.write_text(pipeline.to_yaml())
    assert load_job(path).job.run_digest == pipeline.load().job.run_digest
    first.run_after(last)
    with pytest.raises(JobFileError, match="waits for itself"):
        pipeline.validate()


def test_a_sequence_of_steps_is_run_in_its_order(workspace: Workspace, notebook: Path) -> None:
    a, b, c, d = (PythonScriptStep(script(notebook, f"{name}.py"), name, source_directory="src") for name in "abcd")
    loaded = Pipeline(workspace, StepSequence([a, [b, c], StepSequence([d])])).load()
    assert {step.name: set(step.depends_on) for step in loaded.job.steps} == {
        "a": set(),
        "b": {"a"},
        "c": {"a"},
        "d": {"b", "c"},
    }


def test_an_output_is_registered_when_its_step_is_done(workspace: Workspace, notebook: Path) -> None:
    copy = script(notebook, "copy.py", "import sys\nopen(sys.argv[2] + '/a.txt', 'w').write('a')\n")
    made = OutputFileDatasetConfig().register_on_complete("letters")
    step = PythonScriptStep(copy, arguments=["--to", made], source_directory="src")
    Pipeline(workspace, [step]).submit("registered").wait_for_completion(show_output=False)
    rows = PipelineData("rows")
    letters = Dataset.get_by_name(workspace, "letters").as_named_input("letters")
    upper = ParallelRunStep("upper", (settings := config()), [letters], rows)
    run = Pipeline(workspace, [upper]).submit("read")
    run.wait_for_completion(show_output=False)
    assert rows_of(run, upper, rows, settings, notebook / "got") == ["A"]


def test_defaults_of_a_pipeline(workspace: Workspace, notebook: Path) -> None:
    store = Datastore.register_folder(workspace, "lake", "lake")
    own, other = PipelineData("own", workspace.get_default_datastore()), PipelineData("other")
    prepare = PythonScriptStep(script(notebook, "prep.py"), "prep", outputs=[own, other])
    score = ParallelRunStep("score", config(source_directory=None), [own], PipelineData("rows"))
    for datastore in (store, "lake"):
        pipeline = Pipeline(workspace, [score, prepare], default_datastore=datastore, default_source_directory="src")
        loaded = pipeline.load()
        assert {name: output.path for step in loaded.job.steps for name, output in step.outputs.items()} == {
            "rows": f"{notebook}/lake/azureml/${{{{name}}}}/score/rows",
            "own": None,
            "other": f"{notebook}/lake/azureml/${{{{name}}}}/prep/other",
        }
        assert set(loaded.code_folders.values()) == {str(notebook / "src")}


def test_what_cannot_be_one_pipeline_is_refused(workspace: Workspace, notebook: Path) -> None:
    prep, out, lost = script(notebook, "prep.py"), PipelineData("out"), PipelineData("lost")
    first = PythonScriptStep(prep, "first", [PipelineParameter("factor", 3)], outputs=[out], source_directory="src")
    last = PythonScriptStep(prep, "last", inputs=[out], source_directory="src")
    for refused, words in (
        (
            lambda: Pipeline(workspace, [last]).submit("x", {"facter": 1}),
            'no parameter "facter". Did you mean "factor"?',
        ),
        (lambda: Pipeline(workspace, [last], resolve_closure=False).validate(), "The step last needs first"),
        (lambda: Pipeline(workspace, [lost]).validate(), "is lost, which no step writes"),
        (lambda: Pipeline(workspace, [prep]).validate(), "is str"),
        (lambda: PythonScriptStep(prep, "x", outputs=["out"]), "An output of the step x is str"),
        (lambda: PythonScriptStep(prep, "x", outputs=[lost, PipelineData("lost")]), "two outputs with the name lost"),
    ):
        with pytest.raises(UsageError) as caught:
            refused()
        assert words in str(caught.value)
    PythonScriptStep(prep, "third", outputs=[out], source_directory="src")
    with pytest.raises(UsageError, match="out of the step first is also one of the step third"):
        Pipeline(workspace, [first]).validate()


def test_no_step_is_lost_where_names_are_the_same(workspace: Workspace, notebook: Path) -> None:
    prep = script(notebook, "prep.py")
    outputs = [PipelineData("files") for _ in range(3)]
    steps = [
        PythonScriptStep(
            "prep.py", name=name, arguments=["--to", output, number], outputs=[output], source_directory="src"
        )
        for number, (name, output) in enumerate(zip((None, None, "prep py"), outputs, strict=True))
    ]
    data = [output.as_input(f"from{number}") for number, output in enumerate(outputs)]
    reads = PythonScriptStep(
        prep, "reads", data, inputs=[*data, Dataset.File.from_files("files")], source_directory="src"
    )
    loaded = Pipeline(workspace, [reads, *steps]).load().job.steps
    command = 'python prep.py --to "${{{{outputs.files}}}}" {}'
    assert [(step.name, step.command) for step in loaded[1:]] == [
        ("prep_py", command.format(0)),
        ("prep_py_2", command.format(1)),
        ("prep_py_3", command.format(2)),
    ]
    assert loaded[0].depends_on == ("prep_py", "prep_py_2", "prep_py_3")


def test_outputs_of_one_name_in_a_datastore_are_folders_of_their_steps(workspace: Workspace, notebook: Path) -> None:
    store = Datastore.register_folder(workspace, "lake", "lake")
    data = Dataset.File.from_files("files").as_named_input("files")
    steps = [
        ParallelRunStep(name, config(), [data], PipelineData(f"{name}_scores", store, output_name="scores"))
        for name in ("first", "last")
    ]
    assert [step.outputs["scores"].path for step in Pipeline(workspace, steps).load().job.steps] == [
        f"{notebook}/lake/azureml/${{{{name}}}}/{name}/scores" for name in ("first", "last")
    ]


def test_placeholders_of_a_place_stand_for_the_step_and_the_output(workspace: Workspace, notebook: Path) -> None:
    store = Datastore.register_folder(workspace, "lake", "lake")
    place = (store, "out/{run-id}/{output-name}")
    outputs = [OutputFileDatasetConfig(name, destination=place) for name in ("left", "right", "left")]
    outputs.append(OutputFileDatasetConfig("right", destination=(store,)).as_upload())
    prep = script(notebook, "prep.py")
    first = PythonScriptStep(prep, "first", outputs[:2], source_directory="src")
    last = PythonScriptStep(prep, "last", outputs[2:], source_directory="src")
    steps = Pipeline(workspace, [first, last]).load().job.steps
    assert [(step.name, name, output.path, output.mode) for step in steps for name, output in step.outputs.items()] == [
        ("first", "left", f"{notebook}/lake/out/${{{{name}}}}/first/left", "rw_mount"),
        ("first", "right", f"{notebook}/lake/out/${{{{name}}}}/first/right", "rw_mount"),
        ("last", "left", f"{notebook}/lake/out/${{{{name}}}}/last/left", "rw_mount"),
        ("last", "right", f"{notebook}/lake/azureml/${{{{name}}}}/last/right", "upload"),
    ]


def test_how_an_output_is_read(workspace: Workspace, notebook: Path) -> None:
    prep, out = script(notebook, "prep.py"), PipelineData("out").as_dataset()
    PythonScriptStep(prep, "first", ["--to", out], outputs=[out.as_mount()], source_directory="src")
    modes: dict[str, str] = {}
    for read in (out, out.as_mount("m"), out.as_download("d"), out.as_direct(), out.as_download().as_named_input("n")):
        reads = PythonScriptStep(prep, "reads", ["--from", out], inputs=[read], source_directory="src")
        (step, first) = Pipeline(workspace, [reads]).load().job.steps
        ((name, given),) = step.inputs.items()
        assert step.command == f'python prep.py --from "${{{{inputs.{name}}}}}"'
        assert first.command == 'python prep.py --to "${{outputs.out}}"'
        modes[f"{name} {len(modes)}"] = given.mode
    assert modes == {"out 0": "ro_mount", "m 1": "ro_mount", "d 2": "download", "out 3": "direct", "n 4": "download"}


def test_a_pipeline_is_written_as_v2(workspace: Workspace, notebook: Path) -> None:
    table = Dataset.Tabular.from_delimited_files("table/data.csv").keep_columns(["x"]).take(1)
    step = ParallelRunStep(
        "one-table", config(mini_batch_size="10kb"), [table.as_named_input("rows")], PipelineData("out")
    )
    pipeline = Pipeline(workspace, steps=[step])
    assert pipeline.validate() == []
    path = notebook / "job.yml"
    path.write_text(pipeline.to_yaml())
    assert load_job(path).job.run_digest == pipeline.load().job.run_digest


def test_reserved_arguments_are_refused_and_names_that_azure_ml_does_not_take_told(workspace: Workspace) -> None:
    step = ParallelRunStep(
        "Score",
        config(),
        [Dataset.File.from_files("files").as_named_input("files")],
        PipelineData("out"),
        arguments=["--run_max_try", 3],
    )
    with pytest.raises(JobFileError) as caught:
        Pipeline(workspace, [step]).validate()
    assert [problem.key for problem in caught.value.problems] == ["pipeline.steps.Score.arguments"]
    assert [told.key for told in caught.value.warnings if told.key.endswith(".name")] == ["pipeline.steps.Score.name"]


def test_a_script_step_becomes_a_command(workspace: Workspace) -> None:
    from windrow.ml.v1.graph import Graph
    from windrow.spec.reading.context import Context
    from windrow.spec.reading.nodes import Source, to_plain
    from windrow.spec.v1.pipeline import translate

    made = OutputFileDatasetConfig("made")
    run = RunConfiguration()
    run.environment.docker.base_image = "img"
    run.environment.environment_variables = {"A": "a", "B": "b"}
    run.environment_variables = {"B": "c"}
    step = PythonScriptStep(
        script_name="prep.py",
        name="Prepare data",
        source_directory="src",
        arguments=["--in", Dataset.File.from_files("files").as_named_input("files").as_mount(), "--out", made, 3],
        compute_target="cpu",
        runconfig=run,
        params={"n": PipelineParameter("n", 4)},
        allow_reuse=False,
    )
    pipeline = Pipeline(workspace, [step])
    context = Context(Source("job", "x", "/"), embedded=True)
    tree: Any = translate(Graph({}, "/tmp", pipeline._place).tree([step], description=None, compute=None), (), context)
    assert not context.problems.errors
    plain: Any = to_plain(tree)
    assert plain["jobs"] == {
        "Prepare_data": {
            "type": "command",
            "code": "src",
            "command": 'python prep.py --in "${{inputs.files}}" --out "${{outputs.made}}" 3',
            "environment": {"name": "environment", "image": "img"},
            "environment_variables": {"A": "a", "B": "c", "AML_PARAMETER_n": "${{inputs.n}}"},
            "compute": "cpu",
            "inputs": {
                "files": {"path": "${{parent.inputs.files}}", "mode": "ro_mount"},
                "n": "${{parent.inputs.n}}",
            },
            "outputs": {"made": {"type": "uri_folder", "mode": "rw_mount"}},
            "is_deterministic": False,
        }
    }


MAKES = """
import os, sys

folder, file, nothing, written = sys.argv[1:]
os.makedirs(folder)  # fails if it is there already
with open(os.path.join(folder, "a.txt"), "w") as made:
    made.write("a")
with open(file, "w") as made:
    made.write("one file")
with open(os.path.join(written, "b.txt"), "w") as made:
    made.write("its folder is there")
"""
READS = """
import os, sys

from azureml.core import Datastore, Run, Workspace

folder, file, nothing = sys.argv[1:]
table = Run.get_context().input_datasets["table"]
assert table.to_pandas_dataframe().to_dict("list") == {"y": [2, 4]}, table
assert [os.path.basename(path) for path in Run.get_context().input_datasets["letters"].to_path()] == ["a.txt"]
assert os.listdir(folder) == ["a.txt"] and os.listdir(nothing) == []
assert open(file).read() == "one file"
"""


def test_a_script_makes_its_pipeline_data_as_a_folder_or_a_file(workspace: Workspace, notebook: Path) -> None:
    folder, file, nothing = (PipelineData(name) for name in ("folder", "file", "nothing"))
    written = OutputFileDatasetConfig("written")
    PythonScriptStep(
        script(notebook, "makes.py", MAKES),
        "makes",
        [folder, file, nothing, written],
        outputs=[folder, file, nothing],
        source_directory="src",
    )
    inputs = [folder, file, nothing]
    table = Dataset.Tabular.from_delimited_files("table/data.csv").keep_columns(["y"]).as_named_input("table")
    letters = Dataset.File.from_files(["files/a.txt"]).as_named_input("letters")
    look, read = script(notebook, "reads.py", READS), [*inputs, table, letters]
    reads = PythonScriptStep(look, "reads", inputs, inputs=read, source_directory="src")
    rows = PipelineData("rows")
    divided = ParallelRunStep("upper", (settings := config()), [file.as_input("file")], rows)
    run = Pipeline(workspace, [reads, divided]).submit("makes")
    run.wait_for_completion(show_output=False)
    assert rows_of(run, divided, rows, settings, notebook / "got") == ["ONE FILE"]
    data = run.find_step_run("makes")[0].get_output_data("file")
    assert data.download(str(notebook / "got")) == 1
    assert (notebook / "got" / data.path_on_datastore).read_text() == "one file"
    lost = PipelineData("lost")
    forgets = script(notebook, "forgets.py", "import sys; open(sys.argv[1] + '/a.txt', 'w')")
    run = Pipeline(workspace, [PythonScriptStep(forgets, "forgets", [lost], outputs=[lost], source_directory="src")])
    with pytest.raises(JobFailed, match=r"folder of its output 'lost' is not there before it makes it: os.makedirs"):
        run.submit("forgets").wait_for_completion(show_output=False)
