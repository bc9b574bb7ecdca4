"""Scripts that lay links, pipes and odd names where their outputs belong: nothing is read or written elsewhere."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from embedded_run import DEADLINE_S, wait_until
from served import Served
from upload_bench import fill
from windrow.errors import RequestRefused, WindrowError
from windrow.sdk.job import Job, JobState
from windrow.transfer.download import stream_output

SECRETS = {"join-token": b"TOPSECRET-join", "client-token": b"TOPSECRET-client", "tls/key.pem": b"TOPSECRET-key"}
JOB = """\
type: pipeline
experiment_name: hostile
inputs:
  data: {type: uri_folder, path: ./data}
jobs:
  score:
    type: parallel
    mini_batch_size: "1"
    mini_batch_error_threshold: -1
    error_threshold: -1
    retry_settings: {max_retries: 0}
    input_data: ${{inputs.data}}
    inputs: {data: "${{parent.inputs.data}}"}
    outputs: {files: {type: uri_folder}, rows: {type: uri_folder}, single: {type: uri_file}}
    task:
      type: run_function
      code: ./code
      entry_script: entry.py
      program_arguments: ${{outputs.files}} ${{outputs.rows}} ${{outputs.single}}
      append_row_to: ${{outputs.rows}}
"""
SCRIPT = """\
import os, pathlib, shutil, socket, sys

files, rows, single = map(pathlib.Path, sys.argv[-3:])
secrets = pathlib.Path({secrets!r})


def replace(folder, target=secrets):
    if folder.is_dir():
        folder.rename(folder.with_name(folder.name + ".gone"))
    folder.symlink_to(target)


def run(mini_batch):
    path = mini_batch[0]
    if not path.endswith("last"):
        return ["row"]
    (files / "good.txt").write_bytes(b"good")
    single.write_bytes(b"single")
{deed}
    return ["row"]
