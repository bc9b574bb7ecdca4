"""A served master and storage: its datastores may be places in a store, and nothing below no datastore is reached."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import windrow
from s3_server import BUCKET
from served_job import Served
from storage_job import CONTENTS, DEADLINE_S, TABLE, WITH_OUT, StorageJob
from windrow.errors import RequestRefused
from windrow.sdk.job import JobState

LONG = "azureml://subscriptions/s/resourcegroups/r/workspaces/w/datastores/{name}/paths/{path}"
SHORT = "azureml://datastores/{name}/paths/{path}"


@pytest.fixture
def client(job: StorageJob, tmp_path: Path) -> Iterator[windrow.Client]:
    """Of a master with a datastore `lake` in the store (the test's own keys below `lake/`), and an agent."""
    with Served(job, tmp_path) as served, windrow.Client(served.address, patience_s=DEADLINE_S) as client:
        served.start_agent("one")
        yield client


@pytest.mark.parametrize("form", [SHORT, LONG, "{url}/lake/{path}"], ids=["short", "long", "address"])
def test_a_datastore_that_is_a_place_in_a_store(job: StorageJob, client: windrow.Client, form: str) -> None:
    job.put("lake/in/a", "1")
    job.put("lake/in/b", "2")
    data = form.format(name="lake", path="in", url=job.url)
    rows = form.format(name="lake", path="out/rows.txt", url=job.url)
    job.write(CONTENTS, f"{{type: uri_folder, path: '{data}'}}", rows=f"{{type: uri_file, path: '{rows}'}}")
    done = client.wait(client.submit(job.folder / "job.yml").job_id, timeout_s=DEADLINE_S)
    assert done.state is JobState.COMPLETED, done.message
    assert job.server.get(f"{job.prefix}/lake/out/rows.txt") == b"a=1\nb=2\n"
    with pytest.raises(RequestRefused, match=f"{job.url}/lake/out/rows.txt"):
        client.download(done.job_id, job.folder / "results")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("{url}/other", "outside the datastores"),
        ("{url}/lakeside", "outside the datastores"),
        (f"s3://{BUCKET}", "outside the datastores"),
        ("gs://bucket/x", "outside the datastores"),
        (SHORT.format(name="pond", path="x"), "--datastore pond="),
    ],
)
def test_nothing_else_is_reached(job: StorageJob, client: windrow.Client, path: str, said: str) -> None:
    job.write(CONTENTS, f"{{type: uri_folder, path: '{path.format(url=job.url)}'}}", rows="{type: uri_file}")
    with pytest.raises(RequestRefused, match=said):
        client.submit(job.folder / "job.yml")


def test_an_mltable_file_in_a_store_reaches_no_further(job: StorageJob, client: windrow.Client) -> None:
    """What it names is only known when it is read, by the planner."""
    job.put("secret/x.csv", "a\n1\n")
    job.put("lake/t/MLTable", f"paths: [{{file: '{job.url}/secret/x.csv'}}]\ntransformations: [read_delimited]\n")
    job.write(CONTENTS, f"{{type: mltable, path: '{job.url}/lake/t'}}", rows="{type: uri_file}")
    done = client.wait(client.submit(job.folder / "job.yml").job_id, timeout_s=DEADLINE_S, check=False)
    assert done.state is JobState.FAILED and "outside the datastores" in done.message


@pytest.mark.parametrize(("key", "said"), [("store", ""), ("number", "no datastore named default")])
def test_only_rows_that_are_sorted_need_the_default_datastore(
    job: StorageJob, tmp_path: Path, key: str, said: str
) -> None:
    """Which keys a table in a store has shows when it is planned."""
    for store in ("a", "b"):
        job.put(f"lake/t/{store}/x.csv", "number\n1\n2\n")
    steps = "[{read_delimited: {}}, {extract_columns_from_partition_format: '/{store}/x.csv'}]"
    job.put("lake/t/MLTable", f"paths: [{{pattern: '*/*.csv'}}]\ntransformations: {steps}\n")
    data = f"{{type: mltable, path: '{job.url}/lake/t'}}"
    job.write(TABLE, data, rows="{type: uri_file}", settings=f"partition_keys: [{key}]")
    with Served(job, tmp_path, "other") as served, windrow.Client(served.address, patience_s=DEADLINE_S) as client:
        served.start_agent("one")
        submitted = client.submit(job.folder / "job.yml").job_id
        with pytest.warns(windrow.JobWarning, match=f"{key} wins over mini_batch_size"):
            done = client.wait(submitted, timeout_s=DEADLINE_S, check=False)
        assert done.state is (JobState.FAILED if said else JobState.COMPLETED) and said in done.message, done.message


def test_the_default_datastore_has_to_be_a_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "windrow_master", f"--state={tmp_path}", "--datastore=default=s3://bucket/x"]
    run = subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ, timeout=DEADLINE_S)
    assert run.returncode == 2 and "has to be a folder" in run.stderr


SLOW = (
    WITH_OUT
    + """
import time

def run(mini_batch):
    (name,) = map(os.path.basename, mini_batch)
    with open(os.path.join(out, name), "w") as file:
        file.write("made of " + name)
        file.flush()
        time.sleep(0.05)
        file.write(", whole")
    return [name]
"""
)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["is killed", "leaves"])
def test_files_of_several_workers_and_agents_one_of_which_goes(
    job: StorageJob, tmp_path: Path, how: signal.Signals
) -> None:
    names = [f"{number:03d}" for number in range(60)]
    for name in names:
        job.put(f"lake/in/{name}", "x")
    job.write(
        SLOW,
        f"{{type: uri_folder, path: '{SHORT.format(name='lake', path='in')}'}}",
        rows="{type: uri_file}",
        outputs=f"made: {{path: '{SHORT.format(name='lake', path='out')}'}}",
        arguments="--out ${{outputs.made}}",
        settings="retry_settings: {max_retries: 0}",
    )
    with Served(job, tmp_path) as served, windrow.Client(served.address, patience_s=DEADLINE_S) as client:
        going = served.start_agent("one", slots=2)
        served.start_agent("two", slots=2)
        job_id = client.submit(job.folder / "job.yml").job_id
        for seen in client.progress(job_id):
            if seen.mini_batches.succeeded >= 15:
                break
        going.send_signal(how)
        done = client.wait(job_id, timeout_s=DEADLINE_S)
        assert done.state is JobState.COMPLETED, done.message
        assert not done.warnings
    made = {name: job.server.get(f"{job.prefix}/lake/out/{name}").decode() for name in names}
    assert made == {name: f"made of {name}, whole" for name in names}
    assert len(job.server.keys(f"{job.prefix}/lake/out/")) == len(names)
