"""The data cache of an agent: what was fetched once is not asked of the store again, as long as it is the same."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import windrow
from as_job_users import NEEDS_USERS, open_folder, opened
from s3_server import Exchange, Proxy
from served_job import Served
from storage_job import CONTENTS, DEADLINE_S, TABLE, WINDROW, StorageJob, wait_until
from windrow.common.removal import temporary_tree
from windrow.sdk.job import DataCacheUse, Job, JobState
from windrow_agent.sandbox.confinement import kernel_abi
from windrow_agent.sandbox.policy import AUTO_ABI, STRICT_ABI

FILES = 6
STRICT = pytest.mark.skipif(kernel_abi() < STRICT_ABI, reason="this kernel has no strict sandbox")


class Cluster:
    """A served master with one agent that has a data cache, behind a proxy that counts. `lake/in` holds the files."""

    def __init__(self, job: StorageJob, proxy: Proxy, served: Served, client: windrow.Client, folder: Path) -> None:
        self.job, self.proxy, self.served, self.client = job, proxy, served, client
        self.agent_folder = folder / "one"
        self._ran = 0

    def start_agent(self, bytes_max: int = 1 << 30, **more: object) -> subprocess.Popen[bytes]:
        """Start the agent, in the same folder as the one before."""
        return self.served.start_agent(
            "one", slots=2, data_cache_bytes_max=bytes_max, folder=str(self.agent_folder), **more
        )

    def submit(self) -> str:
        """Submit the job that was written last."""
        return self.client.submit(self.job.folder / "job.yml").job_id

    def finish(self, job_id: str) -> tuple[Job, list[str]]:
        """Wait for a job; it has to succeed. With its rows, sorted."""
        done = self.client.wait(job_id, timeout_s=DEADLINE_S)
        assert done.state is JobState.COMPLETED, (done.message, done.steps[0].failure_kinds)
        self._ran += 1
        results = self.job.folder / f"results-{self._ran}"
        self.client.download(done.job_id, results)
        return done, sorted(line for path in results.rglob("*.txt") for line in path.read_text().splitlines())

    def run(self) -> tuple[DataCacheUse, list[str]]:
        """Run it to its end: what it had of the cache, and its rows."""
        done, rows = self.finish(self.submit())
        use = done.steps[0].data_cache
        assert use is not None
        return use, rows

    def command(self, *words: str) -> str:
        """What a command prints."""
        run = subprocess.run(
            [WINDROW, *words, "--master", self.served.address],
            check=True,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            env=os.environ | {"COLUMNS": "300"},
        )
        return run.stdout

    def gets(self) -> list[str]:
        """The keys of which the store was asked for content since the last call."""
        with self.proxy.lock:
            found = [request.split("?")[0].rpartition("/")[2] for request in self.proxy.requests if _is_get(request)]
            self.proxy.requests.clear()
        return sorted(found)

    @property
    def objects(self) -> list[Path]:
        """The files of the cache."""
        return [path for path in (self.agent_folder / "data-cache").rglob("*") if path.is_file()]


def _is_get(request: str) -> bool:
    return request.startswith("GET ") and "list-type" not in request and "/lake/" in request


@contextmanager
def cluster_of(job: StorageJob, proxy: Proxy, folder: Path) -> Iterator[Cluster]:
    job.endpoint = proxy.url
    with Served(job, folder) as served, windrow.Client(served.address, patience_s=DEADLINE_S) as client:
        yield Cluster(job, proxy, served, client, folder)


@pytest.fixture
def cluster(job: StorageJob, proxy: Proxy, tmp_path: Path) -> Iterator[Cluster]:
    with cluster_of(job, proxy, tmp_path) as cluster:
        yield cluster


def files(cluster: Cluster, count: int = FILES, size: int = 1, script: str = CONTENTS) -> list[str]:
    """Store files, and write a job over them; return its rows."""
    for number in range(count):
        cluster.job.put(f"lake/in/{number}", f"{number}" * size)
    data = "{type: uri_folder, path: 'azureml://datastores/lake/paths/in'}"
    cluster.job.write(script, data, rows="{type: uri_file}")
    return [f"{number}={f'{number}' * size}" for number in range(count)]


def test_a_second_job_asks_the_store_for_no_object(cluster: Cluster) -> None:
    rows = files(cluster)
    cluster.start_agent()
    use, found = cluster.run()
    assert found == rows and use == DataCacheUse(0, FILES, 0, 0)
    assert cluster.gets() == [f"{number}" for number in range(FILES)]
    use, found = cluster.run()
    assert found == rows and use == DataCacheUse(FILES, 0, FILES, 0)
    assert cluster.gets() == []

    def told() -> bool:
        (node,) = cluster.client.list_nodes()
        cache = node.data_cache
        return cache is not None and (cache.hits, cache.misses, cache.files) == (FILES, FILES, FILES)

    wait_until(told, "a heartbeat with the counts of the cache")
    listed = cluster.command("node", "list")
    assert "DATA CACHE" in listed and "24.6 KB of 1.1 GB, 50% hits" in listed, listed
    shown = cluster.command("job", "show", "last")
    assert f"score: data caches of nodes had {FILES} of {FILES} reads from storage, 6 B were not fetched" in shown, (
        shown
    )
    assert "data cache hits" in cluster.command("job", "report", "last", "--to", "-")


@pytest.mark.filterwarnings("ignore:.*mini_batch_size has no effect")
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_second_job_over_a_table_asks_for_no_part_of_it(cluster: Cluster, form: str) -> None:
    import pandas as pd

    frame = pd.DataFrame({"number": range(2000)})
    content = frame.to_csv(index=False).encode() if form == "csv" else frame.to_parquet(row_group_size=500)
    cluster.job.put(f"lake/t/x.{form}", content)
    read = "read_delimited: {}" if form == "csv" else "read_parquet: {}"
    cluster.job.put("lake/t/MLTable", f"paths: [{{pattern: '*.{form}'}}]\ntransformations: [{{{read}}}]\n")
    data = "{type: mltable, path: 'azureml://datastores/lake/paths/t'}"
    cluster.job.write(TABLE, data, size="2kb", rows="{type: uri_file}")
    cluster.start_agent()
    first, rows = cluster.run()
    assert len(rows) == 2000 and first.misses > 1 and not first.hits
    second, again = cluster.run()
    assert again == rows
    assert (second.hits, second.misses) == (first.misses, 0)


def test_an_object_that_has_changed_is_fetched_anew(cluster: Cluster) -> None:
    """Also one of the same length."""
    rows = files(cluster)
    cluster.start_agent()
    assert cluster.run()[1] == rows
    cluster.gets()
    cluster.job.put("lake/in/3", "x")
    use, found = cluster.run()
    assert found == [*rows[:3], "3=x", *rows[4:]]
    assert (use.hits, use.misses) == (FILES - 1, 1)
    assert cluster.gets() == ["3"]


def test_what_was_used_least_recently_makes_room(cluster: Cluster) -> None:
    """The bound holds, and everything comes out right."""
    rows = files(cluster, size=6000)
    bound = 4 * 8192
    cluster.start_agent(bound)
    use, found = cluster.run()
    assert found == rows and use.evictions == FILES - 4
    assert len(cluster.objects) == 4 and sum(path.stat().st_size for path in cluster.objects) <= bound
    use, found = cluster.run()
    assert found == rows and use.evictions == use.misses > 0
    assert len(cluster.objects) == 4


def test_what_is_larger_than_the_cache_is_fetched_as_ever(cluster: Cluster) -> None:
    rows = files(cluster, size=6000)
    cluster.start_agent(4096)
    assert cluster.run() == (DataCacheUse(0, FILES, 0, 0), rows)
    assert cluster.objects == []


def test_two_jobs_at_once_fetch_an_object_once(cluster: Cluster) -> None:
    rows = files(cluster)
    held = cluster.job.hold(cluster.proxy, "GET", "/in/3")
    cluster.start_agent()
    jobs = [cluster.submit(), cluster.submit()]
    assert held.held.wait(DEADLINE_S)
    wait_until(
        lambda: all(cluster.client.get(job).mini_batches.succeeded == FILES - 1 for job in jobs),
        "both jobs wait for the last file",
    )
    held.open()
    assert [cluster.finish(job)[1] for job in jobs] == [rows, rows]
    assert cluster.gets() == [f"{number}" for number in range(FILES)]


@pytest.mark.parametrize("who", ["fetch process", "agent"])
def test_a_kill_in_the_middle_of_a_fetch_leaves_nothing_half(cluster: Cluster, who: str) -> None:
    """The file has several pieces, and one of them never comes."""
    size = 9 << 20
    cluster.job.put("lake/in/large", os.urandom(1) * size)
    script = "def run(mini_batch):\n    return [str(len(set(open(path, 'rb').read()))) for path in mini_batch]\n"
    data = "{type: uri_folder, path: 'azureml://datastores/lake/paths/in'}"
    cluster.job.write(script, data, rows="{type: uri_file}")

    def last_piece(exchange: Exchange) -> None:
        if exchange.key.endswith("/large") and str(exchange.headers["Range"]).startswith(f"bytes={8 << 20}-"):
            reached.append(exchange.key)
            cluster.proxy.released.wait(DEADLINE_S)

    reached: list[str] = []
    cluster.proxy.fault = last_piece
    agent = cluster.start_agent()
    job_id = cluster.submit()
    wait_until(lambda: bool(reached), "the last piece is asked for")
    wait_until(lambda: any(path.parent.name == "partial" for path in cluster.objects), "content arrives in the cache")
    cluster.proxy.fault = lambda exchange: None
    if who == "agent":
        agent.kill()
        agent.wait(30)
        cluster.start_agent()
    else:
        for process in psutil.Process(agent.pid).children(recursive=True):
            # Others may just have ended.
            with contextlib.suppress(psutil.NoSuchProcess):
                if any(word.endswith("boot.py") and "fetch_process" in word for word in process.cmdline()):
                    process.kill()
    assert cluster.finish(job_id)[1] == ["1"]
    (kept,) = cluster.objects
    assert kept.stat().st_size == size and kept.parent.parent.name == "objects"
    assert cluster.run()[0].hits == 1


HOSTILE = """\
import glob, os, pathlib

