"""A fleet on a real Slurm: jobs are taken away, Slurm is away, nodes fail, and programs are killed while jobs run."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from cluster_commands import ServedCluster
from embedded_run import WINDROW, wait_until
from fleet_chaos import MOST, TIMEOUT_S, Chaos, FleetInChaos
from slurm_cluster import CPUS, NODES, SlurmCluster
from windrow.fleet.provider import Seen, Unreachable
from windrow.fleet.providers.slurm import SlurmProvider
from windrow.fleet.providers.slurm.settings import SlurmSettings
from windrow.sdk.fleet import Allocation

FILE = """\
name: site
groups:
  local:
    provider: slurm
    slots: 2
    max: {most}
    exit_idle: 5s
    lifetime: 1h
    agent: {{command: {command}, join_token_file: {token}, folder: {agents}, options: [--drain-grace, "5"]}}
    slurm: {{log_folder: {logs}}}
"""
DAY_S = 86_400
BY_SLURM = re.compile(r"^slurmstepd.* CANCELLED AT \S+ DUE TO (PREEMPTION|TIME LIMIT|NODE FAILURE)", re.MULTILINE)
"""What the daemon of a node writes into the log of a job that Slurm takes away by itself."""
SILENCES_S = (1.0, 7.0)
"""Slurm's commands give up after five seconds."""


class FleetOnSlurm(FleetInChaos):
    """Its agents are Slurm's jobs."""

    def __init__(self, folder: Path, slurm: SlurmCluster) -> None:
        self.slurm = slurm
        super().__init__(folder)

    def write(self, **_: object) -> None:
        """Write the fleet's file."""
        made = {"most": MOST, "token": self.token_file("right"), "agents": self.agents, "logs": self.private / "logs"}
        (self.folder / "fleet.yml").write_text(FILE.format(command=json.dumps([WINDROW]), **made))

    def seen(self) -> list[Seen]:
        """What Slurm has."""
        found: list[Seen] = []

        def has_answered() -> bool:
            with contextlib.suppress(Unreachable):
                found[:] = SlurmProvider(SlurmSettings(), "site-local-").allocations()
                return True
            return False

        wait_until(has_answered, "Slurm answers")
        return found

    def running(self) -> list[str]:
        """The fleet's jobs that run."""
        return self._names("--states=RUNNING")

    def created(self) -> list[str]:
        """All jobs of the fleet that Slurm has had, but for those that it has forgotten in a crash."""
        return self._names("--states=all")

    def is_taken(self, one: Allocation) -> bool:
        """Also a node that failed takes allocations, and what Slurm has preempted may end well within its grace."""
        return (
            super().is_taken(one)
            or one.reason.startswith("NODE_FAIL")
            or bool(BY_SLURM.search(self._log(one.name)))
            or self._is_forgotten(one.name)
        )

    def is_over(self, one: Allocation) -> bool:
        """Also what Slurm has said to have ended: a controller that has crashed may show it as it was before."""
        return one.has_ended and one.state != "lost"

    def is_killed(self, name: str) -> bool:
        """Also by Slurm, which ends what it finds on its nodes and does not know."""
        return super().is_killed(name) or self._is_forgotten(name)

    def _is_forgotten(self, name: str) -> bool:
        """Whether Slurm has started a job, and has forgotten it in a crash. Else it knows all jobs of a day."""
        return bool(self._log(name)) and name not in self.created()

    def _log(self, name: str) -> str:
        """What the agent of an allocation has printed, and the daemon of its node about its end."""
        try:
            return (self.private / "logs" / f"{name}.log").read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def happens(self) -> Mapping[str, Callable[[random.Random], None]]:
        """What happens to jobs, to nodes and to the controller."""
        ways: dict[str, Callable[[str], None]] = {
            "cancel": lambda job: self._try("scancel", job),
            # It is told at once, and its time is over within a minute and a half.
            "walltime": lambda job: self._try("scontrol", "update", f"JobId={job}", "TimeLimit=1"),
            "kill-node": self._kill_node,
        }
        return {
            "preempt": self._preempt,
            "crash-engine": self._crash_controller,
            "silence-engine": self._silence_controller,
        } | {way: partial(self._take_away, how) for way, how in ways.items()}

    def _take_away(self, how: Callable[[str], None], dice: random.Random) -> None:
        victim = self.chosen(dice)
        if victim is None:
            return
        self.taken.add(victim)
        for job in self.slurm.run("squeue", "--me", "-h", f"--name={victim}", "-o", "%i").split():
            how(job)

    def _try(self, *words: str) -> None:
        """The job may have ended since."""
        self.slurm.tried(*words)

    def _preempt(self, dice: random.Random) -> None:
        """Others need some nodes, for a moment."""
        for _ in range(dice.randint(1, len(NODES))):
            self.slurm.sbatch("sleep 2", "--partition=urgent", f"--cpus-per-task={CPUS}", "--job-name=urgent")

    def _kill_node(self, job: str) -> None:
        """A node fails with all that runs on it, and comes back."""
        for node in self.slurm.run("squeue", "--me", "-h", "-j", job, "-o", "%N").split():
            names = self._names("-w", node)
            self.taken.update(names)
            self.killed.update(names)
            # Also those that have just begun, and those that the controller does not know.
            names = self.slurm.kill_node(node)
            self.taken.update(names)
            self.killed.update(names)
            self.slurm.start_node(node)
            self.slurm.wait_for_node(node)

    def _crash_controller(self, dice: random.Random) -> None:
        """What it has taken in the last seconds, it may have forgotten when it is back."""
        self.slurm.kill_controller()
        time.sleep(2 * dice.random())
        self.look()
        self.slurm.start_controller()
        # Slurm notices minutes later that a job has ended while it was away; those of others are in the way.
        self.slurm.tried("scancel", "--name=urgent")

    def _silence_controller(self, dice: random.Random) -> None:
        self.slurm.signal_controller(signal.SIGSTOP)
        try:
            time.sleep(dice.choice(SILENCES_S))
            self.look()
        finally:
            self.slurm.signal_controller(signal.SIGCONT)

    def _names(self, *options: str) -> list[str]:
        names = self.slurm.run("squeue", "--me", "-h", "-o", "%j", *options).split()
        return [name for name in names if name.startswith("site-local-")]

    def end(self) -> None:
        """End everything: no agent outlives its test."""
        for name, process in self.processes.items():
            if name.startswith("fleet") and process.poll() is None:
                process.terminate()
                process.wait(60)
        self.slurm.tried("scancel", "--me")
        ServedCluster.end(self)


@pytest.fixture
def site(tmp_path: Path, cluster: SlurmCluster) -> Iterator[FleetOnSlurm]:
    """A master that serves; the test starts the fleet's program. Slurm remembers all jobs of the test."""
    cluster.extra_lines.append(f"MinJobAge={DAY_S}")
    cluster.reconfigure()
    made = FleetOnSlurm(tmp_path, cluster)
    try:
        made.start_master()
        yield made
    finally:
        made.end()


@pytest.mark.skipif("WINDROW_FLEET_EVENTS" not in os.environ, reason="takes minutes: set WINDROW_FLEET_EVENTS")
@pytest.mark.timeout(TIMEOUT_S)
def test_jobs_are_right_whatever_happens_to_slurm_while_they_run(site: FleetOnSlurm) -> None:
    Chaos(site).run()
