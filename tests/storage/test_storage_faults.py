"""Stores that are slow, break off, fail, deny or change: told in the store's words, tried again, never waited for in
vain, and nothing of it in the rows."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from s3_server import BUCKET, Exchange, Proxy
from storage_job import CONTENTS, StorageJob, wait_until

FILES = 6


def write(job: StorageJob, script: str = CONTENTS, *, settings: str = "", files: int = FILES, body: str = "x") -> None:
    for number in range(files):
        job.put(f"data/{number:02d}", body)
    job.write(script, f"{{type: uri_folder, path: {job.url}/data}}", settings=settings)


def rows(files: int = FILES, body: str = "x") -> bytes:
    return b"".join(b"%02d=%s\n" % (number, body.encode()) for number in range(files))


def first(count: int, fault: Callable[[Exchange], None], *, listing: bool = False) -> Callable[[Exchange], None]:
    """The fault, for the first requests of objects (or of listings) only."""
    lock, left = threading.Lock(), count

    def meet(exchange: Exchange) -> None:
        nonlocal left
        if exchange.command != "GET" or bool(exchange.key) == listing:
            return
        with lock:
            mine = left > 0
            left -= 1
        if mine:
            fault(exchange)

    return meet


def cut(exchange: Exchange) -> None:
    exchange.cut_after = 10


@pytest.mark.parametrize("listing", [False, True], ids=["objects", "listings"])
@pytest.mark.parametrize(
    "fault",
    [
        lambda exchange: exchange.answer(500),
        lambda exchange: exchange.answer(503, b"<Error><Code>SlowDown</Code></Error>"),
        cut,
        lambda exchange: exchange.server.owner.released.wait(60),
    ],
    ids=["500", "503", "broken off", "silent"],
)
def test_trouble_that_passes(job: StorageJob, proxy: Proxy, fault: Callable[[Exchange], None], listing: bool) -> None:
    """No mini-batch pays for it with a try: there is only one."""
    proxy.fault = first(3, fault, listing=listing)
    job.endpoint = proxy.url
    write(job, settings="retry_settings: {max_retries: 0}", body="y" * 1000)
    assert job.run_well() == rows(body="y" * 1000)


def failure_in(text: str) -> tuple[str, str, str, str]:
    """Cause, status and category of what a run failed by, and the category of its step, from its JSON lines.

    No worker had it: it was still to be fetched.
    """
    (ended,) = (json.loads(line) for line in text.splitlines() if '"event": "end"' in line)
    (step,) = ended["job"]["steps"]
    (example,) = step["failure_examples"]
    assert example["node_id"] and example["process_number"] is None
    return example["cause"], example["status"], example["error_category"], step["error_category"]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (lambda exchange: exchange.answer(500, b"<Error><Code>InternalError</Code></Error>"), "500"),
        (lambda exchange: exchange.answer(403, b"<Error><Code>AccessDenied</Code></Error>"), "AccessDenied"),
    ],
)
def test_trouble_that_stays_fails_the_mini_batches(
    job: StorageJob, proxy: Proxy, fault: Callable[[Exchange], None], said: str
) -> None:
    proxy.fault = first(10**6, fault)
    job.endpoint = proxy.url
    job.environment["WINDROW_STORAGE_RETRY"] = "1"
    write(job, settings="retry_settings: {max_retries: 0}\n    mini_batch_error_threshold: 0", files=1)
    code, text = job.run("--format", "json")
    assert code == 1, text
    assert said in text and f"{job.url}/data/00" in text, text
    (result, *_) = job.folder.rglob("job_result.txt")
    assert "First in mini-batch 0, node " in (told := result.read_text()) and "process000" not in told
    assert failure_in(text) == ("load_failed", "LOAD_EXCEPTION", "DependencyError", "DependencyError")


def test_fetching_is_bounded(job: StorageJob, proxy: Proxy) -> None:
    """A store that never answers ends as a timeout of the mini-batch, whatever the library waits for."""
    proxy.fault = first(10**6, lambda exchange: exchange.server.owner.released.wait(120))  # type: ignore[attr-defined]
    job.endpoint = proxy.url
    job.environment["WINDROW_STORAGE_READ_TIMEOUT"] = "100"
    write(job, settings="retry_settings: {max_retries: 0}\n    mini_batch_error_threshold: 0", files=1)
    text = (job.folder / "job.yml").read_text().replace("--keep 1", "--task_overhead_timeout 2")
    (job.folder / "job.yml").write_text(text)
    code, said = job.run("--format", "json")
    assert code == 1 and "--task_overhead_timeout" in said, said
    assert failure_in(said) == ("timeout", "LOAD_TIMEOUT", "DependencyError", "DependencyError")


def test_an_object_that_has_changed_since_it_was_listed(job: StorageJob, proxy: Proxy) -> None:
    changed = threading.Event()

    def fault(exchange: Exchange) -> None:
        if exchange.key.endswith("data/00") and not changed.is_set():
            changed.set()
            job.put("data/00", "changed")

    proxy.fault = fault
    job.endpoint = proxy.url
    write(job)
    code, text = job.run("--strict")
    assert code == 3, text
    assert "changed since it was listed" in text and f"{job.url}/data/00" in text
    assert job.rows.read_bytes() == rows()[5:]


def test_an_object_that_is_gone(job: StorageJob, proxy: Proxy) -> None:
    def fault(exchange: Exchange) -> None:
        if exchange.key.endswith("data/00"):
            job.server.client.delete_object(Bucket=BUCKET, Key=f"{job.prefix}/data/00")

    proxy.fault = fault
    job.endpoint = proxy.url
    write(job)
    code, text = job.run("--strict")
    assert code == 3 and f"{job.url}/data/00" in text, text
    assert job.rows.read_bytes() == rows()[5:]


@pytest.mark.parametrize(
    ("path", "kind", "said"),
    [
        ("s3://no-such-bucket-here/data", "uri_folder", "The bucket or container does not exist"),
        (f"s3://{BUCKET}/nothing/here", "uri_folder", "is empty"),
        (f"s3://{BUCKET}/nothing/here", "uri_file", "does not exist in its store"),
        (f"s3://{BUCKET}/nothing/here.csv", "mltable", "does not exist in its store"),
    ],
)
def test_what_is_not_there_is_told(job: StorageJob, path: str, kind: str, said: str) -> None:
    job.write(CONTENTS, f"{{type: {kind}, path: {path}}}")
    code, text = job.run()
    assert code == 1 and said in text and path in text, text


def test_without_credentials(job: StorageJob) -> None:
    nobody = "http://127.0.0.1:9"
    job.environment |= {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None, "AWS_METADATA_ENDPOINT": nobody}
    write(job)
    code, text = job.run()
    assert code == 1 and "There are no AWS credentials" in text and "AWS_ACCESS_KEY_ID" in text, text


def test_credentials_of_a_profile(job: StorageJob) -> None:
    job.environment |= {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None, "AWS_PROFILE": "mine"}
    (job.home / ".aws").mkdir()
    (job.home / ".aws" / "credentials").write_text("[mine]\naws_access_key_id = a\naws_secret_access_key = b\n")
    write(job)
    assert job.run_well() == rows()


@pytest.mark.parametrize("name", ["data//x", "data/./x"])
def test_names_that_cannot_be_files_are_told(job: StorageJob, name: str) -> None:
    job.put("data/a", "1")
    job.put(name, "2")
    job.write(CONTENTS, f"{{type: uri_folder, path: {job.url}/data}}")
    code, text = job.run()
    assert code == 1 and "rename the object" in text and f"{job.prefix}/{name}" in text, text


def test_a_fetch_process_that_is_killed_costs_nothing(job: StorageJob, proxy: Proxy) -> None:
    gate = job.hold(proxy, "GET", "data/03")
    write(job, settings="retry_settings: {max_retries: 0}")
    process = job.start()
    wait_until(gate.held.is_set, "a fetch that waits")
    (pid,) = job.fetch_processes()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(job.fetch_processes()) == 2, "another fetch process")
    gate.open()
    text, _ = process.communicate(timeout=240)
    assert process.returncode == 0, text
    assert job.rows.read_bytes() == rows()


SPY = """\
import os
import subprocess

