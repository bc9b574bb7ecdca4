"""The manifests for KEDA: by the schemas of Kubernetes as far as they go, by each other, and as processes."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from documented_commands import ROOT
from keda_caller import KedaCaller, served_at
from kube_schemas import VERSIONS, problem_of
from served_tls import SecureMaster, wait_until, windrow_of, write_job
from windrow import Client
from windrow.common.quantities import bytes_in
from windrow.fleet.scaled_job import LABEL, read
from windrow.rpc.contexts import Access
from windrow_command import WINDROW

KEDA = ROOT / "deploy" / "keda"
BASE = ROOT / "deploy" / "kustomize" / "base"


def objects(file: str) -> dict[str, dict[str, Any]]:
    """The objects of a file, by kind and name."""
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in yaml.safe_load_all((KEDA / file).read_text())}


SCALER, AGENTS = objects("scaler.yaml"), objects("agents.yaml")
DEPLOYMENT, SERVICE = SCALER["Deployment/windrow-scaler"], SCALER["Service/windrow-scaler"]
SCALED = AGENTS["ScaledJob/windrow-agents"]
POD = SCALED["spec"]["jobTargetRef"]["template"]["spec"]
(AGENT,) = POD["containers"]
(SERVER,) = DEPLOYMENT["spec"]["template"]["spec"]["containers"]
VOLUMES = DEPLOYMENT["spec"]["template"]["spec"]["volumes"]
(TRIGGER,) = SCALED["spec"]["triggers"]


def options_of(words: list[str]) -> dict[str, str]:
    """The options of an agent's command."""
    assert words[:2] == ["windrow", "agent"]
    return dict(re.fullmatch(r"--([\w-]+)=(.*)", word).groups() for word in words[2:])  # type: ignore[union-attr,misc]


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_all_that_is_its_own(version: str) -> None:
    for one in SCALER.values():
        assert problem_of(one, version) == ""
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": SCALED["spec"]["jobTargetRef"]}
    assert problem_of(job, version) == ""


def test_the_trigger_says_what_an_agent_is_started_with() -> None:
    metadata = SCALED["metadata"]
    asked = read(metadata["namespace"], metadata["name"], TRIGGER["metadata"])
    options = options_of(AGENT["command"])
    assert options["label"] == f"{LABEL}={asked.label}"
    assert (int(options["slots"]), int(options["gpus"])) == (asked.shape.slots, asked.shape.gpus)
    assert bytes_in(options["memory"]) == asked.shape.memory_bytes
    assert (options.get("pool", ""), options.get("lifetime")) == (asked.pool, None)
    assert float(options["exit-idle"].removesuffix("min")) > 0
    resources = {"cpu": options["slots"], "memory": options["memory"].removesuffix("B")}
    assert AGENT["resources"] == {"requests": resources, "limits": resources}


def test_keda_counts_jobs_and_leaves_busy_ones_alone() -> None:
    spec = SCALED["spec"]
    assert spec["scalingStrategy"] == {"strategy": "default"} and spec["rollout"] == {"strategy": "gradual"}
    assert spec["jobTargetRef"]["backoffLimit"] == 0 and POD["restartPolicy"] == "Never"
    assert "metricType" not in TRIGGER
    annotations = spec["jobTargetRef"]["template"]["metadata"]["annotations"]
    assert annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
    # The agent has half of the time before it is killed, for what it works on.
    assert POD["terminationGracePeriodSeconds"] >= 60


def test_everything_that_is_named_is_there() -> None:
    names = {one["metadata"]["namespace"] for one in (*SCALER.values(), *AGENTS.values())}
    assert names == {"windrow"}
    # KEDA finds the scaler, which listens there, and its authority.
    (port,) = SERVICE["spec"]["ports"]
    assert TRIGGER["metadata"]["scalerAddress"] == f"windrow-scaler.windrow.svc:{port['port']}"
    assert SERVER["ports"] == [{"name": port["targetPort"], "containerPort": 6000}]
    assert "0.0.0.0:6000" in SERVER["args"]
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    assert labels == SERVICE["spec"]["selector"] == DEPLOYMENT["spec"]["selector"]["matchLabels"]
    authentication = AGENTS["TriggerAuthentication/windrow-scaler"]
    assert TRIGGER["authenticationRef"]["name"] == authentication["metadata"]["name"]
    assert authentication["spec"]["secretTargetRef"] == [
        {"parameter": "caCert", "name": "windrow-scaler", "key": "ca.pem"}
    ]
    # What the manifests without Helm make: the master, its Secrets, its data, and who may speak to it.
    base = [one for one in yaml.safe_load_all((BASE / "manifests.yaml").read_text()) if one]
    has = {f"{one['kind']}/{one['metadata']['name']}": one for one in base}
    master = "windrow-master.windrow.svc:8470"
    assert has["Service/windrow-master"]["spec"]["ports"][0]["port"] == 8470
    assert options_of(AGENT["command"])["master"] == master
    assert {"name": "WINDROW_MASTER", "value": master} in SERVER["env"]
    made = {one["name"] for one in yaml.safe_load((BASE / "kustomization.yaml").read_text())["secretGenerator"]}
    volumes = [*POD["volumes"], *VOLUMES]
    secrets = {volume["secret"]["secretName"] for volume in volumes if "secret" in volume}
    assert secrets - {"windrow-scaler"} <= made
    claims = {one["persistentVolumeClaim"]["claimName"] for one in POD["volumes"] if "persistentVolumeClaim" in one}
    assert all(f"PersistentVolumeClaim/{claim}" in has for claim in claims)
    agents = has["NetworkPolicy/windrow-agents"]["spec"]["podSelector"]["matchLabels"]
    assert SCALED["spec"]["jobTargetRef"]["template"]["metadata"]["labels"] == agents
    guarded = SCALER["NetworkPolicy/windrow-master-from-scaler"]["spec"]["podSelector"]["matchLabels"]
    pod = has["StatefulSet/windrow-master"]["spec"]["template"]["metadata"]["labels"]
    assert guarded.items() <= pod.items()


