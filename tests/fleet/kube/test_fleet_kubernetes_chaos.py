"""A fleet on the tests' cluster: pods are taken away, the API is away, and programs are killed while a job runs."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from cluster_commands import EXPECTED, ServedCluster
from embedded_run import wait_until
from fleet_chaos import MOST, TIMEOUT_S, Chaos, FleetInChaos
from kube_api import Fault, KubeApi
from kube_engine import KubeEngine
from windrow.fleet.provider import Seen, Unreachable
from windrow.fleet.providers.kubernetes import KubernetesProvider
from windrow.fleet.providers.kubernetes.settings import KubernetesSettings

FILE = """\
name: site
groups:
  local:
    provider: kubernetes
    slots: 2
    max: {most}
    exit_idle: 5s
    lifetime: 1h
    agent: {{join_token_file: {token}, folder: /scratch, options: [--drain-grace, "5"]}}
    kubernetes: {{image: agent, kubeconfig: {kubeconfig}, grace: 20s, timeout: 10s}}
"""


class FleetOnKubernetes(FleetInChaos):
    """Its agents are pods."""

    def __init__(self, folder: Path) -> None:
        self.api = KubeApi(folder)
        self.engine = KubeEngine(self.api, folder / "pods", cpus=2 * MOST - 2)
        super().__init__(folder)

    def write(self, **_: object) -> None:
        """Write the fleet's file."""
        made = {"most": MOST, "token": self.token_file("right"), "kubeconfig": self.api.kubeconfig}
        (self.folder / "fleet.yml").write_text(FILE.format(**made))

    def seen(self) -> list[Seen]:
        """What the cluster has."""
        settings = KubernetesSettings("agent", kubeconfig=str(self.api.kubeconfig))
        found: list[Seen] = []

        def has_answered() -> bool:
            """A fault may meet the test."""
            with contextlib.suppress(Unreachable):
                found[:] = KubernetesProvider(settings, "").allocations()
                return True
            return False

        wait_until(has_answered, "the API answers")
        return found

    def running(self) -> list[str]:
        """Jobs whose pods run, and are not being deleted."""
        with self.api.store.lock:
            return [
                pod["metadata"]["labels"]["windrow/allocation"]
                for pod in self.api.store.objects["pods"].values()
                if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
            ]

    def created(self) -> list[str]:
        """Jobs that were ever created, each as often as it was."""
        return [name for resource, name in self.api.store.created if resource == "jobs"]

    def happens(self) -> Mapping[str, Callable[[random.Random], None]]:
        """What happens to pods and to the API."""
        ways: dict[str, Callable[[str], None]] = {
            "preempt": self.engine.preempt,
            "evict": self.engine.evict,
            "press": partial(self.engine.press, own_fault=False),
            "expire": self.engine.reach_deadline,
            "delete-pod": self._delete_pod,
            "delete-job": self.engine.forget,
        }
        return {"api": self._stop_api, "fault": self._answer_wrongly} | {
            way: partial(self._take_away, way, how) for way, how in ways.items()
        }

    def _take_away(self, way: str, how: Callable[[str], None], dice: random.Random) -> None:
        victim = self.chosen(dice)
        if victim is None:
            return
        self.taken.add(victim)
        if way == "press":
            self.killed.add(victim)
        # It may have left since.
        with contextlib.suppress(ValueError, KeyError):
            how(victim)

    def _delete_pod(self, job: str) -> None:
        with self.api.store.lock:
            self.api.store.delete("pods", self.engine.pod(job)["metadata"]["name"], {})

    def _stop_api(self, dice: random.Random) -> None:
        self.api.stop()
        time.sleep(2 * dice.random())
        self.look()
        self.api.start()

    def _answer_wrongly(self, dice: random.Random) -> None:
        self.api.faults += [Fault(dice.choice([0, 429, 500, 503]), after=dice.random() < 0.5)]

    def end(self) -> None:
        """End everything: no agent outlives its test."""
        for name, process in self.processes.items():
            if name.startswith("fleet") and process.poll() is None:
                process.terminate()
                process.wait(60)
        # Also what waits for a node: it would start once there is room.
        with self.api.store.lock:
            for name in list(self.api.store.objects["jobs"]):
                self.engine.forget(name)
        try:
            wait_until(lambda: not self.alive(), "the agents have ended")
            ServedCluster.end(self)
        finally:
            self.api.stop()
            self.engine.end()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[FleetOnKubernetes]:
    """A master that serves; the test starts the fleet's program."""
    made = FleetOnKubernetes(tmp_path)
    try:
        made.start_master()
        yield made
    finally:
        made.end()


@pytest.mark.timeout(TIMEOUT_S)
def test_jobs_are_right_whatever_happens_to_pods_and_the_api_while_they_run(site: FleetOnKubernetes) -> None:
    Chaos(site).run()


def test_a_job_that_kueue_takes_back_is_deleted_and_another_one_asked_for(site: FleetOnKubernetes) -> None:
    hurry, variables = site.folder / "hurry", "jobs.score.environment_variables"
    site.start_fleet()
    site.create("nightly", "--set", f"{variables}.PAUSE=1", "--set", f"{variables}.HURRY={hurry}")
    wait_until(lambda: any(one.is_busy for one in site.live()), "an agent is busy")
    taken = next(one.name for one in site.live() if one.is_busy)
    site.engine.suspend(taken)
    wait_until(lambda: taken not in [seen.name for seen in site.seen()], "its Job is deleted")
    site.engine.cpus += 1
    wait_until(lambda: set(site.running()) - {taken}, "others run")
    hurry.touch()
    wait_until(lambda: site.job("nightly")["state"] == "completed", "the job ends")
    assert site.output.read_text() == EXPECTED
    assert site.created().count(taken) == 1
    assert all(one.has_ended for one in site.allocations() if one.name == taken)
