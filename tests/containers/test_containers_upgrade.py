"""A cluster that takes over the state of the version before: the last one with an older schema."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from container_cluster import Cluster, Work, free_port, logs_kept, wait_until
from container_engine import REPOSITORY, docker
from windrow import Client

pytestmark = pytest.mark.timeout(300, func_only=True)

SCHEMA = REPOSITORY / "master" / "windrow_master" / "store" / "sqlite" / "schema"


@pytest.fixture(scope="module")
def version_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of the last commit whose schema was older, unpacked."""
    newest = max(SCHEMA.glob("[0-9]*.sql"))
    if shutil.which("git") is None or not (REPOSITORY / ".git").exists():
        pytest.skip("needs the history of this repository")
    # As the main line has it, also where a merge brought it there; a move of the folder is no addition.
    mainline = ("log", "-n", "1", "--follow", "--first-parent", "-m", "--diff-filter=A", "--format=%H")
    added = git(*mainline, "--", str(newest)).decode().strip()
    folder = tmp_path_factory.mktemp("before")
    source = folder / "source"
    source.mkdir()
    subprocess.run(["tar", "-x"], cwd=source, input=git("archive", f"{added}^"), check=True)
    assert not list(source.rglob(newest.name))
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder)], cwd=source, check=True, capture_output=True
    )
    (wheel,) = folder.glob("*.whl")
    packages = folder / "packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    for place in (folder, *packages.rglob("*")):
        place.chmod(0o755 if place.is_dir() else 0o644)
    return packages


def git(*arguments: str) -> bytes:
    """What git says."""
    return subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, check=True).stdout


@pytest.fixture
def cluster(images: None, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster with its volumes made, and nothing running."""
    cluster = Cluster(tmp_path, f"windrow-upgrade-{os.getpid()}")
    try:
        # The volumes and the network, but no master of this version yet.
        cluster.compose("run", "--rm", "-T", "setup")
        cluster.compose("run", "--rm", "-T", "--no-deps", "client", "--version")
        with logs_kept(cluster, request):
            yield cluster
    finally:
        cluster.down(volumes=True)


class Before:
    """Master and agent of the version before, in containers over the volumes of a cluster, without TLS."""

    def __init__(self, cluster: Cluster, packages: Path) -> None:
        self._cluster = cluster
        self._packages = packages
        self._names: list[str] = []
        self.address = f"127.0.0.1:{free_port()}"
        self._master = ""

    def start(self) -> None:
        """Start both, and wait until the master answers."""
        listen = ("--listen", "0.0.0.0:8471", "--insecure")
        master = ("master", "--state", "/state", *listen, "--datastore", "default=/data")
        self._master = self._run("windrow-master", "-p", f"{self.address}:8471", command=master)
        wait_until(self._answers, "the master of the version before answers")
        address = f"{self._master[:12]}:8471"
        agent = ("agent", "--master", address, "--insecure", "--folder", "/var/lib/windrow/agent", "--slots", "2")
        self._run("windrow-agent", command=agent)

    def _run(self, image: str, *options: str, command: tuple[str, ...], keep: bool = True) -> str:
        cluster = self._cluster
        program = f"import sys; from windrow.cli import main; sys.argv[1:] = {list(command)!r}; main()"
        mounts = (f"{cluster.project}_state:/state", f"{cluster.data}:/data", f"{self._packages}:/before:ro")
        volumes = [part for mount in (*mounts, f"{cluster.work}:/work") for part in ("-v", mount)]
        output = docker(
            *("run", "--init", "--network", cluster.network, "-e", "PYTHONPATH=/before", *options, *volumes),
            *(("-d",) if keep else ("--rm",)),
            *("--user", cluster.user, "--entrypoint", "/opt/windrow/bin/python", image, "-c", program),
        ).strip()
        if keep:
            self._names.append(output)
        return output

    def _answers(self) -> bool:
        try:
            with Client(self.address, patience_s=1) as client:
                return client.master().incarnation == 1
        except Exception:
            return False

    def submit(self, file: str) -> str:
        """A job by the command line of its time; returns the job's name."""
        command = ("job", "create", f"/work/{file}", "--master", f"{self._master[:12]}:8471")
        return self._run("windrow-master", command=command, keep=False)

    def stop(self) -> None:
        """End it in order."""
        for name in reversed(self._names):
            docker("stop", "-t", "15", name)

    def remove(self) -> None:
        """Take its containers away."""
        for name in self._names:
            docker("rm", "-f", "-v", name, check=False)


def test_a_job_begun_by_the_version_before_is_finished_by_this_one(cluster: Cluster, version_before: Path) -> None:
    before = Before(cluster, version_before)
    try:
        before.start()
        work = Work(cluster, "upgraded", items=1500)
        work.job_id = before.submit("upgraded/job.yml")
        with Client(before.address) as client:
            for job in client.progress(work.job_id, timeout_s=240):
                if job.items.ended >= 150:
                    break
            assert not job.state.ended
        before.stop()
    finally:
        before.remove()
    cluster.up(2)
    work.check()
    with cluster.client() as client:
        assert client.master().incarnation > 1
