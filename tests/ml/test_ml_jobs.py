"""`MLClient` with real jobs on this machine: what a notebook does after it has built its pipeline."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from windrow.common.registries import Registries
from windrow.errors import JobFailed, NotFound, UsageError
from windrow.ml import Input, MLClient, Output, command, load_data, load_environment, load_model
from windrow.ml.dsl import pipeline
from windrow.ml.entities import AmlCompute, Data, Environment
from windrow.ml.exceptions import JobWarning
from windrow.ml.identity import DefaultAzureCredential
from windrow.ml.parallel import RunFunction, parallel_run_function
from windrow.spec import JobFileError


@pytest.fixture
def client(notebook: Path) -> Iterator[MLClient]:
    with MLClient(DefaultAzureCredential(), "subscription", "group", "space", slots=1) as client:
        yield client


def upper_job(script: str = "upper.py", **settings: Any) -> Any:
    step = parallel_run_function(
        name="upper",
        inputs={"lines": Input(type="uri_folder")},
        outputs={"out": Output(type="uri_file")},
        input_data="${{inputs.lines}}",
        task=RunFunction(code="./src", entry_script=script, append_row_to="${{outputs.out}}"),
        **settings,
    )

    @pipeline()
    def job(lines: Any) -> dict[str, Any]:
        return {"result": step(lines=lines).outputs.out}

    return job(lines=Input(path="./files"))


def test_a_job_is_checked_without_being_submitted(client: MLClient, notebook: Path) -> None:
    valid, broken = client.jobs.validate(upper_job()), upper_job("none.py", error_threshold=-2)
    assert valid.passed and not valid.error_messages
    checked = client.jobs.validate(broken)
    assert not checked.passed
    assert sorted(checked.error_messages) == ["jobs.upper.error_threshold", "jobs.upper.task.entry_script"]
    assert "jobs.upper.error_threshold: is -2" in repr(checked)
    assert client.jobs.validate(command(command="echo one step", compute="cpu")).passed
    with pytest.raises(JobFileError):
        client.jobs.validate(broken, raise_on_failure=True)
    with pytest.raises(UsageError, match=r"jobs\.validate takes a pipeline job or a step, not str"):
        client.jobs.validate("job.yml")
    assert not list(client.jobs.list())


def test_a_job_is_submitted_followed_and_fetched(client: MLClient, notebook: Path, capsys: Any) -> None:
    with (notebook / "src" / "upper.py").open("a") as script:
        script.write("\n\ndef init():\n    print('three letters')\n")
    job = client.jobs.create_or_update(upper_job(), experiment_name="letters", tags={"a": "b"})
    assert job.experiment_name == "letters"
    client.jobs.stream(job.name)
    shown = capsys.readouterr().out
    assert f"RunId: {job.name}" in shown
    assert "Completed: processed 1 of 1 mini batches (upper completed)" in shown
    assert client.jobs.get(job.name).status == "Completed"
    assert [one.name for one in client.jobs.list()] == [job.name]
    assert [step.display_name for step in client.jobs.list(parent_job_name=job.name)] == ["upper"]
    client.jobs.download(job.name, download_path=notebook / "got", output_name="result")
    (file,) = (notebook / "got" / "named-outputs" / "result").iterdir()
    assert file.read_text() == "A\nB\nC\n"
    logs = notebook / "all" / "artifacts" / "logs"
    deadline = time.monotonic() + 30
    # What a worker says last can arrive after the job's end.
    while not any("three letters" in log.read_text() for log in logs.rglob("*.txt")):
        assert time.monotonic() < deadline
        client.jobs.download(job.name, download_path=notebook / "all", all=True)
    assert (notebook / "all" / "named-outputs" / "result").is_dir()


def test_a_failing_job_raises_where_it_is_followed(client: MLClient, notebook: Path) -> None:
    (notebook / "src" / "bad.py").write_text("def run(mini_batch):\n    raise ValueError('no good')\n")
    job = client.jobs.create_or_update(
        upper_job("bad.py", mini_batch_error_threshold=0, retry_settings={"max_retries": 0})
    )
    with pytest.raises(JobFailed, match=job.name):
        client.jobs.stream(job.name)
    assert client.jobs.get(job.name).status == "Failed"
    with pytest.raises(JobFailed):
        client.jobs.download(job.name, download_path=notebook / "got", output_name="result")


def test_a_job_is_cancelled(client: MLClient, notebook: Path) -> None:
    (notebook / "src" / "slow.py").write_text("import time\n\n\ndef run(mini_batch):\n    time.sleep(60)\n")
    job = client.jobs.create_or_update(upper_job("slow.py"))
    cancelling = client.jobs.begin_cancel(job.name)
    assert cancelling.result().status == cancelling.status() == "Canceled"
    assert cancelling.done()


def test_a_closed_client_opens_again_and_has_its_jobs(client: MLClient) -> None:
    job = client.jobs.create_or_update(upper_job())
    client.windrow.wait(job.name)
    client.close()
    assert client.jobs.get(job.name).status == "Completed"


def test_what_has_no_effect_is_a_warning_of_python(client: MLClient) -> None:
    with pytest.warns(JobWarning, match="output_data"):
        client.jobs.create_or_update(upper_job(output_data="x"))


def test_known_environments_stand_in_for_their_names(client: MLClient, notebook: Path) -> None:
    made = client.environments.create_or_update(Environment(name="mine", image="img", conda_file="./src/conda.yml"))
    assert (made.name, made.version) == ("mine", "1")
    assert client.environments.create_or_update(Environment(name="mine", image="img2")).version == "2"
    assert client.environments.get("mine", label="latest").image == "img2"
    job = upper_job()
    job.jobs["upper"].task.environment = "azureml:mine:1"
    environment = client.jobs.load(job).job.steps[0].environment
    assert environment is not None and environment.requirements == ("pip",)
    job.jobs["upper"].task.environment = "azureml:mine:3"
    assert "the versions of mine are: 2, 1" in str(client.jobs.validate(job))
    with pytest.raises(NotFound, match=r"environments\.create_or_update"):
        client.environments.get("other")


def test_components_are_kept_by_the_client(client: MLClient) -> None:
    step = upper_job().jobs["upper"]
    client.components.create_or_update(step)
    kept = client.components.get("upper")
    assert (kept.version, kept.name) == ("1", "upper")
    with pytest.raises(NotFound, match="load_component"):
        client.components.get("lower")


def test_pools_are_names_and_making_one_says_so(client: MLClient) -> None:
    assert client.compute.get("cpu-cluster").name == "cpu-cluster"
    with pytest.warns(UserWarning, match="does not create machines"):
        made = client.compute.begin_create_or_update(AmlCompute(name="gpu", size="STANDARD_NC6", max_instances=4))
    assert made.result().provisioning_state == "Succeeded"
    assert client.compute.get("gpu").size == "STANDARD_NC6"


def test_a_data_object_is_an_input_by_its_path(client: MLClient, notebook: Path) -> None:
    (notebook / "data.yml").write_text("$schema: x\nname: letters\ntype: uri_folder\npath: ./files\ntags: {a: b}\n")
    data = load_data("data.yml")
    assert isinstance(data, Data)
    assert (data.name, data.path, data.tags) == ("letters", "files", {"a": "b"})
    job = upper_job()
    job.inputs.lines = data
    assert getattr(job.load().job.steps[0].inputs["lines"], "path", "") == str(notebook / "files")
    assert load_model("data.yml").type == "uri_folder"
    (notebook / "env.yml").write_text("name: e\nimage: i\nconda_file: src/conda.yml\n")
    assert load_environment("env.yml").conda_file == "src/conda.yml"


def test_names_of_a_workspace_come_from_its_config(notebook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (notebook / "config.json").write_text(
        json.dumps({"subscription_id": "s", "resource_group": "g", "workspace_name": "w"})
    )
    monkeypatch.chdir(notebook / "src")
    with warnings.catch_warnings():
        client = MLClient.from_config(DefaultAzureCredential())
    assert (client.subscription_id, client.resource_group_name, client.workspace_name) == ("s", "g", "w")
    assert client.workspaces.get().name == "w"
    with pytest.raises(AttributeError, match=r"no batch_endpoints: Windrow has no endpoints and deployments"):
        client.batch_endpoints  # noqa: B018
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.warns(JobWarning, match="Windrow has no MLflow server. Set MLFLOW_TRACKING_URI"):
        assert client.workspaces.get().mlflow_tracking_uri == ""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert client.workspaces.get().mlflow_tracking_uri == "http://127.0.0.1:5000"


def test_a_single_step_is_a_job_of_one(client: MLClient, notebook: Path) -> None:
    step = upper_job().jobs["upper"](lines=Input(path="./files"))
    step.outputs.out.path = "./rows.txt"
    job = client.create_or_update(step)
    client.windrow.wait(job.name)
    assert (notebook / "rows.txt").read_text() == "A\nB\nC\n"
    with pytest.raises(UsageError, match="a pipeline job or a step, not int"):
        client.jobs.create_or_update(3)


def test_a_client_outlives_the_one_that_had_opened_the_state(notebook: Path) -> None:
    with MLClient(slots=1) as first:
        job = first.jobs.create_or_update(upper_job())
        first.windrow.wait(job.name)
        second = MLClient(slots=1)
        assert second.jobs.get(job.name).status == "Completed"
        assert second.connection.session is not None
        assert second.connection.session.attached
    with second:
        assert second.jobs.get(job.name).status == "Completed"
        assert not second.connection.session.attached


def test_every_name_of_the_api_is_there() -> None:
    import windrow.ml
    import windrow.ml.entities

    for module in (windrow.ml, windrow.ml.entities):
        for name in module.__all__:
            assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        windrow.ml.nothing  # noqa: B018


def test_a_compute_that_is_started_or_stopped_stays_known(client: MLClient) -> None:
    with pytest.warns(UserWarning, match="does not create machines"):
        client.compute.begin_create_or_update(AmlCompute(name="gpu", size="STANDARD_NC6"))
    for call in (client.compute.begin_start, client.compute.begin_stop, client.compute.begin_restart):
        with pytest.warns(UserWarning, match="does not start or stop machines: the agents of the pool gpu stay"):
            assert call("gpu").done()
    assert client.compute.get("gpu").size == "STANDARD_NC6"
    client.compute.begin_delete("gpu")
    assert not list(client.compute.list())


def test_labels_other_than_latest_are_refused(client: MLClient) -> None:
    client.environments.create_or_update(Environment(name="mine", image="img"))
    for operations in (client.data, client.models, client.environments, client.components):
        with pytest.raises(UsageError, match="mine has no label 'production'"):
            operations.get("mine", label="production")


def test_components_of_a_registry_are_those_in_the_folder_that_mirrors_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDROW_REGISTRIES", str(tmp_path / "registries.json"))
    (tmp_path / "assets").mkdir()
    for version in (2, 10):
        (tmp_path / "assets" / f"{version}.yml").write_text(
            f"name: say\nversion: {version}\ntype: command\ncommand: echo {version}\n"
        )
    registry = MLClient(registry_name="mine")
    with pytest.raises(NotFound, match="windrow registry add mine FOLDER"):
        registry.components.get("say")
    Registries().add("mine", str(tmp_path / "assets"))

    def runs(**wanted: Any) -> str | None:
        @pipeline
        def both() -> None:
            registry.components.get("say", **wanted)()

        return both().load().job.steps[0].command

    assert [runs(), runs(label="latest"), runs(version="2")] == ["echo 10", "echo 10", "echo 2"]
    with pytest.raises(NotFound, match="which has the versions 10, 2"):
        registry.components.get("say", "3")
