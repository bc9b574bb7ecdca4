"""What v1 notebooks log, and what they read of what scripts have logged.

Source: azureml-core 1.57, `azureml.core._metrics.InlineMetric` and `azureml.core.run`.
"""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from v1_notebooks import config, script, wait_until
from windrow.errors import NotFound, UsageError
from windrow.ml.exceptions import JobWarning
from windrow.ml.v1.core import Dataset, Experiment, Model, Run, Workspace
from windrow.ml.v1.pipeline.core import Pipeline, PipelineData
from windrow.ml.v1.pipeline.steps import ParallelRunStep, PythonScriptStep

GET = "from azureml.core import Run\nrun_ = Run.get_context()\n"
SCORE = GET + "def run(b):\n    run_.log('seen', len(b))\n    run_.parent.log('share', 0.5)\n    return b\n"
TRAIN = GET + (
    "for loss in (0.3, 0.2):\n    run_.log('loss', loss)\n"
    "run_.log('accuracy', 0.9)\nrun_.log_list('ids', [1, 2])\n"
    "run_.log_row('fruit', kind='lemon', size=7)\nrun_.log_row('fruit', kind='lime')\n"
)


@pytest.mark.filterwarnings("ignore::windrow.ml.exceptions.JobWarning")
def test_runs_have_what_their_scripts_log(workspace: Workspace, notebook: Path) -> None:
    rows = PipelineData("rows")
    score = ParallelRunStep(
        "score",
        config(entry_script=script(notebook, "score.py", SCORE), mini_batch_size="1"),
        [Dataset.File.from_files("files/")],
        rows,
    )
    train = PythonScriptStep(script(notebook, "train.py", TRAIN), "train", inputs=[rows], source_directory="src")
    run = Experiment(workspace, "e").submit(Pipeline(workspace, [score, train]))
    run.wait_for_completion(show_output=False)
    (scored,), (trained,) = run.find_step_run("score"), run.find_step_run("train")
    wait_until(lambda: len(scored.get_metrics().get("seen", ())) == 3, "all workers' files are there")
    wait_until(lambda: "fruit" in trained.get_metrics(), "the file of the last step is there")
    assert (scored.get_metrics("seen"), scored.get_metrics()["Processed Items"]) == ({"seen": [1, 1, 1]}, 3)
    expected = {
        "loss": [0.3, 0.2],
        "accuracy": 0.9,
        "ids": [1, 2],
        "fruit": {"kind": ["lemon", "lime"], "size": [7, None]},
    }
    assert expected.items() <= trained.get_metrics().items()
    assert "share" not in scored.get_metrics()
    assert run.get_metrics() == {"share": [0.5, 0.5, 0.5]}
    everything = run.get_metrics(recursive=True)
    assert (set(everything), everything[run.id]) == ({run.id, scored.id, trained.id}, run.get_metrics())
    assert everything[trained.id]["loss"] == [0.3, 0.2]
    # Only scripts log values of such a run.
    for one in (run, scored):
        for log in (one.log, one.log_list, one.log_row, one.log_table, one.log_image):
            with pytest.raises(UsageError, match=r"'loss' cannot be logged from here: .* experiment.start_logging"):
                log("loss", 1)


def test_a_notebook_logs_into_a_run_of_its_own(workspace: Workspace) -> None:
    experiment = Experiment(workspace, "e")
    run = experiment.start_logging(outputs=None, snapshot_directory=None, display_name="tried by hand")
    assert (run.experiment, run.parent, run.display_name) == (experiment, None, "tried by hand")
    run.log("loss", 0.3, description="of an epoch")
    run.log("loss", 0.2, step=2)
    run.log("accuracy", 0.9)
    run.log_list("ids", range(2))
    run.log_row("fruit", kind="lemon", size=7)
    run.log_table("both", {"x": [1, 2], "y": ["a", "b"]})
    run.log_table("one", {"x": 1, "y": "text"})
    run.tag("kind", "test")
    run.flush()
    assert run.get_metrics() == {
        "loss": [0.3, 0.2],
        "accuracy": 0.9,
        "ids": [0, 1],
        "fruit": {"kind": "lemon", "size": 7},
        "both": {"x": [1, 2], "y": ["a", "b"]},
        "one": {"x": 1, "y": "text"},
    }
    assert run.get_metrics("loss") == {"loss": [0.3, 0.2]}
    assert (run.get_status(), run.get_tags()) == ("Running", {"kind": "test"})
    run.complete()
    assert (run.status, run.get_details()["runId"], run.get_portal_url()) == ("Completed", run.id, "")
    # It is no job.
    assert list(experiment.get_runs()) == []
    with experiment.start_logging() as other:
        other.log("x", 1)
    assert (other.status, other.get_metrics()) == ("Completed", {"x": 1})
    with pytest.raises(ZeroDivisionError), experiment.start_logging() as other:
        _ = 1 / 0
    assert other.status == "Failed"


def test_a_notebook_keeps_files_in_its_run_and_registers_models_of_them(workspace: Workspace, notebook: Path) -> None:
    run = Experiment(workspace, "train").start_logging()
    run.upload_file("outputs/model.txt", "model.txt")
    run.upload_file(name="outputs/note.txt", path_or_stream=io.StringIO("noted"))
    run.upload_folder("data", "files")
    assert run.get_file_names() == ["data/a.txt", "data/b.txt", "data/c.txt", "outputs/model.txt", "outputs/note.txt"]
    (notebook / "model.txt").unlink()
    model = run.register_model("model", "outputs/model.txt", tags={"a": "b"}, properties={"AUC": 0.9})
    assert (Path(Model(workspace, "model").path).read_text(), model.tags) == ("m1", {"a": "b"})
    every = Path(run.register_model("all", "outputs").path)
    assert sorted(path.name for path in every.iterdir()) == ["model.txt", "note.txt"]
    run.download_file("outputs/note.txt", "here.txt")
    assert (notebook / "here.txt").read_text() == "noted"
    with pytest.raises(NotFound, match=r"no file 'outputs/other'\. Its files: data/a.txt, .*\. Only run.upload_file"):
        run.register_model("other", "outputs/other")
    with pytest.raises(UsageError, match=r"has a file 'outputs/note.txt' already"):
        run.upload_file("outputs/note.txt", "here.txt")
    with pytest.raises(UsageError, match=r"'../x' is not a name of a file of a run: it leads out of it"):
        run.upload_file("../x", "here.txt")


def test_what_a_notebook_cannot_log_is_told(workspace: Workspace) -> None:
    experiment = Experiment(workspace, "e")
    with pytest.warns(JobWarning, match=r"start_logging\(outputs='out'\) has no effect: files stay"):
        run = experiment.start_logging(outputs="out")
    with pytest.warns(JobWarning, match=r"run.log_image has no effect: the notebook shows the image"):
        run.log_image("a", plot=1)
    with pytest.raises(UsageError, match=r"takes one number or text, not a list. Use run.log_list"):
        run.log("a", [1])
    with pytest.raises(UsageError, match=r"needs columns of one length. Their lengths: x: 1, y: 0\."):
        run.log_table("a", {"x": [1], "y": []})
    with pytest.raises(AttributeError, match=r"no child_run: a run has no further runs below it"):
        run.child_run("a")
    with pytest.raises(UsageError, match=r"Run.get_context\(\) is for the scripts of a step"):
        Run.get_context()
