"""A fleet on a real Slurm, with a real master and agents: whatever Slurm does to jobs, outputs are whole, nobody is
charged, and no job is there twice.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest
from slurm_cluster import CPUS, NODES, SlurmCluster, wait_for

# The cluster that operators' commands make, and what waits for it.
sys.path.append(str(Path(__file__).parents[2] / "integration"))

import windrow
from cluster_commands import ServedCluster
from embedded_run import WINDROW
from windrow.fleet.file import load_fleet_file
from windrow.sdk.fleet import Allocation

FILE = """\
name: site
groups:
  batch:
    provider: slurm
    slots: {slots}
    max: {most}
    lifetime: 1h
    exit_idle: 3s
    agent:
      command: {command}
      join_token_file: {token}
      folder: {agents}
      options: [--drain-grace, "5"]
    slurm:
      log_folder: {logs}
      extra_args: [{extra}]
"""
WAIT_S = 180.0


class SlurmSite(ServedCluster):
    """A master on this machine, and a fleet whose agents are Slurm's jobs."""

    def __init__(self, folder: Path, slurm: SlurmCluster) -> None:
        super().__init__(folder)
        self.slurm = slurm
        self.write()

    def write(self, *, slots: int = 2, most: int = 3, extra: str = "") -> None:
        """Write the fleet's file."""
        places = {"agents": self.private / "agents", "logs": self.private / "logs", "token": self.token_file("right")}
        places["agents"].mkdir(exist_ok=True)
        text = FILE.format(slots=slots, most=most, extra=extra, command=json.dumps([WINDROW]), **places)
        (self.folder / "fleet.yml").write_text(text)

    def start_fleet(self, name: str = "fleet") -> None:
        """Start the program of the fleet."""
        self.start(name, "fleet", "run", "fleet.yml")

    def allocations(self) -> list[Allocation]:
        """As the master has them."""
        with windrow.Client(self.address, patience_s=60) as client:
            if all(one.name != "site" for one in client.fleets.list()):
                return []
            return list(client.fleets.get("site").allocations or ())

    def busy(self) -> list[Allocation]:
        """Those whose agents work."""
        return [one for one in self.allocations() if one.is_busy]

    def gated(self, name: str) -> Path:
        """Submit a job whose mini-batches wait for a file; returns the file."""
        gate = self.folder / f"gate-{name}"
        self.create(name, "--set", f"jobs.score.environment_variables.GATE={gate}")
        return gate

    def check_whole(self, name: str, *, failed: Collection[str] = ()) -> None:
        """The job ends well, the agents leave, and Slurm has had one job for each allocation. `failed`: why
        mini-batches may have run again; otherwise nobody is charged.
        """
        step = self.check_done(name)
        assert set(step["failed_attempts"]) <= set(failed)
        wait_for("the agents have left", lambda: all(one.has_ended for one in self.allocations()), WAIT_S)
        wait_for("no job is left", lambda: self.of_slurm("PENDING,RUNNING,COMPLETING") == [], WAIT_S)
        assert sorted(self.of_slurm("all")) == sorted(one.name for one in self.allocations())

    def of_slurm(self, states: str) -> list[str]:
        """The names of the fleet's jobs."""
        names = self.slurm.run("squeue", "--me", "-h", f"--states={states}", "-o", "%j").split()
        return [name for name in names if name.startswith("site-batch-")]


@pytest.fixture
def site(tmp_path: Path, cluster: SlurmCluster) -> Iterator[SlurmSite]:
    made = SlurmSite(tmp_path, cluster)
    try:
        made.start_master()
        yield made
    finally:
        for name, process in made.processes.items():
            if name.startswith("fleet"):
                process.terminate()
                process.wait(60)
        cluster.tried("scancel", "--me")
        made.end()


def test_from_no_job_to_some_and_back_to_none(site: SlurmSite) -> None:
    site.start_fleet()
    gate = site.gated("nightly")
    wait_for("an agent works", lambda: len(site.busy()) == 1, WAIT_S)
    (probe,) = site.busy()
    number = site.slurm.run("squeue", "--me", "-h", "-o", "%i", f"--name={probe.name}").strip()
    wait_for("the master knows what Slurm calls it", lambda: site.busy()[0].engine_id == number)
    gate.touch()
    site.check_whole("nightly")
    assert {one.state for one in site.allocations()} == {"completed"}