def run(mini_batch):
    rows = []
    for path in mini_batch:
        rows.append(os.path.basename(path) + "=" + open(path).read())
        tried(path)
        for found in glob.glob({cache!r} + "/**", recursive=True):
            if os.path.isfile(found):
                tried(found)
    return rows

def tried(path):
    # Written in place, so that it shows wherever the file has another name.
    for attempt in (lambda: os.chmod(path, 0o666), lambda: os.truncate(path, 0), lambda: write(path)):
        try:
            attempt()
        except OSError:
            pass

def write(path):
    with open(path, "r+") as file:
        file.write("poison")
"""


def _hostile_then_others(cluster: Cluster, **confined: str) -> int:
    """Run a hostile job, others after it, and another one after the agent has started again, which must all be right.
    How much that last one had of the cache.
    """
    rows = files(cluster, script=HOSTILE.format(cache=str(cluster.agent_folder / "data-cache")))
    agent = cluster.start_agent(**confined)
    assert cluster.run()[1] == rows
    files(cluster)
    for _ in range(2):
        assert cluster.run()[1] == rows
    agent.send_signal(signal.SIGTERM)
    agent.wait(30)
    files(cluster, script=HOSTILE.format(cache=str(cluster.agent_folder / "data-cache")))
    agent = cluster.start_agent(**confined)
    first, found = cluster.run()
    assert found == rows
    files(cluster)
    assert cluster.run()[1] == rows
    cluster.proxy.requests.clear()
    return first.hits


def test_a_hostile_script_that_nothing_confines_poisons_nothing(cluster: Cluster) -> None:
    """It writes wherever it finds the cache. So the next agent begins with an empty one."""
    assert _hostile_then_others(cluster, sandbox="off") == 0


@STRICT
def test_a_hostile_script_in_a_strict_sandbox_poisons_nothing(cluster: Cluster) -> None:
    assert _hostile_then_others(cluster, sandbox="strict") == FILES


@pytest.mark.skipif(not os.access("/run", os.W_OK), reason="only root can make a folder that lies in none of its own")
@pytest.mark.skipif(kernel_abi() < AUTO_ABI, reason="this kernel closes no folder")
def test_a_hostile_script_that_the_default_sandbox_keeps_out_poisons_nothing(cluster: Cluster) -> None:
    with temporary_tree("windrow-test-", "/run") as folder:
        cluster.agent_folder = Path(folder)
        with cluster.served:
            assert _hostile_then_others(cluster, sandbox="auto") == FILES


@NEEDS_USERS
@pytest.mark.parametrize("sandbox", ["off", "strict"])
def test_a_hostile_script_with_a_user_of_its_own_poisons_nothing(cluster: Cluster, sandbox: str) -> None:
    """Its data are links to the files of the cache, which it can read, and not write."""
    if sandbox == "strict" and kernel_abi() < STRICT_ABI:
        pytest.skip("this kernel has no strict sandbox")
    with open_folder() as folder:
        cluster.agent_folder = folder / "agent"
        cluster.served.before = opened(folder / "mounts")
        with cluster.served:
            assert _hostile_then_others(cluster, sandbox=sandbox, job_users="auto") == FILES


@STRICT
def test_the_next_agent_has_what_the_last_one_kept(cluster: Cluster) -> None:
    """And nothing that another one, with other credentials, could not have read."""
    rows = files(cluster)
    for hits in (0, FILES):
        agent = cluster.start_agent(sandbox="strict")
        use, found = cluster.run()
        assert (found, use.hits) == (rows, hits)
        agent.send_signal(signal.SIGTERM)
        agent.wait(30)
    cluster.served.environment["AWS_ACCESS_KEY_ID"] = "AKIAWINDROWTESTS0002"
    cluster.start_agent(sandbox="strict")
    use, found = cluster.run()
    assert (found, use.hits) == (rows, 0)
