"""A served master and two agents on loopback, by the commands an operator types: killed, drained, misused."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from embedded_run import JOB, WINDROW, check_words, wait_until
from served import strays

FILES = 80
SCRIPT = (
    "import os, time\n"
    "def run(mini_batch):\n"
    "    while 'GATE' in os.environ and not os.path.exists(os.environ['GATE']):\n"
    "        time.sleep(0.01)\n"
    "    time.sleep(0.05)\n"
    "    return [os.path.basename(path) for path in mini_batch]\n"
)
EXPECTED = "".join(f"f{number:05d}\n" for number in range(FILES))


class Fleet:
    """Commands run in one folder, which is also the datastore."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "out.txt"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "code").mkdir()
        (folder / "code" / "entry.py").write_text(SCRIPT)
        (folder / "data").mkdir()
        for number in range(FILES):
            (folder / "data" / f"f{number:05d}").write_text("")
        (folder / "job.yml").write_text(JOB.format(size=1, settings=""))
        for name in ("right", "wrong"):
            (folder / f"{name}.token").write_text(f"{name}\n")
            (folder / f"{name}.token").chmod(0o600)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WINDROW_")}
        return {**kept, "WINDROW_MASTER": self.address}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command, to its end."""
        return subprocess.run(
            [WINDROW, *arguments],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    def start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """A command that goes on; what it says is in `<name>.log`."""
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [WINDROW, *arguments], cwd=self.folder, env=self.environment(), stdout=log, stderr=log
            )
        return self.processes[name]

    def start_master(self) -> None:
        self.start(
            "master",
            *("master", "--state", "master-state", "--listen", self.address),
            *("--datastore", f"here={self.folder}", "--join-token-file", "right.token"),
        )
        wait_until(lambda: '"ready": true' in self.said("master"), "the master serves")

    def start_agent(self, name: str, *more: str) -> None:
        self.start(name, *self.agent(name, "right"), "--slots", "2", *more)
        wait_until(lambda: self.node(name).get("state") == "ready", f"node {name} is ready")

    @staticmethod
    def agent(name: str, token: str) -> list[str]:
        return ["agent", "--folder", f"folder-{name}", "--node-id", name, "--join-token-file", f"{token}.token"]

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def node(self, name: str) -> dict[str, Any]:
        listed = self.run("node", "list", "-o", "json")
        nodes = json.loads(listed.stdout) if listed.returncode == 0 else []
        return next((node for node in nodes if node["node_id"] == name), {})

    def job(self, name: str) -> dict[str, Any]:
        shown = self.run("job", "show", name, "-o", "json")
        assert shown.returncode == 0, shown.stderr
        found: dict[str, Any] = json.loads(shown.stdout)
        return found

    def done(self, name: str) -> int:
        return int(self.job(name)["steps"][0]["mini_batches"]["succeeded"])

    def create(self, name: str, *more: str) -> None:
        created = self.run("job", "create", "job.yml", "--name", name, *more)
        assert created.returncode == 0, created.stderr
        assert created.stdout.strip() == name

    def check_done(self, name: str) -> dict[str, Any]:
        """Follow a job to its good end; returns its step."""
        followed = self.run("job", "stream", name)
        assert followed.returncode == 0, followed.stdout + followed.stderr
        assert f"Output: {self.output}" in followed.stdout.splitlines()[-1]
        assert self.output.read_text() == EXPECTED
        (step,) = self.job(name)["steps"]
        assert step["items"] == {"total": FILES, "ok": FILES, "failed": 0, "cancelled": 0}
        found: dict[str, Any] = step
        return found

    def end(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(45)
            if process.poll() is None:
                process.kill()
                process.wait()
        wait_until(lambda: not strays(self.folder), f"no stray process: {strays(self.folder)}")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path)
    try:
        made.start_master()
        yield made
    finally:
        made.end()


def test_a_drained_agent_leaves_and_costs_nothing(fleet: Fleet) -> None:
    fleet.start_agent("one")
    fleet.start_agent("two")
    fleet.create("nightly")
    wait_until(lambda: fleet.done("nightly") >= 10, "some of the job")
    one = fleet.processes["one"]
    one.send_signal(signal.SIGTERM)
    assert one.wait(60) == 0
    step = fleet.check_done("nightly")
    assert step["retries"] == 0
    assert step["failed_attempts"] == {}
    wait_until(lambda: fleet.node("one") == {}, "the node is gone")
    assert fleet.node("two")["state"] == "ready"


def test_a_killed_agent_and_a_restarted_master_cost_no_outcome(fleet: Fleet) -> None:
    fleet.start_agent("one")
    fleet.start_agent("two")
    fleet.create("nightly")
    wait_until(lambda: fleet.done("nightly") >= 10, "some of the job")
    for name in ("two", "master"):
        fleet.processes[name].kill()
        fleet.processes[name].wait()
    listed = fleet.run("job", "list")
    assert listed.returncode == 5
    check_words(listed.stderr, ["No master answers at", fleet.address, "Is it running", "windrow master"])
    fleet.start_master()
    step = fleet.check_done("nightly")
    assert set(step["failed_attempts"]) <= {"node_lost"}
    assert fleet.processes["one"].poll() is None, "it outlived its master"


def test_what_a_restarted_master_has_not_heard_of_a_node_is_not_told(fleet: Fleet) -> None:
    fleet.start_agent("one")
    wait_until(lambda: fleet.node("one")["workers"] is not None, "a heartbeat")
    for name in ("one", "master"):
        fleet.processes[name].kill()
        fleet.processes[name].wait()
    fleet.start_master()
    one = fleet.node("one")
    figures = ("workers", "cpu_percent", "memory_used_bytes", "disk_free_bytes", "silent_s")
    assert [one[figure] for figure in figures] == [None] * 5
    listed = fleet.run("node", "list")
    check_words(listed.stdout, [" -/2 ", f" - of {one['cpu_count']} "])
    assert "0%" not in listed.stdout


def test_create_list_show_logs_download_cancel(fleet: Fleet) -> None:
    fleet.start_agent("one")
    fleet.create("nightly")
    fleet.check_done("nightly")
    listed = fleet.run("job", "list")
    assert listed.returncode == 0
    assert "nightly" in listed.stdout
    assert "completed" in listed.stdout
    fetched = fleet.run("job", "download", "nightly", "--to", "fetched")
    assert fetched.returncode == 0, fetched.stderr
    assert (fleet.folder / "fetched" / "result" / "out.txt").read_text() == EXPECTED
    fleet.create("waiting", "--set", f"jobs.score.environment_variables.GATE={fleet.folder / 'gate'}")
    wait_until(lambda: fleet.job("waiting")["steps"][0]["mini_batches"]["leased"] > 0, "it runs")
    cancelled = fleet.run("job", "cancel", "waiting", "--wait")
    assert cancelled.returncode == 0, cancelled.stderr
    assert "waiting is cancelled" in cancelled.stdout
    followed = fleet.run("job", "stream", "waiting")
    assert followed.returncode == 4
    check_words(followed.stdout, [f"of {FILES} items 0 ok, 0 failed, {FILES} cancelled"])
    assert fleet.output.read_text() == EXPECTED, "of the first job"


def test_what_a_fleet_refuses(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each at once, with the right exit code and words, and nobody else is disturbed."""
    fleet.start_agent("one")
    outside = tmp_path_factory.mktemp("outside")
    (outside / "file").write_text("")
    refused: list[tuple[list[str], int, list[str]]] = [
        (
            ["master", "--state", "other-state", "--listen", fleet.address],
            2,
            [fleet.address, "cannot be used", "--listen"],
        ),
        (["master", "--state", "master-state", "--listen", "127.0.0.1:0"], 2, ["Another master", "--state DIR"]),
        (["master", "--state", "job.yml"], 2, ["job.yml", "is a file", "--state DIR"]),
        (["master", "--state", "s", "--listen", "nonsense"], 2, ["nonsense", "HOST:PORT"]),
        (["master", "--state", "s", "--datastore", "a=/no/such"], 2, ["a=/no/such", "folder that exists"]),
        (["master", "--state", "s", "--join-token-file", "none"], 2, ["none", "no such file"]),
        (fleet.agent("two", "wrong"), 2, ["join token of node 'two'", "master's join token file"]),
        (["agent", "--folder", "folder-two", "--node-id", "two"], 2, ["join token of node 'two'"]),
        (["agent", "--folder", "folder-one", "--node-id", "two"], 1, ["Another agent", "--folder"]),
        (["agent", "--folder", "folder-two", "--node-id", "no name"], 2, ["'no name'"]),
        (
            ["job", "create", "job.yml", "--set", f"inputs.data.path={outside}"],
            2,
            [str(outside), "outside the datastores"],
        ),
        (["job", "create", "job.yml", "--set", f"outputs.result.path={outside / 'o'}"], 2, ["outside the datastores"]),
        (["job", "show", "nothing"], 2, ["nothing", "windrow job list"]),
        (["job", "list", "--master", "127.0.0.1:1"], 5, ["No master answers at 127.0.0.1:1"]),
    ]
    for arguments, code, words in refused:
        done = fleet.run(*arguments)
        assert done.returncode == code, (arguments, done.stdout + done.stderr)
        assert "Traceback" not in done.stderr
        missing = [word for word in words if word not in " ".join(done.stderr.split())]
        assert not missing, (arguments, done.stderr)
    assert fleet.node("one")["state"] == "ready"
    assert fleet.run("job", "list", "-o", "json").stdout.strip() == "[]"