def test_the_file_of_the_documentation_is_one(tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "how-to" / "run-on-slurm.md"
    (text,) = re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.M | re.S)
    (tmp_path / "fleet.yml").write_text(text)
    read = load_fleet_file(tmp_path / "fleet.yml")
    (group,) = read.fleet.groups
    assert group.engine.extra_args == ("--exclude=node7", "--gres=gpu:a100:2")
    assert group.engine.setup == ("module load python/3.11 || exit 1",)


def _cancel(site: SlurmSite) -> None:
    """Somebody cancels what runs."""
    site.slurm.run("scancel", "--me", "--state=RUNNING")


def _requeue(site: SlurmSite) -> None:
    (busy,) = site.busy()
    site.slurm.run("scontrol", "requeue", busy.engine_id)


def _preempt(site: SlurmSite) -> None:
    """Others need all nodes, for a moment."""
    for _ in NODES:
        site.slurm.sbatch("sleep 5", "--partition=urgent", f"--cpus-per-task={CPUS}")


def _restart_controller(site: SlurmSite) -> None:
    """The controller crashes, and comes back."""
    state = site.slurm.folder / "state" / "job_state"
    (busy,) = site.busy()
    wait_for("the controller has written it down", lambda: state.exists() and busy.name.encode() in state.read_bytes())
    site.slurm.kill_controller()
    wait_for("the fleet says so", lambda: "Unable to contact slurm controller" in site.run("fleet", "list").stdout)
    site.slurm.start_controller()


def _silence_controller(site: SlurmSite) -> None:
    """The controller answers nobody for a while."""
    site.slurm.signal_controller(signal.SIGSTOP)
    wait_for("the fleet says so", lambda: "Socket timed out" in site.run("fleet", "list").stdout)
    site.slurm.signal_controller(signal.SIGCONT)


def _kill_program(site: SlurmSite) -> None:
    """The fleet's program is killed, and another one takes over."""
    site.processes["fleet"].kill()
    site.processes["fleet"].wait()
    site.start_fleet("fleet-2")


def _lose_node(site: SlurmSite) -> None:
    """A node fails, with the agent on it."""
    (busy,) = site.busy()
    (node,) = (node for node in NODES if busy.name in site.slurm.run("squeue", "-h", "-w", node, "-o", "%j").split())
    site.slurm.kill_node(node)


@pytest.mark.parametrize(
    ("event", "extra"),
    [
        (_cancel, ""),
        (_requeue, "--requeue"),
        (_preempt, ""),
        (_preempt, "--requeue"),
        (_restart_controller, ""),
        (_silence_controller, ""),
        (_kill_program, ""),
        (_lose_node, ""),
    ],
)
def test_whatever_happens_to_its_job_an_agent_costs_no_outcome(
    site: SlurmSite, event: Callable[[SlurmSite], None], extra: str
) -> None:
    site.write(slots=CPUS, extra=extra)
    site.start_fleet()
    gate = site.gated("nightly")
    wait_for("an agent works", lambda: len(site.busy()) == 1 and site.busy()[0].engine_id != "", WAIT_S)
    event(site)
    wait_for("an agent works again", lambda: len(site.busy()) == 1, WAIT_S)
    gate.touch()
    site.check_whole("nightly", failed={"node_lost"} if event is _lose_node else ())


def test_why_an_agent_waits_or_never_joins_is_told_in_slurms_words(site: SlurmSite) -> None:
    site.write(extra="--partition=nowhere")
    site.start_fleet()
    site.gated("nightly")
    wait_for(
        "Slurm's words are told", lambda: "invalid partition specified: nowhere" in site.run("fleet", "list").stdout
    )
    wait_for("also of the job", lambda: "nowhere" in site.run("job", "explain", "nightly").stdout)
    assert site.of_slurm("all") == []
