"""Published pipelines and schedules in v1 notebooks."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from v1_notebooks import config, rows_of
from windrow.errors import NotFound, UsageError
from windrow.ml.exceptions import JobWarning
from windrow.ml.v1.core import Dataset, Experiment, Workspace
from windrow.ml.v1.data.datapath import DataPath, DataPathComputeBinding
from windrow.ml.v1.pipeline.core import (
    Pipeline,
    PipelineData,
    PipelineEndpoint,
    PipelineParameter,
    PublishedPipeline,
    Schedule,
    ScheduleRecurrence,
)
from windrow.ml.v1.pipeline.core._restclients.aeva.models.error_response import ErrorResponseException
from windrow.ml.v1.pipeline.steps import ParallelRunStep

pytestmark = pytest.mark.filterwarnings("ignore::windrow.ml.exceptions.JobWarning")

TELL = """\
import argparse, os

parser = argparse.ArgumentParser()
parser.add_argument("--word")
args, _ = parser.parse_known_args()


def run(mini_batch):
    return [f"{os.path.basename(name)} {args.word} of {len(mini_batch)}" for name in mini_batch]
"""


@pytest.fixture
def pipeline(workspace: Workspace, notebook: Path) -> Pipeline:
    """Parameters as an argument, as a setting, and as data."""
    (notebook / "src" / "tell.py").write_text(TELL)
    rows = PipelineData("rows")
    where = PipelineParameter("where", DataPath(workspace.get_default_datastore(), "first"))
    fill(workspace, "first", "abc")
    step = ParallelRunStep(
        "tell",
        config(entry_script="tell.py", mini_batch_size=PipelineParameter("batch size", "1"), node_count=1),
        [(where, DataPathComputeBinding(mode="mount"))],
        rows,
        arguments=["--word", PipelineParameter("word", "one")],
        allow_reuse=False,
    )
    return Pipeline(workspace, [step])


def fill(workspace: Workspace, folder: str, names: str) -> DataPath:
    """A folder of the default datastore with a file for each letter."""
    path = DataPath(workspace.get_default_datastore(), folder)
    Path(path.location).mkdir(parents=True)
    for name in names:
        Path(path.location, f"{name}.txt").write_text(name)
    return path


def told(run: object, pipeline: Pipeline, notebook: Path, folder: str) -> list[str]:
    """The rows of a run that has ended."""
    run.wait_for_completion(show_output=False)  # type: ignore[attr-defined]
    (step,) = pipeline.steps
    return sorted(rows_of(run, step, step.outputs[0], config(), notebook / folder))


def test_a_published_pipeline_runs_with_other_parameters(
    workspace: Workspace, pipeline: Pipeline, notebook: Path
) -> None:
    published = pipeline.publish(name="Tell me", description="tells", version="1.0")
    assert (published.id, published.name, published.version) == ("Tell_me:1.0", "Tell me", "1.0")
    # Its code is kept: what becomes of the notebook's does not matter.
    (notebook / "src" / "tell.py").write_text("broken(")
    run = published.submit(workspace, "again")
    assert told(run, pipeline, notebook, "got1") == ["a.txt one of 1", "b.txt one of 1", "c.txt one of 1"]
    given = {"word": "two", "batch size": "2", "where": fill(workspace, "other", "xy")}
    found = PublishedPipeline.get(workspace, "Tell_me:1.0")
    run = Experiment(workspace, "later").submit(found, pipeline_parameters=given)
    assert told(run, pipeline, notebook, "got2") == ["x.txt two of 2", "y.txt two of 2"]
    document = workspace.ml_client.windrow.document(run.id)
    assert (document["experiment_name"], document["display_name"]) == ("later", "Tell_me")
    with pytest.raises(UsageError, match=r'"wrod" is not a parameter of the pipeline.*Did you mean "word"'):
        published.submit(workspace, "again", {"wrod": 1})
    with pytest.raises(UsageError, match="is a table, or has steps"):
        published.submit(workspace, "again", {"where": Dataset.File.from_files("files/*.txt")})


def test_versions_and_endpoints(workspace: Workspace, pipeline: Pipeline, notebook: Path) -> None:
    first = pipeline.publish("nightly")
    assert pipeline.publish("nightly").id == first.id == "nightly:1", "the same again is no new version"
    (notebook / "src" / "tell.py").write_text(TELL + "# more\n")
    second = pipeline.publish("nightly")
    assert second.id == "nightly:2"
    (notebook / "src" / "tell.py").write_text(TELL + "# and more\n")
    with pytest.warns(JobWarning, match=r"version 2 of nightly was published before.* This one is nightly:2-2\."):
        again = pipeline.publish("nightly", version="2")
    assert (again.id, again.version) == ("nightly:2-2", "2")
    assert [one.id for one in PublishedPipeline.list(workspace)] == ["nightly:2-2", "nightly:2", "nightly:1"]
    timed = pipeline.publish("timed", version="2024-01-02T03:04:05.678901")
    assert (timed.id, timed.version) == ("timed:2024-01-02T03_04_05.678901", "2024-01-02T03:04:05.678901")
    assert PublishedPipeline.get(workspace, timed.id).version == timed.version
    with pytest.raises(NotFound, match="no pipeline other"):
        PublishedPipeline.get(workspace, "other")
    with pytest.raises(ErrorResponseException, match="no pipeline serving"):
        PipelineEndpoint.get(workspace, name="serving")
    endpoint = PipelineEndpoint.publish(workspace, "serving", first, "d")
    endpoint.add_default(second)
    assert (endpoint.default_version, list(endpoint.list_versions())) == ("2", ["2", "1"])
    assert [one.name for one in PipelineEndpoint.list(workspace)] == ["serving", "timed", "nightly"]
    run = PipelineEndpoint.get(workspace, name="serving").submit("e", {"word": "w"}, pipeline_version="1")
    assert told(run, pipeline, notebook, "got") == ["a.txt w of 1", "b.txt w of 1", "c.txt w of 1"]
    with pytest.raises(AttributeError, match="what is published stays"):
        first.disable()
    with pytest.warns(JobWarning, match="no addresses for HTTP requests.*windrow pipeline run nightly:1"):
        assert first.endpoint.startswith("windrow pipeline run nightly:1")


def test_a_run_of_this_notebook_can_be_published(workspace: Workspace, pipeline: Pipeline) -> None:
    run = pipeline.submit("first")
    run.wait_for_completion(show_output=False)
    assert run.publish_pipeline("from-run", "d").id == "from-run:1"
    from windrow.ml.v1.pipeline.core import PipelineRun

    with pytest.raises(UsageError, match="is known to the notebook that submitted it"):
        PipelineRun(workspace, run.id).publish_pipeline("from-run", "d")


def test_settings_that_cannot_be_parameters_stay(workspace: Workspace, notebook: Path) -> None:
    (notebook / "src" / "tell.py").write_text(TELL)
    made = config(entry_script="tell.py", run_max_try=PipelineParameter("tries", 2))
    data = Dataset.File.from_files("files").as_named_input("files")
    step = ParallelRunStep("tell", made, [data], PipelineData("rows"), arguments=["--word", "w"])
    with pytest.warns(JobWarning, match="The parameter tries.*run_max_try of the step tell stays 2"):
        published = Pipeline(workspace, [step]).publish("fixed")
    with pytest.raises(UsageError, match='"tries" is not a parameter'):
        published.submit(workspace, "e", {"tries": 3})


@pytest.mark.parametrize(
    ("recurrence", "line"),
    [
        (ScheduleRecurrence("Day", 1, hours=[22], minutes=[30]), "30 22 * * *  cd "),
        (ScheduleRecurrence("Week", 1, week_days=["Monday", "Friday"], time_of_day="6:05"), "5 6 * * 1,5  cd "),
        (ScheduleRecurrence("Minute", 15), "*/15 * * * *  cd "),
        (ScheduleRecurrence("Month", 1, start_time=datetime(2026, 5, 17, 3, 0)), "0 3 17 * *  cd "),
        (ScheduleRecurrence("Hour", 5), "counts the 5 hours anew in each day.\n0 */5 * * *  cd "),
    ],
)
def test_a_schedule_is_refused_with_a_line_for_cron(
    workspace: Workspace, recurrence: ScheduleRecurrence, line: str
) -> None:
    with pytest.raises(UsageError) as caught:
        Schedule.create(workspace, "n", pipeline_id="nightly:1", experiment_name="e", recurrence=recurrence)
    assert line in str(caught.value)
    assert "pipeline run nightly:1 --set experiment_name=e" in str(caught.value)


def test_other_schedules_are_refused_in_words(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match="does not watch datastores"):
        Schedule.create(workspace, "n", pipeline_id="nightly:1", experiment_name="e", datastore="d")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="'fortnight' is not one of minute"):
        Schedule.create(workspace, "n", pipeline_id="a:1", recurrence=ScheduleRecurrence("Fortnight", 1))
    assert Schedule.list(workspace) == []
