"""`windrow master`, `agent`, `job` and `node` for real: one served master, one agent for all tests here."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import windrow
from client_workspace import Workspace, end, served_cluster, wait_until
from windrow.cli.jobs.explain import explain
from windrow.cli.options.completion import node_names
from windrow.cli.options.shared import OutputForm
from windrow.errors import JobFailed, NotFound, RequestRefused

CONTENTS = ["a", "b", "raise", "c"]


@dataclass
class ServedCluster:
    """A served master with an agent."""

    workspace: Workspace
    address: str


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """One for all tests here."""
    workspace = Workspace(tmp_path_factory.mktemp("cluster"))
    workspace.write(CONTENTS, error_threshold=5)
    with served_cluster(workspace, workspace.folder) as address:
        yield ServedCluster(workspace, address)


@pytest.fixture(scope="module")
def job_id(cluster: ServedCluster) -> str:
    """A job that has ended with one tolerated failure."""
    absolute = str(cluster.workspace.folder / "data")
    done = command(
        cluster, "job", "create", "job.yml", "--set", f"inputs.data.path={absolute}", "--stream", "--name", "ended"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed_items.csv" in done.stdout.splitlines()[-1]
    return "ended"


def command(cluster: ServedCluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command with the cluster's address."""
    return cluster.workspace.run(*arguments, WINDROW_MASTER=cluster.address)


def test_create_twice_under_one_name_is_refused(cluster: ServedCluster, job_id: str) -> None:
    done = command(cluster, "job", "create", "job.yml", "--name", job_id)
    assert done.returncode == 2
    assert f"The name {job_id!r} is taken" in done.stderr


def test_list_and_show_tell_the_same_as_json_and_as_text(cluster: ServedCluster, job_id: str) -> None:
    listed = json.loads(command(cluster, "job", "list", "--format", "json").stdout)
    assert job_id in [job["job_id"] for job in listed]
    shown = json.loads(command(cluster, "job", "show", job_id, "--format", "json").stdout)
    assert shown["state"] == "completed_with_failures"
    assert shown["steps"][0]["items"] == {"total": 4, "ok": 3, "failed": 1, "cancelled": 0, "taken_over": 0}
    assert shown["document"]["steps"][0]["entry_script"] == "score.py"
    text = command(cluster, "job", "show", job_id).stdout
    assert "completed_with_failures" in text
    assert "this item is bad" in text
    assert job_id in command(cluster, "job", "list").stdout


def test_stream_of_an_ended_job_tells_its_end_and_its_exit_code(cluster: ServedCluster, job_id: str) -> None:
    assert command(cluster, "job", "stream", job_id).returncode == 0
    done = command(cluster, "job", "stream", job_id, "--strict", "--format", "json")
    assert done.returncode == 3
    assert [json.loads(line)["event"] for line in done.stdout.splitlines()] == ["begin", "progress", "end"]


def test_download_brings_the_rows(cluster: ServedCluster, job_id: str, tmp_path: Path) -> None:
    done = command(cluster, "job", "download", job_id, "--to", str(tmp_path), "--format", "json")
    assert done.returncode == 0, done.stderr
    [file] = json.loads(done.stdout)["files"]
    assert Path(file).read_text() == cluster.workspace.expected(CONTENTS)
    assert [path.name for path in (tmp_path / "rows").iterdir()] == ["rows.txt"]


def test_logs_are_named_and_printed(cluster: ServedCluster, job_id: str) -> None:
    def names() -> list[str]:
        return [file["path"] for file in json.loads(command(cluster, "job", "logs", job_id, "--format", "json").stdout)]

    path = wait_until(names, "the job has logs")[0]
    whole = command(cluster, "job", "logs", job_id, path)
    assert whole.returncode == 0
    followed = command(cluster, "job", "logs", job_id, path, "--follow")
    assert followed.stdout == whole.stdout
    tail = command(cluster, "job", "logs", job_id, path, "--tail", "1")
    assert whole.stdout.endswith(tail.stdout)


def test_nodes_are_listed(cluster: ServedCluster) -> None:
    [node] = json.loads(command(cluster, "node", "list", "--format", "json").stdout)
    assert (node["node_id"], node["state"], node["slots"]) == ("one", "ready", 2)
    assert "one" in command(cluster, "node", "list").stdout


def test_a_node_is_set_aside_and_taken_back_by_the_sdk(cluster: ServedCluster) -> None:
    with windrow.Client(cluster.address) as client:
        node = client.cordon_node("one")
        try:
            assert (node.state, node.cordoned) == ("ready", True)
            [row] = [line for line in command(cluster, "node", "list").stdout.splitlines() if line.startswith("one ")]
            assert "ready,cordoned" in row and row.endswith("gets no new work until `windrow node uncordon one`.")
        finally:
            assert not client.cordon_node("one", cordoned=False).cordoned
        with pytest.raises(RequestRefused, match="windrow node drain one") as refused:
            client.remove_node("one")
        assert refused.value.reason == "NODE_CONNECTED"
        for ask in (client.drain_node, client.cordon_node, client.remove_node):
            with pytest.raises(RequestRefused, match="no node named nobody") as refused:
                ask("nobody")
            assert refused.value.reason == "NODE_UNKNOWN"


