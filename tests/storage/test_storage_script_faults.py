"""Stores that fail while scripts write there: tried again, told, never waited for in vain; and scripts that spy."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Callable

import pytest
import windrow
from s3_server import Exchange, Proxy
from storage_job import StorageJob, wait_until
from test_storage_faults import SPY
from test_storage_script_outputs import WRITE, made, write

FILES = 4
WANT = {f"{number:02d}": b"made of %02d" % number for number in range(FILES)}
ONE_TRY = "retry_settings: {max_retries: 0}"


def puts(count: int, fault: Callable[[Exchange], None]) -> Callable[[Exchange], None]:
    """The fault, for the first so many requests that write."""
    lock, left = threading.Lock(), count

    def meet(exchange: Exchange) -> None:
        nonlocal left
        if exchange.command not in ("PUT", "POST"):
            return
        with lock:
            mine = left > 0
            left -= 1
        if mine:
            fault(exchange)

    return meet


@pytest.mark.parametrize(
    "fault",
    [
        lambda exchange: exchange.answer(500),
        lambda exchange: exchange.answer(503, b"<Error><Code>SlowDown</Code></Error>"),
        lambda exchange: exchange.server.owner.released.wait(60),
    ],
    ids=["500", "503", "silent"],
)
def test_trouble_that_passes(job: StorageJob, proxy: Proxy, fault: Callable[[Exchange], None]) -> None:
    """No mini-batch pays for it with a try: there is only one."""
    proxy.fault = puts(3, fault)
    job.endpoint = proxy.url
    write(job, WRITE, settings=ONE_TRY)
    job.run_well("--slots", "2")
    assert made(job) == WANT


LARGE = WRITE.replace('"w") as', '"wb") as').replace('file.write("made of " + name)', "file.write(bytes(20 << 20))")


def test_parts_of_a_large_file_that_fail(job: StorageJob, proxy: Proxy) -> None:
    proxy.fault = puts(3, lambda exchange: exchange.answer(500))
    job.endpoint = proxy.url
    write(job, LARGE, files=1, settings=ONE_TRY)
    job.run_well()
    assert made(job) == {"00": bytes(20 << 20)}


def test_a_store_that_refuses_fails_the_mini_batches_in_its_words(job: StorageJob, proxy: Proxy) -> None:
    proxy.fault = puts(10**6, lambda exchange: exchange.answer(403, b"<Error><Code>AccessDenied</Code></Error>"))
    job.endpoint = proxy.url
    write(job, WRITE, files=2, settings=ONE_TRY + "\n    mini_batch_error_threshold: 0")
    code, text = job.run()
    assert code == 1 and "AccessDenied" in text and f"{job.url}/out/0" in text and "output_failed" in text, text
    assert made(job) == {}


def test_saving_is_bounded(job: StorageJob, proxy: Proxy) -> None:
    proxy.fault = puts(10**6, lambda exchange: exchange.server.owner.released.wait(120))  # type: ignore[attr-defined]
    job.endpoint = proxy.url
    job.environment["WINDROW_STORAGE_READ_TIMEOUT"] = "100"
    write(job, WRITE, files=1, settings=ONE_TRY + "\n    mini_batch_error_threshold: 0")
    text = (job.folder / "job.yml").read_text().replace("--out $", "--task_overhead_timeout 2 --out $")
    (job.folder / "job.yml").write_text(text)
    code, said = job.run()
    assert code == 1 and "--task_overhead_timeout" in said, said


def test_a_process_that_is_killed_while_it_saves_costs_nothing(job: StorageJob, proxy: Proxy) -> None:
    gate = job.hold(proxy, "PUT", "out/01")
    write(job, WRITE, settings=ONE_TRY)
    process = job.start("--slots", "1")
    wait_until(gate.held.is_set, "a save that waits")
    (pid,) = job.fetch_processes()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(job.fetch_processes()) == 2, "another process")
    gate.open()
    text, _ = process.communicate(timeout=240)
    assert process.returncode == 0, text
    assert made(job) == WANT


def test_nothing_is_saved_any_more_for_a_job_that_was_cancelled(job: StorageJob, proxy: Proxy) -> None:
    """Its saves end with it: the agent serves the next one."""
    held = threading.Event()

    def fault(exchange: Exchange) -> None:
        if exchange.command == "PUT":
            held.set()
            exchange.server.owner.released.wait(600)  # type: ignore[attr-defined]

    proxy.fault = fault
    job.endpoint = proxy.url
    job.environment["WINDROW_STORAGE_READ_TIMEOUT"] = "600"
    write(job, WRITE)
    process = job.start("--slots", "1")
    wait_until(held.is_set, "a save that waits")
    outputs = list((job.state / "agent" / "steps").glob("*/outputs/*/*/*"))
    assert outputs
    with windrow.Client(json.loads((job.state / "embedded.json").read_text())["address"]) as client:
        (seen,) = client.list_jobs()
        client.cancel(seen.job_id)
    text, _ = process.communicate(timeout=240)
    assert process.returncode == 4, text
    assert not any(path.exists() for path in outputs)
    assert made(job) == {}


def test_a_bucket_that_is_not_there_is_told_before_any_work(job: StorageJob) -> None:
    write(job, WRITE, outputs="made: {path: s3://no-such-bucket/out}")
    code, text = job.run()
    assert code == 1 and "no-such-bucket" in text and "does not exist" in text, text


SPY_WRITES = """\
def run(mini_batch):
    import subprocess, sys
    # One process that may be looked into, whatever else runs.
    subprocess.Popen(["sleep", "60"])
    place = sys.argv[sys.argv.index("--out") + 1]
    open(os.path.join(place, os.path.basename(mini_batch[0])), "w").close()
"""


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
def test_no_script_sees_a_credential(job: StorageJob) -> None:
    """Also while another process of the agent's writes to the store."""
    rights = "-sys_ptrace,-sys_admin,-perfmon"
    job.before = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}"] if os.getuid() == 0 else []
    script = SPY.replace("def run(mini_batch):\n", SPY_WRITES)
    write(job, script, files=3, settings=f"environment_variables: {{SPIED_FOLDER: '{job.folder}'}}")
    assert set(job.run_well("--slots", "1").decode().splitlines()) == {"True []"}
    assert sorted(made(job)) == ["00", "01", "02"]