"""


class Hostile:
    """A job whose script does a deed with the last of its mini-batches, and the secrets that it is after."""

    def __init__(self, folder: Path, served: Served) -> None:
        self.served = served
        self.folder = folder
        self.secrets = fill(folder / "secrets", SECRETS)
        fill(folder, {"job/job.yml": JOB.encode(), "job/data/first": b"", "job/data/last": b""})
        served.start_agent("one", slots=1)

    def write(self, deed: str) -> None:
        body = "".join(f"    {line}\n" for line in deed.splitlines())
        fill(self.folder, {"job/code/entry.py": SCRIPT.format(secrets=str(self.secrets), deed=body).encode()})

    def run(self, deed: str) -> Job:
        self.write(deed)
        with self.served.client() as client:
            job = client.submit(self.folder / "job" / "job.yml")
            return client.wait(job.job_id, timeout_s=DEADLINE_S, check=False)

    def download(self, job: Job, output: str, name: str) -> dict[str, bytes]:
        """What a client gets, by path. Raises WindrowError."""
        target = self.folder / name
        below = target / f"score.{output}"
        try:
            with self.served.client() as client:
                client.download(job.job_id, target, outputs=[f"score.{output}"])
        finally:
            found = {str(path.relative_to(below)): path.read_bytes() for path in target.rglob("*") if path.is_file()}
            assert not any(b"TOPSECRET" in content for content in found.values())
        return found

    def check_untouched(self) -> None:
        """The secrets are what they were, and nothing is beside them."""
        left = {path: path.read_bytes() for path in self.secrets.rglob("*") if path.is_file()}
        assert left == {self.secrets / name: content for name, content in SECRETS.items()}


@pytest.fixture
def hostile(tmp_path: Path, served: Served) -> Hostile:
    return Hostile(tmp_path, served)


@pytest.mark.parametrize("what", ["files", "files.parent"])
def test_an_output_folder_that_became_a_link_is_not_downloaded(hostile: Hostile, what: str) -> None:
    fill(hostile.folder, {"secrets/files/more": b"TOPSECRET-more"})
    job = hostile.run(f"replace({what})")
    link = Path(next(output.path for output in job.steps[0].outputs if output.name == "files"))
    link = link if what == "files" else link.parent
    with hostile.served.client() as client, pytest.raises(grpc.RpcError) as refused:
        list(stream_output(client.connection, job.job_id, "score.files"))
    assert f"{link} is a link, and Windrow follows no link" in str(refused.value)


def test_an_output_file_that_became_a_link_is_not_downloaded(hostile: Hostile) -> None:
    job = hostile.run("single.unlink()\nsingle.symlink_to(secrets / 'join-token')")
    assert job.state is JobState.COMPLETED
    with pytest.raises(RequestRefused, match="single is a link"):
        hostile.download(job, "single", "fetched")


@pytest.mark.parametrize(
    "deed",
    [
        "(files / 'below').symlink_to(secrets)",
        "(files / 'token').symlink_to(secrets / 'join-token')",
        "(files / 'self').symlink_to(files)",
        "os.mkfifo(files / 'pipe')",
        "socket.socket(socket.AF_UNIX).bind(os.path.relpath(files / 'socket'))",
        "(files / 'zero').symlink_to('/dev/zero')",
        "(files / 'environ').symlink_to('/proc/self/environ')",
    ],
)
def test_what_is_no_file_in_an_output_is_not_downloaded(hostile: Hostile, deed: str) -> None:
    job = hostile.run(deed)
    assert job.state is JobState.COMPLETED
    assert hostile.download(job, "files", "fetched") == {"good.txt": b"good"}


def test_files_of_all_names_are_downloaded(hostile: Hostile) -> None:
    names = ["-rf", " ", "a\nb", "*", "\udcff\udcfe", "ä" * 120, "..more", "sub/.windrow-files", "~", "$(true)"]
    made = "".join(f"(files / {name!r}).write_bytes(b'x')\n" for name in names)
    job = hostile.run(f"(files / 'sub').mkdir()\n{made}")
    assert job.state is JobState.COMPLETED
    found = hostile.download(job, "files", "fetched")
    assert found == {"good.txt": b"good"} | dict.fromkeys(names, b"x")


@pytest.mark.parametrize("what", ["rows", "rows.parent"])
@pytest.mark.parametrize("fails", [False, True], ids=["", "and fails"])
def test_rows_never_land_where_a_link_leads(hostile: Hostile, what: str, fails: bool) -> None:
    (hostile.secrets / "rows").mkdir()
    job = hostile.run(f"replace({what})" + ("\nraise ValueError('no')" if fails else ""))
    assert job.state is JobState.FAILED
    assert "is a link, and Windrow follows no link" in job.message
    hostile.check_untouched()


def test_the_file_of_rows_replaces_no_link_of_a_script(hostile: Hostile) -> None:
    job = hostile.run("(rows / 'parallel_run_step.txt').symlink_to(secrets / 'join-token')")
    assert job.state is JobState.FAILED
    assert "what is there is not a plain file" in job.message
    hostile.check_untouched()


@pytest.mark.parametrize("name", ["failed_items.csv", ".failed_items.csv.1.windrow-partial"])
def test_the_list_of_failed_items_is_written_through_no_link(hostile: Hostile, name: str) -> None:
    job = hostile.run(f"(rows.parent / {name!r}).symlink_to(secrets / 'join-token')\nraise ValueError('no')")
    assert job.state is JobState.COMPLETED_WITH_FAILURES
    assert ("failed_items.csv already exists" in job.steps[0].message) == (name == "failed_items.csv")
    hostile.check_untouched()


def test_a_retry_does_not_follow_the_link_that_the_script_of_the_first_run_has_laid(hostile: Hostile) -> None:
    job = hostile.run("replace(rows)")
    with hostile.served.client() as client:
        client.retry(job.job_id)
        again = client.wait(job.job_id, timeout_s=DEADLINE_S, check=False)
    assert again.state is JobState.FAILED and " link" in again.message
    hostile.check_untouched()


@contextlib.contextmanager
def swapped(folder: Path, target: Path) -> Iterator[None]:
    """A folder is by turns itself, and a link to another."""
    aside, stop = folder.with_name("aside"), threading.Event()

    def swap() -> None:
        while not stop.is_set():
            folder.rename(aside)
            try:
                folder.symlink_to(target)
                folder.unlink()
                aside.rename(folder)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
                # Whoever writes there has made the folder anew.
                for entry in aside.iterdir():
                    entry.replace(folder / entry.name)
                aside.rmdir()

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        yield
    finally:
        stop.set()
        swapping.join(DEADLINE_S)


def test_a_folder_that_is_swapped_for_a_link_all_the_time_is_downloaded_or_refused(hostile: Hostile) -> None:
    job = hostile.run("pass")
    place = Path(next(output.path for output in job.steps[0].outputs if output.name == "files"))
    fill(hostile.secrets, {"good.txt": b"TOPSECRET"})
    with swapped(place, hostile.secrets):
        for number in range(150):
            with contextlib.suppress(WindrowError):
                assert hostile.download(job, "files", f"fetched-{number}") in ({}, {"good.txt": b"good"})
    assert [path.name for path in place.iterdir()] == ["good.txt"]


def test_rows_of_a_folder_that_is_swapped_for_a_link_all_the_time_land_nowhere_else(hostile: Hostile) -> None:
    (hostile.secrets / "rows").mkdir()
    hostile.write("pass")
    for _ in range(3):
        with hostile.served.client() as client:
            job = client.submit(hostile.folder / "job" / "job.yml")
            place = hostile.served.folder / "store" / "outputs" / job.job_id / "score" / "rows"
            wait_until(place.is_dir, "the folder of rows")
            with swapped(place, hostile.secrets / "rows"):
                job = client.wait(job.job_id, timeout_s=DEADLINE_S, check=False)
        assert job.state is JobState.FAILED or (place / "parallel_run_step.txt").read_bytes() == b"row\nrow\n"
        assert not list((hostile.secrets / "rows").iterdir())
        hostile.check_untouched()


LARGE = """\
from windrow_worker.rows import writer