def test_names_of_nodes_are_completed(cluster: ServedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDROW_MASTER", cluster.address)
    assert (node_names("o"), node_names("x")) == (["one"], [])


@pytest.mark.parametrize(
    "arguments",
    [
        ["job", "show", "nope"],
        ["job", "stream", "nope"],
        ["job", "cancel", "nope"],
        ["job", "download", "nope"],
        ["job", "logs", "nope"],
        ["job", "logs", "ended", "no/such/log"],
        ["job", "logs", "ended", "no/such/log", "--tail", "3"],
        ["job", "download", "ended", "--output-name", "nope"],
        ["job", "download", "ended", "--output-name", "../rows"],
    ],
)
def test_unknown_names_are_told_with_what_there_is(cluster: ServedCluster, job_id: str, arguments: list[str]) -> None:
    done = command(cluster, *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("windrow: ")
    assert "Traceback" not in done.stderr


def test_cancel_ends_a_job_with_its_own_exit_code(cluster: ServedCluster) -> None:
    waiting = Workspace(_fresh(cluster.workspace.folder / "waiting"))
    waiting.write(["wait", "wait"])
    created = cluster.workspace.run("job", "create", str(waiting.job_file), WINDROW_MASTER=cluster.address)
    assert created.returncode == 0, created.stderr
    name = created.stdout.splitlines()[-1]
    stream = cluster.workspace.start("job", "stream", name, WINDROW_MASTER=cluster.address)
    cancelled = command(cluster, "job", "cancel", name, "--wait")
    assert cancelled.stdout.strip() == f"{name} is cancelled."
    end(stream)
    assert stream.returncode == 4
    again = command(cluster, "job", "cancel", name)
    assert again.returncode == 0
    with windrow.Client(cluster.address) as client, pytest.raises(JobFailed):
        client.results(name)


def test_the_sdk_end_to_end(cluster: ServedCluster) -> None:
    with windrow.Client(cluster.address) as client:
        job = client.submit(cluster.workspace.job_file)
        moments = list(client.progress(job.job_id))
        assert [moment.seq for moment in moments] == sorted({moment.seq for moment in moments})
        last = client.wait(job.job_id)
        assert last == moments[-1]
        assert last.state.succeeded
        assert last.state is windrow.JobState.COMPLETED_WITH_FAILURES
        expected = cluster.workspace.expected(CONTENTS).splitlines()
        assert list(client.results(job.job_id)) == expected
        frame = client.to_dataframe(job.job_id)
        assert frame.values.tolist() == [line.split(" ") for line in expected]
        assert client.master().datastores == {"default": str(cluster.workspace.folder)}
        with pytest.raises(NotFound):
            client.get("nope")
        with pytest.raises(NotFound):
            client.results(job.job_id, "nope")


def test_the_same_request_is_one_job(cluster: ServedCluster) -> None:
    from windrow.spec import load_job

    with windrow.Client(cluster.address) as client:
        effective = client.upload_code(load_job(cluster.workspace.job_file))
        first = client.submit_effective(effective, request_id="once")
        second = client.submit_effective(effective, request_id="once")
        assert first.job_id == second.job_id
        client.wait(first.job_id)


def test_a_path_outside_the_datastores_is_refused_by_the_master(cluster: ServedCluster, tmp_path: Path) -> None:
    outside = Workspace(_fresh(tmp_path / "outside"))
    outside.write(["a"])
    rows = cluster.workspace.folder / "elsewhere.txt"
    with windrow.Client(cluster.address) as client:
        for sets in (
            [f"inputs.data.path={outside.folder}/data", f"outputs.rows.path={rows}"],
            [f"inputs.data.path={cluster.workspace.folder}/data", f"outputs.rows.path={outside.rows}"],
        ):
            with pytest.raises(RequestRefused, match="outside the datastores"):
                client.submit(outside.job_file, sets=sets)


def test_no_master_at_the_address_is_exit_code_5(workspace: Workspace) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    from windrow.errors import MasterUnreachable
    from windrow.sdk.client import Client

    with Client(address, patience_s=0.2) as client, pytest.raises(MasterUnreachable, match=address) as caught:
        client.master()
    assert caught.value.exit_code == 5


def test_the_agent_needs_a_master(workspace: Workspace) -> None:
    done = workspace.run("agent", "--label", "zone=b")
    assert done.returncode == 2
    assert "Which master?" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("run --format json", "'FILE'"),
        ("run job.yml --nope --format json", "--nope"),
        ("run job.yml --format json --restart --keep-rows", "are mutually exclusive"),
        ("run job.yml --format json --strict --tolerate", "contradict each other"),
        ("job wait last --format json --tolerate --strict", "contradict each other"),
        ("run s.py data -o o.csv --format json --workers 2 --slots 3", "are the same option"),
        ("job show --format=json", "'JOB'"),
    ],
)
def test_wrong_usage_is_told_in_the_form_that_was_asked_for(workspace: Workspace, arguments: str, said: str) -> None:
    done = workspace.run(*arguments.split())
    told = json.loads(done.stdout)
    assert (done.returncode, told["event"], told["exit_code"], done.stderr) == (2, "error", 2, "")
    assert said in told["message"]


