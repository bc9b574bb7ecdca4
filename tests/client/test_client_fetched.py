"""Outputs at relative paths of a job for a served master: kept there, and fetched to where the job file wants them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import windrow
from client_workspace import Workspace, served_cluster
from windrow.cli.display.summary import print_summary, retry_command
from windrow.rpc.v1 import job_pb2
from windrow.sdk.job import job_from_message
from windrow.spec import DocumentError, EffectiveJob, build_effective, load_job
from windrow.transfer.fetch_places import fetch_paths, fetch_places

CONTENTS = ["a", "b", "c"]


@dataclass
class Served:
    """A master and an agent that see nothing but their datastore: no folder of a client."""

    address: str
    datastore: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One for all tests here."""
    workspace = Workspace(tmp_path_factory.mktemp("master"))
    datastore = workspace.folder / "store"
    datastore.mkdir()
    with served_cluster(workspace, datastore) as address:
        yield Served(address, datastore)


@pytest.fixture
def laptop(tmp_path: Path) -> Workspace:
    """A job file with data and an output at relative paths, outside the master's datastore."""
    folder = tmp_path / "lap top"
    folder.mkdir()
    workspace = Workspace(folder)
    workspace.write(CONTENTS)
    return workspace


def test_a_download_fills_the_path_that_the_job_file_gives(served: Served, laptop: Workspace) -> None:
    done = laptop.run("job", "create", "job.yml", WINDROW_MASTER=served.address)
    assert done.returncode == 0, done.stderr
    job_id = done.stdout.strip()
    assert f"out/rows.txt is filled by: windrow job download {job_id}" in done.stderr
    with windrow.Client(served.address) as client:
        job = client.wait(job_id)
        (output,) = job.steps[0].outputs
    assert output.path == str(served.datastore / "outputs" / job_id / "rows" / "rows.txt")
    assert not laptop.rows.exists()
    fetched = laptop.run("job", "download", job_id, WINDROW_MASTER=served.address)
    assert fetched.returncode == 0, fetched.stderr
    assert "Fetched out/rows.txt" in fetched.stdout
    assert laptop.rows.read_text() == laptop.expected(CONTENTS)
    assert not (laptop.folder / job_id).exists()
    laptop.rows.write_text("of an earlier run")
    laptop.run("job", "download", job_id, WINDROW_MASTER=served.address)
    assert laptop.rows.read_text() == laptop.expected(CONTENTS)
    assert [path.name for path in laptop.rows.parent.iterdir()] == ["rows.txt"]
    laptop.run("job", "download", job_id, "--to", "results", WINDROW_MASTER=served.address)
    assert (laptop.folder / "results" / "rows" / "rows.txt").read_text() == laptop.expected(CONTENTS)


def test_the_end_of_a_stream_tells_the_command(served: Served, laptop: Workspace) -> None:
    done = laptop.run("job", "create", "job.yml", "--stream", "--master", served.address)
    assert done.returncode == 0, done.stderr
    last = done.stdout.strip().splitlines()[-1]
    assert "out/rows.txt is filled by: windrow job download " in last
    assert last.endswith(f"--master {served.address})")


def test_a_dry_run_tells_it_and_changes_nothing(served: Served, laptop: Workspace) -> None:
    done = laptop.run("job", "create", "job.yml", "--dry-run", "--master", served.address)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "outputs.rows: the master keeps the output; `windrow job download` fills out/rows.txt" in done.stdout


def test_where_the_job_file_is_elsewhere_the_output_goes_to_a_folder_of_the_jobs_name(
    served: Served, laptop: Workspace, tmp_path: Path
) -> None:
    with windrow.Client(served.address) as client:
        job_id = client.wait(client.submit(laptop.job_file).job_id).job_id
    laptop.job_file.rename(laptop.folder / "renamed.yml")
    done = laptop.run("job", "download", job_id, "--master", served.address)
    assert done.returncode == 0, done.stderr
    assert f"{laptop.job_file} is not on this machine: the output rows goes to {job_id}/rows." in done.stderr
    assert not laptop.rows.exists()
    assert (laptop.folder / job_id / "rows" / "rows.txt").read_text() == laptop.expected(CONTENTS)


def test_a_path_that_leads_out_of_the_job_files_folder_is_fetched_with_to(served: Served, laptop: Workspace) -> None:
    text = laptop.job_file.read_text().replace("./out/rows.txt", "../rows.txt")
    laptop.job_file.write_text(text)
    with windrow.Client(served.address) as client:
        job_id = client.wait(client.submit(laptop.job_file).job_id).job_id
        assert "fetch" not in client.document(job_id)
        laptop.run("job", "download", job_id, "--to", "..", "--master", served.address)
    assert (laptop.folder.parent / "rows" / "rows.txt").read_text() == laptop.expected(CONTENTS)


