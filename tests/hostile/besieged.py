"""A served master with tokens and TLS, an honest agent, and a job of theirs whose output must come out exact."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import psutil
from served_tls import SecureMaster, wait_until
from windrow import Client
from windrow.rpc.contexts import Access
from windrow.rpc.v1 import agent_service_pb2, agent_service_pb2_grpc

WINDROW = str(Path(sys.executable).with_name("windrow"))
CALL_S = 90.0
JOB = """
type: pipeline
jobs:
  work:
    type: parallel
    compute: {pool}
    inputs: {{data: {{type: uri_folder, path: ./data}}}}
    outputs: {{out: {{type: uri_file}}}}
    input_data: ${{{{inputs.data}}}}
    mini_batch_size: "1"
    max_concurrency_per_instance: 2
    retry_settings: {{timeout: 3600}}
    environment_variables: {{GATE: "{gate}"}}
    task:
      type: run_function
      code: ./code
      entry_script: entry.py
      append_row_to: ${{{{outputs.out}}}}
"""
SCRIPT = """\
import os, time

def run(mini_batch):
    names = [os.path.basename(path) for path in mini_batch]
    while int(os.readlink(os.environ["GATE"])) <= int(names[0][1:]):
        time.sleep(0.02)
    return [name + " " + "row " * 20 for name in names]
"""
NO_NODE = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.NOT_FOUND)
"""What is told to a node that was removed, or lost."""
FAULTY_WORDS = ("Traceback", '"traceback"', "please report this", "Segmentation fault", "was never awaited")


class Gate:
    """What the items of a job wait for: a link, which is replaced at once and whole. `open(n)` lets the first n run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.open(0)

    def open(self, count: int) -> None:
        """Let so many items run."""
        new = self._path.with_name("gate.new")
        new.symlink_to(str(count))
        new.replace(self._path)


class GatedJob:
    """A job in a folder of its own."""

    def __init__(self, folder: Path, items: int, pool: str) -> None:
        """`pool`: of the nodes that may run it."""
        (folder / "data").mkdir(parents=True)
        (folder / "code").mkdir()
        (folder / "code" / "entry.py").write_text(SCRIPT)
        self.names = [f"f{number:05d}" for number in range(items)]
        for name in self.names:
            (folder / "data" / name).write_text("")
        self.file = folder / "job.yml"
        self.file.write_text(JOB.format(gate=folder / "gate", pool=pool))
        self.gate = Gate(folder / "gate")

    @property
    def expected(self) -> list[str]:
        """The lines of its output."""
        return [name + " " + "row " * 20 for name in self.names]


class Besieged:
    """The master, and who works for it in good faith."""

    def __init__(self, master: SecureMaster, folder: Path) -> None:
        self.master = master
        self.folder = folder
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        self._log_read = 0

    def start_agent(self, name: str, pool: str = "", slots: int = 1) -> None:
        """Start an agent, and wait until it is connected. `pool`: empty for one that works for all jobs."""
        command = [
            *(WINDROW, "agent", "--master", self.master.address, "--folder", str(self.folder / name)),
            *("--node-id", name, "--slots", str(slots), "--environments", "own", *(("--pool", pool) if pool else ())),
            *("--join-token-file", str(self.master.keys / "authority" / "join-token")),
            *("--ca-file", str(self.master.keys / "client" / "ca.pem")),
        ]
        with (self.folder / f"{name}.stderr").open("wb") as log:
            self.agents[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        with self.client() as client:
            wait_until(
                lambda: [node for node in client.list_nodes() if node.node_id == name and node.state == "ready"],
                f"the agent {name} is connected",
            )

    def client(self, token: str = "") -> Client:
        """A client; of an admin, if it has no other token."""
        access = self.master.access
        return Client(access=Access(access.address, access.ca, token) if token else access)

    def memory(self) -> int:
        """Bytes of memory that the master holds."""
        return int(psutil.Process(self.master.process.pid).memory_info().rss)

    def lives(self) -> bool:
        """Whether the master has not ended."""
        return self.master.process.poll() is None

    def faults(self) -> list[str]:
        """What the master has said since the last time that only a bug makes it say."""
        said = self.master.log()[self._log_read :]
        self._log_read += len(said)
        return [line for line in said.splitlines() if any(words in line for words in FAULTY_WORDS)]

    def end_agents(self) -> None:
        """Stop them; whatever they run is lost."""
        for agent in self.agents.values():
            family = [psutil.Process(agent.pid)] if agent.poll() is None else []
            family += [child for process in family for child in process.children(recursive=True)]
            for process in family:
                process.kill()
            psutil.wait_procs(family)
            agent.wait()


@contextmanager
def besieged(folder: Path, *options: str) -> Iterator[Besieged]:
    """A master while it serves, and is attacked. `options`: more of `windrow master`."""
    folder.mkdir(exist_ok=True)
    master = SecureMaster(folder, 90, *options)
    with master.serving():
        made = Besieged(master, folder)
        try:
            yield made
        finally:
            made.end_agents()


def check_state(made: Besieged) -> None:
    """Every checksum in the state folder of a master that has ended."""
    checked = subprocess.run(
        [WINDROW, "state", "check", str(made.master.state)], capture_output=True, text=True, check=False, timeout=300
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


class FuzzNode:
    """A node with a valid join token that anybody may play. It is admitted again where it was thrown out."""

    NAME = "prey-node"

    def __init__(self, made: Besieged, channel: grpc.Channel, pool: str = "prey") -> None:
        self._agents = agent_service_pb2_grpc.AgentServiceStub(channel)
        self._join = [("authorization", f"Bearer {made.master.token('join-token')}"), ("windrow-secret", "5" * 64)]
        self._pool = pool
        self.metadata: list[tuple[str, str]] = []

    def keep(self) -> None:
        """Say that it lives, or join."""
        if self.metadata:
            try:
                self._agents.Heartbeat(agent_service_pb2.HeartbeatRequest(), metadata=self.metadata, timeout=CALL_S)
                return
            except grpc.RpcError as error:
                if error.code() not in NO_NODE:  # type: ignore[attr-defined]
                    raise
        # Others may have taken its name.
        for name in (self.NAME, f"{self.NAME}-{os.urandom(4).hex()}"):
            request = agent_service_pb2.RegisterRequest(
                node_id=name, node_incarnation=os.urandom(8).hex(), labels={"pool": self._pool}
            )
            try:
                answer = self._agents.Register(request, metadata=self._join, timeout=CALL_S)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.ALREADY_EXISTS:  # type: ignore[attr-defined]
                    raise
            else:
                self.metadata = [("windrow-credential", answer.node_credential)]
                return