def test_the_secret_that_the_readme_makes_has_what_the_manifests_take_of_it() -> None:
    text = (KEDA / "README.md").read_text()
    files = [Path(file) for file in re.findall(r"--from-file=(\S+?)[`\s]", text)]
    keys = {item["key"] for volume in VOLUMES for item in volume.get("secret", {}).get("items", ())}
    assert {file.name for file in files} == keys
    assert "--name windrow-scaler.windrow.svc`" in text and "--role operate > scaler/token`" in text


class KedaInSmall:
    """The Jobs of the ScaledJob as processes, by KEDA's strategy `default`."""

    def __init__(self, caller: KedaCaller, command: list[str], folder: Path) -> None:
        self._caller = caller
        self._command = command
        self._folder = folder
        self.jobs: list[subprocess.Popen[bytes]] = []

    def running(self) -> int:
        """Jobs that have not ended."""
        return sum(job.poll() is None for job in self.jobs)

    def poll(self) -> None:
        """One round: start as many Jobs as the number is above those that run."""
        wanted = min(self._caller.replicas(), SCALED["spec"]["maxReplicaCount"])
        for _ in range(wanted - self.running()):
            number = len(self.jobs)
            own = [f"--folder={self._folder}/agent-{number}", f"--node-id=windrow-agents-{number}"]
            with (self._folder / f"agent-{number}.log").open("wb") as log:
                self.jobs.append(subprocess.Popen([*self._command, *own], stdout=log, stderr=log))

    @contextmanager
    def ended(self) -> Iterator[KedaInSmall]:
        """End them after the test."""
        try:
            yield self
        finally:
            for job in self.jobs:
                job.terminate()
            for job in self.jobs:
                job.wait(120)


def test_the_scaler_and_the_agents_of_the_manifests_do_a_job(tmp_path: Path) -> None:
    """From no agent to one and back to none, over TLS, with the rendered commands and other paths."""
    with SecureMaster(tmp_path).serving() as master:
        role = ("--role", "operate")
        made = windrow_of(master, "token", "create", "scaler", *role, token=master.token("client-token"))
        assert made.returncode == 0, made.stderr
        (tmp_path / "token").write_text(made.stdout)
        (tmp_path / "token").chmod(0o600)
        address = master.address.replace("127.0.0.1", "localhost")
        here = {
            "windrow-master.windrow.svc:8470": address,
            "/windrow/ca.pem": str(master.keys / "client" / "ca.pem"),
            "/windrow/join-token": str(master.keys / "authority" / "join-token"),
            "/scaler/tls.pem": str(master.keys / "master" / "tls.pem"),
            "/scaler/token": str(tmp_path / "token"),
            "0.0.0.0:6000": "0.0.0.0:0",
        }
        environment = {one["name"]: here.get(one["value"], one["value"]) for one in SERVER["env"]}
        options = options_of(AGENT["command"]) | {"exit-idle": "3s"}
        options = {name: here.get(value, value) for name, value in options.items() if name != "folder"}
        with (tmp_path / "scaler.log").open("wb") as log:
            command = [WINDROW, *(here.get(word, word) for word in SERVER["args"])]
            scaler = subprocess.Popen(command, env=os.environ | environment, stdout=log, stderr=log)
        try:
            wait_until(lambda: served_at((tmp_path / "scaler.log").read_text()), "the scaler serves")
            port = served_at((tmp_path / "scaler.log").read_text()).rpartition(":")[2]
            caller = KedaCaller(
                f"localhost:{port}",
                SCALED["metadata"]["name"],
                master.keys / "client" / "ca.pem",
                SCALED["metadata"]["namespace"],
                **TRIGGER["metadata"],
            )
            agent = [WINDROW, "agent", *(f"--{name}={value}" for name, value in options.items())]
            with KedaInSmall(caller, agent, tmp_path).ended() as keda:
                keda.poll()
                assert keda.jobs == []
                with Client(access=Access(master.address, master.ca, master.token("client-token"))) as client:
                    submitted = client.submit(str(write_job(tmp_path / "job")))

                    def is_done() -> bool:
                        keda.poll()
                        return client.get(submitted.job_id).state == "completed"

                    wait_until(is_done, "the job has had an agent")

                def is_over() -> bool:
                    keda.poll()
                    return keda.running() == 0

                wait_until(is_over, "the agent has left")
                # However often KEDA asked while it started, it was one, and it left by itself.
                assert [job.returncode for job in keda.jobs] == [0]
        finally:
            scaler.terminate()
            assert scaler.wait(60) == 0
