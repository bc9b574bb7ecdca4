"""What v1 notebooks ask of runs: outputs, logs, metrics, tags.

Source: signatures of azureml-core 1.61 and azureml-pipeline-core 1.62.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from v1_notebooks import config, script, wait_until
from windrow.errors import NotFound, UsageError
from windrow.ml.v1.core import Dataset, Experiment, Workspace
from windrow.ml.v1.pipeline.core import Pipeline, PipelineData, PipelineRun
from windrow.ml.v1.pipeline.steps import ParallelRunStep, PythonScriptStep

pytestmark = pytest.mark.filterwarnings("ignore::windrow.ml.exceptions.JobWarning")

LOUD = "def run(mini_batch):\n    print('said', len(mini_batch))\n    return mini_batch\n"


@pytest.fixture
def run(workspace: Workspace, notebook: Path) -> PipelineRun:
    """One that has ended: `loud` divides three files, `after` prints once."""
    rows = PipelineData("rows")
    loud = ParallelRunStep(
        "loud",
        config(entry_script=script(notebook, "loud.py", LOUD)),
        [Dataset.File.from_files("files/")],
        rows,
        arguments=["--push_metrics_to_parent", "True"],
    )
    after = PythonScriptStep(script(notebook, "a.py", "print('once')"), "after", inputs=[rows], source_directory="src")
    made = Experiment(workspace, "e").submit(Pipeline(workspace, [loud, after]), tags={"kind": "test"})
    made.wait_for_completion(show_output=False)
    (first,), (last,) = made.find_step_run("loud"), made.find_step_run("after")
    wait_until(
        lambda: "said" in first.get_stdout_log() and "once" in last.get_stdout_log(), "what was printed is there"
    )
    return made


def test_what_a_run_that_has_ended_tells(run: PipelineRun, notebook: Path) -> None:
    (loud,) = run.find_step_run("loud")
    (after,) = run.find_step_run("after")
    assert (run.get_tags(), loud.parent, loud.get_details()["status"]) == ({"kind": "test"}, run, "Finished")
    # Outputs.
    assert list(loud.get_outputs()) == ["rows"]
    data = loud.get_output("rows").get_port_data_reference()
    assert data.download(str(notebook / "got")) == 1
    # Notebooks put the path together by themselves, too.
    assert data.path_on_datastore == f"azureml/{data.step.id}/{data.name}"
    assert len((notebook / "got" / data.path_on_datastore / "rows.txt").read_text().splitlines()) == 3
    with pytest.raises(NotFound, match="Its outputs: rows"):
        loud.get_output("row")
    # Metrics.
    assert (loud.get_metrics()["Processed Items"], loud.get_metrics("Failed Items")) == (3, {"Failed Items": 0})
    assert any(name.endswith("Processed Items") for name in run.get_metrics())
    # Logs.
    assert {"logs/job_result.txt", "logs/loud/job_result.txt"} < set(run.get_file_names())
    assert {"logs/job_result.txt", "logs/metrics.csv"} < set(loud.get_file_names())
    loud.download_file("logs/job_result.txt", str(notebook / "logs/loud.txt"))
    assert (notebook / "logs/loud.txt").read_text() == loud.get_job_log() != ""
    loud.download_file("logs/job_result.txt", "files")
    assert (notebook / "files/job_result.txt").exists()
    with pytest.raises(NotFound, match=r"has no file 'logs/job_results.txt'\. Did you mean .*get_file_names"):
        loud.download_file("logs/job_results.txt")
    loud.download_files("logs/user/stdout", "printed")
    printed = [path for path in (notebook / "printed/logs/user/stdout").rglob("*") if path.is_file()]
    assert "said" in "".join(path.read_text() for path in printed)
    loud.download_files("logs/job_", "flat", append_prefix=False)
    assert (notebook / "flat/result.txt").exists()
    assert "said" in loud.get_stdout_log()
    assert "once" in after.get_stdout_log()
    assert "once" not in loud.get_stdout_log()
    assert loud.get_details_with_logs()["logFiles"]["logs/job_result.txt"] == loud.get_job_log()


def test_a_step_is_not_cancelled_by_itself(run: PipelineRun) -> None:
    with pytest.raises(UsageError, match=r"step loud cannot be cancelled alone: cancel the run"):
        run.find_step_run("loud")[0].cancel()