SECRETS = [bytes(reversed(b"1000-ees-yam-tpircs-on-taht-t3rc3s")), bytes(reversed(b"1000STSETWORDNIWAIKA"))]

def run(mini_batch):
    found = [name for name, value in os.environb.items() for secret in SECRETS if secret in value]
    looked_into = []
    # One at least that it may look into besides itself.
    other = subprocess.Popen(["sleep", "60"])
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = open(f"/proc/{pid}/cmdline", "rb").read()
            content = open(f"/proc/{pid}/environ", "rb").read()
        except OSError:
            continue
        if b"pytest" in command:
            continue  # the tester's own, which has no part in this
        looked_into.append(pid)
        found += [repr(command) for secret in SECRETS if secret in content or secret in command]
    other.kill()
    for folder, _, names in os.walk(os.environ["SPIED_FOLDER"]):
        for name in names:
            try:
                content = open(os.path.join(folder, name), "rb").read()
            except OSError:
                continue
            found += [os.path.join(folder, name) for secret in SECRETS if secret in content]
    return [f"{str(other.pid) in looked_into} {sorted(set(found))}"]
"""


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
def test_no_script_sees_a_credential(job: StorageJob) -> None:
    """Neither in its environment, nor in that of any process it may look into, nor in any file of the run.

    A root that may trace every process would see all: the rights for that, which no other user has, are taken from it.
    """
    rights = "-sys_ptrace,-sys_admin,-perfmon"
    job.before = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}"] if os.getuid() == 0 else []
    write(job, SPY, settings=f"environment_variables: {{SPIED_FOLDER: '{job.folder}'}}", files=3)
    assert set(job.run_well().decode().splitlines()) == {"True []"}


def test_nothing_is_fetched_for_a_job_that_was_cancelled(job: StorageJob, proxy: Proxy) -> None:
    """Its fetches end with it."""
    stuck = threading.Event()

    def fault(exchange: Exchange) -> None:
        if exchange.key:
            stuck.set()
            exchange.server.owner.released.wait(600)  # type: ignore[attr-defined]

    proxy.fault = fault
    job.endpoint = proxy.url
    job.environment["WINDROW_STORAGE_READ_TIMEOUT"] = "600"
    write(job)
    process = job.start()
    wait_until(stuck.is_set, "a fetch that waits")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=240)
    assert not Path(f"/proc/{job.fetch_processes()[0]}").exists()


def test_without_the_library(job: StorageJob, tmp_path: Path) -> None:
    """The extra is named, by whoever needs it first."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "obstore.py").write_text("raise ImportError('there is none')\n")
    job.environment["PYTHONPATH"] = str(tmp_path / "broken")
    write(job)
    code, text = job.run()
    assert code == 1 and "windrow[storage]" in text, text