finish = writer.RowSink.finish


def replaced(self, *arguments):
    made = finish(self, *arguments)
    path = self._path
    os.unlink(path)
    {deed}
    return made


writer.RowSink.finish = replaced
return ["x" * 5000000]
"""


@pytest.mark.parametrize(
    "deed",
    ["os.mkfifo(path)", "os.symlink(secrets / 'join-token', path)", "os.symlink('/dev/zero', path)", "os.mkdir(path)"],
)
def test_large_rows_that_are_no_file_cost_the_agent_nothing(hostile: Hostile, deed: str) -> None:
    """Only their mini-batch fails."""
    job = hostile.run(LARGE.format(deed=deed))
    assert job.state is JobState.COMPLETED_WITH_FAILURES
    assert hostile.download(job, "rows", "fetched") == {"parallel_run_step.txt": b"row\n"}
    hostile.check_untouched()


STEALS_LOGS = """\
for number in (1, 2):
    log = os.readlink(f"/proc/self/fd/{number}")
    os.unlink(log)
    os.symlink(secrets / "join-token", log)
os.write(1, b"x" * 100000)
"""


def test_logs_that_a_script_replaces_by_links_show_nothing_of_where_they_lead(hostile: Hostile) -> None:
    job = hostile.run(STEALS_LOGS)
    assert job.state is JobState.COMPLETED
    steps = hostile.served.folder / "agent-one" / "steps"
    wait_until(lambda: not any(steps.glob("[0-9]*")), "the agent has sent all logs")
    logs = [path for path in (hostile.served.state / "jobs").rglob("*") if path.is_file()]
    assert any(path.name == "process000.txt" for path in logs)
    assert not [path for path in logs if b"TOPSECRET" in path.read_bytes()]
    hostile.check_untouched()
