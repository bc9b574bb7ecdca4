"""A cluster of the real docker-compose.yml: brought up, looked at, broken, and healed."""

from __future__ import annotations

import functools
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from container_engine import REPOSITORY, compose_command, docker
from windrow import Client, Job, Node
from windrow.rpc.contexts import Access, access_from_json

DEADLINE_S = 180.0
LOGS = Path(os.environ.get("WINDROW_TEST_LOGS", "build/container-logs")).absolute()
"""Where the logs of all containers are kept when a test fails."""

WINDROW = str(Path(sys.executable).with_name("windrow"))

CHARGED_TO_NOBODY = ("node_lost", "preempted")
"""Causes of attempts that ended without the fault of script or data: they use up no retries."""


def wait_until(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait until a condition holds; fail with `what` when it does not in time."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"not within {deadline_s:g} s: {what}"
        time.sleep(0.05)


def wait_gone(listed: Callable[[], Sequence[str]], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait until nothing is listed; fail with `what`, and what is still there, when there is in the end."""
    end = time.monotonic() + deadline_s
    while left := listed():
        assert time.monotonic() < end, f"after {deadline_s:g} s there is still {what}: " + "\n".join(left)
        time.sleep(0.05)


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


class Cluster:
    """One Compose project over a data folder of this machine."""

    def __init__(self, folder: Path, project: str, *, overrides: Sequence[Path] = (), **settings: str) -> None:
        """`folder`: for data and logs; `settings`: variables of .env.example; `overrides`: further Compose files."""
        self.folder = folder
        self.project = project
        self.data = folder / "data"
        self.work = folder / "work"
        for place in (self.data, self.work):
            place.mkdir(parents=True)
            place.chmod(0o755)
        self._files = [REPOSITORY / "docker-compose.yml", *overrides]
        self.port = free_port()
        # Not root of this machine: whoever runs the tests owns the data, or 1000 does.
        self.user = str(os.getuid() or 1000)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("WINDROW_", "COMPOSE_"))},
            "WINDROW_DATA": str(self.data),
            "WINDROW_WORK": str(self.work),
            "WINDROW_PORT": str(self.port),
            "WINDROW_UID": self.user,
            "WINDROW_SLOTS": "2",
            "WINDROW_STOP_GRACE": "15s",
            "WINDROW_DRAIN_GRACE": "8",
            **settings,
        }
        self.scale = 0
        """So many agents there should be."""

    def compose(
        self, *arguments: str, check: bool = True, timeout_s: float = 300.0, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run Compose on this project."""
        files = [part for file in self._files for part in ("-f", str(file))]
        command = [*compose_command(), "-p", self.project, *files, "--project-directory", str(REPOSITORY), *arguments]
        done = subprocess.run(
            command,
            env=self.environment,
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done

    # Up and down.

    def up(self, agents: int, *options: str) -> None:
        """Bring the cluster to so many agents, and wait until all of them are ready."""
        self.scale = agents
        self.environment["WINDROW_AGENTS"] = str(agents)
        self.compose("up", "-d", "--no-build", *options)
        self.wait_ready(agents)

    def down(self, *, volumes: bool = False) -> None:
        """Take it down; with its volumes, everything is gone."""
        self.compose("down", "--remove-orphans", "-t", "15", *(("-v",) if volumes else ()))

    def wait_ready(self, agents: int) -> None:
        """Wait until exactly so many nodes are there, all ready, each with a container of its own that runs."""

        def ready() -> bool:
            try:
                nodes = self.nodes()
            except AssertionError:
                return False
            return [node.state for node in nodes] == ["ready"] * agents

        wait_until(ready, f"{agents} agents ready")

    @functools.cached_property
    def access(self) -> Access:
        """How a client on this machine reaches the master: the context that the client container exports."""
        return access_from_json(self._exported())

    def _exported(self) -> str:
        exported = self.windrow("context", "export")
        return exported[exported.index("{") :]

    def client(self) -> Client:
        """A client on this machine."""
        return Client(access=self.access, patience_s=DEADLINE_S)

    def nodes(self) -> list[Node]:
        """The nodes as the master sees them."""
        with self.client() as client:
            return list(client.list_nodes())

    def windrow(self, *arguments: str, check: bool = True) -> str:
        """The windrow command in the client container."""
        return self.compose("run", "--rm", "-T", "client", *arguments, check=check).stdout

    def on_host(self, folder: Path, *arguments: str) -> str:
        """The windrow command on this machine, in a folder, by the one documented way: a context in use."""
        contexts = self.folder / "contexts.json"
        environment = {**self.environment, "WINDROW_CONTEXTS": str(contexts), "HOME": str(self.folder)}
        for name in ("WINDROW_MASTER", "WINDROW_STATE"):
            environment.pop(name, None)

        def run(*command: str, stdin: str = "") -> str:
            done = subprocess.run(
                [WINDROW, *command],
                cwd=folder,
                env=environment,
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
            assert done.returncode == 0, f"windrow {' '.join(command)}: {done.stdout}{done.stderr}"
            return done.stdout + done.stderr

        if not contexts.exists():
            run("context", "add", "cluster", "-", stdin=self._exported())
        return run(*arguments)

    # Containers and the processes in them.

    def containers(self, service: str, *, all_of_them: bool = False) -> list[str]:
        """Ids of a service's containers that run, by number."""
        labels = (f"com.docker.compose.project={self.project}", f"com.docker.compose.service={service}")
        filters = [part for label in labels for part in ("--filter", f"label={label}")]
        shape = '{{.ID}} {{.Label "com.docker.compose.container-number"}}'
        lines = docker("ps", *filters, *(("-a",) if all_of_them else ()), "--format", shape).splitlines()
        return [line.split()[0] for line in sorted(lines, key=lambda line: int(line.split()[1]))]

    @property
    def agents(self) -> list[str]:
        """Ids of the agents' containers, which are the nodes' names, too."""
        return self.containers("agent")

    @property
    def master(self) -> str:
        """Id of the master's container."""
        (container,) = self.containers("master")
        return container

    @property
    def network(self) -> str:
        """Name of the project's network."""
        return f"{self.project}_default"

    def kill_process(self, container: str, pattern: str) -> None:
        """SIGKILL the one process whose command line matches; `docker kill` would count as a stop by hand."""
        ((number, _),) = [found for found in processes(container) if re.search(pattern, found[1])]
        os.kill(number, 9)

    def destroy(self, container: str) -> None:
        """Kill a container and take it away, with its anonymous volumes."""
        docker("rm", "-f", "-v", container)

    def restart(self, container: str) -> None:
        """Stop it in order and start it again, as a rolling restart does."""
        docker("restart", "-t", "15", container)

    def disconnect(self, container: str) -> None:
        """Pull its network cable."""
        docker("network", "disconnect", self.network, container)

    def connect(self, container: str, alias: str) -> None:
        """Plug it in again; the network may give it another address."""
        docker("network", "connect", "--alias", alias, self.network, container)

    def save_logs(self, folder: Path) -> None:
        """Keep what all containers have said."""
        folder.mkdir(parents=True, exist_ok=True)
        done = self.compose("logs", "--no-color", "--timestamps", check=False)
        (folder / "containers.log").write_text(done.stdout + done.stderr)
        (folder / "ps.txt").write_text(self.compose("ps", "-a", check=False).stdout)


@contextmanager
def logs_kept(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep what all containers have said when the test of this fixture fails."""
    failed = request.session.testsfailed
    try:
        yield
    finally:
        if request.session.testsfailed > failed:
            cluster.save_logs(LOGS / request.node.name)


def kept(cluster: Cluster, request: pytest.FixtureRequest, agents: int) -> Iterator[Cluster]:
    """For fixtures: the cluster, with so many agents that are ready; its logs are kept when the test fails."""
    with logs_kept(cluster, request):
        cluster.up(agents)
        yield cluster


def processes(container: str) -> list[tuple[int, str]]:
    """(pid on this machine, command line) of all processes in a container; none while it is restarting."""
    lines = docker("top", container, "-eo", "pid,args", check=False).splitlines()[1:]
    return [(int(number), line) for number, _, line in (text.strip().partition(" ") for text in lines)]


def restarts(container: str) -> int:
    """How often the restart policy has started it again."""
    return int(docker("inspect", "-f", "{{.RestartCount}}", container))


class Work:
    """A job for the cluster: one mini-batch an item, each returning its item's name, slowly enough to be disturbed."""

    SCRIPT = """\
import os, time
def init():
    pass
def run(mini_batch):
    time.sleep({pause_s})
    return [os.path.basename(path) + " " + str(len(open(path).read())) for path in mini_batch]
"""

    YAML = """\
type: pipeline
experiment_name: {name}
inputs:
  data: {{type: uri_folder, path: {path}}}
outputs:
  rows: {{type: uri_folder}}
jobs:
  score:
    type: parallel
    mini_batch_size: "{size}"
    inputs: {{data: "${{{{parent.inputs.data}}}}"}}
    input_data: ${{{{inputs.data}}}}
    outputs: {{rows: "${{{{parent.outputs.rows}}}}"}}
    {settings}
    task:
      type: run_function
      code: ./code
      entry_script: entry.py
      append_row_to: ${{{{outputs.rows}}}}
"""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        *,
        items: int = 2000,
        pause_s: float = 0.01,
        script: str | None = None,
        settings: str = "mini_batch_error_threshold: 0",
        size: int = 1,
    ) -> None:
        self.cluster = cluster
        self.items = items
        self.folder = cluster.work / name
        data = cluster.data / name
        (self.folder / "code").mkdir(parents=True)
        data.mkdir()
        for number in range(items):
            (data / f"{number:05d}").write_text("x" * (number % 7))
        (self.folder / "code" / "entry.py").write_text(script or self.SCRIPT.format(pause_s=pause_s))
        self.file = self.folder / "job.yml"
        self.file.write_text(self.YAML.format(name=name, path=f"/data/{name}", size=size, settings=settings))
        self.job_id = ""

    def submit(self, project: str = "") -> Work:
        """Submit it; itself. `project`: whose it is, instead of the token's."""
        with self.cluster.client() as client:
            self.job_id = client.submit(self.file, project=project).job_id
        return self

    def job(self) -> Job:
        """As it stands."""
        with self.cluster.client() as client:
            return client.get(self.job_id)

    def wait_done(self, share: float) -> Work:
        """Wait until so great a part of its items has ended, and some have not; itself."""
        with self.cluster.client() as client:
            for job in client.progress(self.job_id, timeout_s=DEADLINE_S):
                if job.items.ended >= share * self.items:
                    assert not job.state.ended, "the job was over before it could be disturbed"
                    return self
        raise AssertionError("the job ended early")

    def wait(self, deadline_s: float = 120.0) -> Job:
        """Wait for its end."""
        with self.cluster.client() as client:
            return client.wait(self.job_id, timeout_s=deadline_s, check=False)

    def expected(self) -> str:
        """What its output must be, to the byte."""
        return "".join(f"{number:05d} {number % 7}\n" for number in range(self.items))

    def output(self) -> str:
        """What its output is."""
        return (self.cluster.data / "outputs" / self.job_id / "rows" / "parallel_run_step.txt").read_text()

    def check(self, *, may_crash: bool = False) -> Job:
        """Wait for the end: all is as in `check_rows`, and no worker is left."""
        job = self.check_rows(may_crash=may_crash)
        self.cluster.wait_ready(self.cluster.scale)
        wait_gone(self.workers, "a worker of a job that is over")
        return job

    def check_rows(self, *, may_crash: bool = False) -> Job:
        """Wait for the end: it has succeeded, every row is there once, every item has one outcome, and nobody is
        charged for anything (but for a crash, where one was brought about)."""
        job = self.wait()
        assert job.state == "completed", job.message
        assert self.output() == self.expected()
        (step,) = job.steps
        assert (step.items.ok, step.items.failed, step.items.cancelled) == (self.items, 0, 0)
        charged = {cause: count for cause, count in step.failed_attempts.items() if cause not in CHARGED_TO_NOBODY}
        assert not charged or (may_crash and set(charged) == {"crash"}), charged
        return job

    def workers(self) -> list[str]:
        """Command lines of processes in the agents' containers that are neither init nor the agent."""
        lines = [f"{agent} {pid} {line}" for agent in self.cluster.agents for pid, line in processes(agent)]
        return [line for line in lines if not re.search(r"docker-init|-m windrow_agent|windrow health", line)]


def inspect_address(container: str, network: str) -> str:
    """Its IP address in a network."""
    found: str = json.loads(docker("inspect", container))[0]["NetworkSettings"]["Networks"][network]["IPAddress"]
    return found