def test_folders_from_python(served: Served, laptop: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    text = laptop.job_file.read_text().replace("type: uri_file\n    path: ./out/rows.txt", "path: 'out/${{name}}'")
    laptop.job_file.write_text(text)
    monkeypatch.chdir(laptop.folder.parent)
    with windrow.Client(served.address) as client:
        job_id = client.wait(client.submit(laptop.job_file).job_id).job_id
        received = client.download(job_id)
        assert received == [laptop.folder / "out" / job_id / "parallel_run_step.txt"]
        assert received[0].read_text() == laptop.expected(CONTENTS)


def test_where_the_master_sees_the_folder_it_writes_there(served: Served) -> None:
    folder = served.datastore / "shared"
    folder.mkdir()
    workspace = Workspace(folder)
    workspace.write(CONTENTS)
    with windrow.Client(served.address) as client:
        job_id = client.wait(client.submit(workspace.job_file).job_id).job_id
        assert "fetch" not in client.document(job_id)
    assert workspace.rows.read_text() == workspace.expected(CONTENTS)


@pytest.mark.parametrize(
    "path",
    [
        *("../rows.txt", "/etc/cron.d/x", "a/../../b", "", ".", ".bashrc", ".git/config", "a//b", "a\0b", "job.yml"),
        # These are ordinary places, which the job file does not name.
        *("code/entry.py", "out", "out/rows.txt.bak", "out/other/rows.txt"),
    ],
)
def test_a_document_made_by_somebody_else_leads_nowhere_else(laptop: Workspace, path: str) -> None:
    document = {"job_file": str(laptop.job_file), "fetch": {"score.rows": path, "score.other": "out/rows.txt"}}
    assert fetch_places(document, "job-1") == {"score.other": laptop.folder / "out" / "rows.txt"}


def test_an_expression_in_a_path_stands_for_part_of_a_name(laptop: Workspace) -> None:
    laptop.job_file.write_text("outputs: {rows: {path: './out/${{name}}-${{ a/b }}/all'}}")
    wanted = {"s.a": "out/j-1-x/all", "s.b": "out/j/x-1/all", "s.c": "out/j-1-x/all/more", "s.d": "out/${{name}}-/all"}
    document = {"job_file": str(laptop.job_file), "fetch": wanted}
    places = {name: laptop.folder / path for name, path in (("s.a", "out/j-1-x/all"), ("s.d", "out/j-1-/all"))}
    assert fetch_places(document, "j-1") == places


@pytest.mark.parametrize(
    "content", [b"alias ls='ls -l'\n", b"\xff\xfe", b"outputs: [", b"", b"- 1\n", b" " * (5 << 20)]
)
def test_a_file_that_is_no_job_file_places_nothing(laptop: Workspace, content: bytes) -> None:
    """A submitter may name any file that is on the machine of whoever downloads."""
    profile = laptop.folder / "profile"
    profile.write_bytes(content)
    assert fetch_places({"job_file": str(profile), "fetch": {"score.rows": "bin/tool"}}, "job-1") == {}


UNSEEN = f"/{'x' * 300}"
"""A folder of which the system says an error, as it does of one that its user may not enter: root, too."""


@pytest.mark.parametrize("job_file", ["", "job.yml", "/nowhere/job.yml", "/", f"{UNSEEN}/job.yml"])
def test_without_its_job_file_no_place_is_known(
    job_file: str, monkeypatch: pytest.MonkeyPatch, laptop: Workspace
) -> None:
    monkeypatch.chdir(laptop.folder)
    document = {"job_file": job_file, "fetch": {"score.rows": "rows.txt"}}
    assert fetch_places(document, "job-1") == {}
    assert fetch_paths(document, "job-1") == {"score.rows": "rows.txt"}


def test_the_end_of_a_job_is_told_to_who_may_not_see_its_files(capsys: pytest.CaptureFixture[str]) -> None:
    output = job_pb2.StepOutput(name="rows", path=f"{UNSEEN}/rows.txt", append_row=True, ready=True)
    step = job_pb2.Step(name="score", state=job_pb2.STEP_STATE_COMPLETED, outputs=[output])
    job = job_from_message(job_pb2.Job(job_id="nightly", state=job_pb2.JOB_STATE_COMPLETED, steps=[step]))
    outputs = {"rows": {"type": "uri_file"}}
    written = {"name": "score", "inputs": {}, "append_row_to": "rows", "outputs": outputs}
    document = {"job_file": f"{UNSEEN}/job.yml", "steps": [written]}
    print_summary(job, document)
    assert "(on the master; to fetch: windrow job download nightly)" in capsys.readouterr().out
    assert retry_command(job, document, "") == "windrow job retry nightly"


def test_where_an_output_is_fetched_to_makes_no_other_job(laptop: Workspace) -> None:
    loaded = load_job(laptop.job_file, (), embedded=False)
    digests = dict.fromkeys(loaded.code_folders.values(), "0" * 64)
    kept = [
        build_effective(loaded, digests, kept_outputs={("score", "rows"): path})
        for path in ("a/rows.txt", "b/rows.txt")
    ]
    assert kept[0].run_digest == kept[1].run_digest
    assert kept[0] != kept[1]
    assert EffectiveJob.from_json(kept[0].to_json()) == kept[0]
    with pytest.raises(DocumentError):
        EffectiveJob.from_json(kept[0].to_json().replace('"a/rows.txt"', "7"))