def test_the_master_command_tells_its_own_usage(workspace: Workspace) -> None:
    assert "--join-token-file" in workspace.run("master", "--help").stdout
    assert workspace.run("master", "--nonsense").returncode == 2


def _fresh(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_the_agent_hides_nothing_in_its_arguments(cluster: ServedCluster) -> None:
    lines = [process.cmdline() for process in cluster.workspace.processes() if process.status() != psutil.STATUS_ZOMBIE]
    agents = [line for line in lines if "windrow_agent" in line]
    assert agents
    assert all(line[-2:] == ["--config", "-"] for line in agents)


def test_the_doctor_looks_at_a_served_master_and_its_nodes(cluster: ServedCluster) -> None:
    done = command(cluster, "doctor", "--format", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = {f["name"]: f for f in json.loads(done.stdout)["findings"] if f["area"] == "Master"}
    of_node = [found.pop(name) for name in list(found) if name.startswith("node ")]
    # Its folder is in one where scripts make files; or its kernel cannot confine them.
    assert all(f["level"] == "warn" and f["seen"].startswith("sandbox auto (") for f in of_node)
    assert {name: f["level"] for name, f in found.items()} == dict.fromkeys(
        ("address", "TLS", "token", "version", "disk", "datastores", "nodes"), "ok"
    )
    assert found["nodes"]["seen"] == "1 ready; 2 workers at a time"
    assert f"default={cluster.workspace.folder}" in found["datastores"]["seen"]


def test_a_dry_run_against_a_master_submits_nothing(cluster: ServedCluster, job_id: str) -> None:
    def names() -> list[str]:
        with windrow.Client(cluster.address) as client:
            return [job.job_id for job in client.list_jobs()]

    before = names()
    done = command(cluster, "job", "create", "job.yml", "--dry-run", "--name", "planned", "--format", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    (step,) = document["steps"]
    assert document["job_id"] == "planned"
    assert step["division"]["mini_batches"] == len(CONTENTS)
    # The master sees this folder: the data stays where it is.
    assert step["inputs"]["data"]["place"] == str(cluster.workspace.folder / "data")
    for more in ((), ("--dry-run",)):
        done = command(cluster, "job", "create", "job.yml", "--code-change", "mix", *more)
        assert done.returncode == 2 and "--code-change mix: no job is named" in done.stderr
    done = command(cluster, "job", "create", "job.yml", "--dry-run", "--since", job_id, "--format", "json")
    document = json.loads(done.stdout)
    (step,) = document["steps"]
    assert (document["since"], step["division"]["taken_over"]) == (job_id, None)
    assert any(f"results are taken over from job {job_id}" in note for note in step["notes"])
    absolute = f"inputs.data.path={cluster.workspace.folder / 'data'}"
    done = command(cluster, "job", "create", "job.yml", "--dry-run", "--set", absolute)
    assert done.returncode == 0 and "the master divides it" in done.stdout
    assert "would wait" not in done.stdout
    done = command(cluster, "job", "create", "job.yml", "--dry-run", "--set", "inputs.data.path=/nowhere")
    assert done.returncode == 2 and "/nowhere" in done.stderr
    assert names() == before


def test_explain_says_what_the_time_went_into(
    cluster: ServedCluster, job_id: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def explained(form: OutputForm = OutputForm.TEXT) -> str:
        assert explain(job_id, cluster.address, output=form) == 0
        return capsys.readouterr().out

    assert "workers' time" not in explained(), "a job of a few seconds says little about the next one"
    monkeypatch.setattr("windrow.job_page.verdict.SUGGESTED_FROM_S", 0.0)
    told = explained()
    assert "The job took " in told and "Of its workers' time, " in told
    pace = json.loads(explained(OutputForm.JSON))["pace"]
    assert pace["sentences"] and all(sentence in told for sentence in pace["sentences"])
    assert all(f"  - {one['text']}" in told for one in pace["suggestions"])
