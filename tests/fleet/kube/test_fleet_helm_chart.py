"""The Helm chart: what it makes of values, by the published schemas; and that what it starts works together."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_program import CHART, HelmMissing, helm, program, rendered
from kube_api import KubeApi, kube_api
from kube_cluster import KubeCluster, until
from kube_engine import KubeEngine
from kube_schemas import NEWEST, OLDEST, VERSIONS, problem_of
from windrow.fleet import provider_kit
from windrow.fleet.file import load_fleet_file
from windrow.fleet.provider import Shape

Object = dict[str, Any]
EXISTING = {"create": False, "existing": {"master": "m", "agent": "a", "client": "c"}}
GROUPS = {"cpu": {"slots": 4, "memory": "8GiB", "max": 10}}
VALUES: dict[str, Object] = {
    "defaults": {},
    "a fleet": {"fleet": {"groups": GROUPS}},
    "existing secrets": {"secrets": EXISTING},
    "cert-manager": {
        "secrets": {**EXISTING, "names": ["windrow.example.com"]},
        "certManager": {"enabled": True, "issuerRef": {"name": "site", "kind": "ClusterIssuer"}},
    },
    "no policies": {"networkPolicy": {"enabled": False}},
    "storage": {
        "master": {
            "datastores": {"default": "s3://bucket/windrow"},
            "envFrom": [{"secretRef": {"name": "storage"}}],
            "env": [{"name": "AWS_REGION", "value": "eu-central-1"}],
            "data": {"size": ""},
        }
    },
    "all": {
        "nameOverride": "site",
        "images": {
            "master": {"repository": "registry.example/windrow-master", "tag": "1.2", "pullPolicy": "Always"},
            "agent": {"repository": "registry.example/windrow-agent", "tag": "1.2"},
            "pullSecrets": ["registry"],
        },
        "master": {
            "extraArgs": ["--retain=30d", "--limit=open_jobs=100"],
            "state": {"size": "100Gi", "storageClass": "fast", "accessMode": "ReadWriteOncePod"},
            "data": {"existingClaim": "shared"},
            "service": {"type": "LoadBalancer", "port": 443, "annotations": {"example.com/internal": "true"}},
            "nodeSelector": {"disk": "fast"},
            "tolerations": [{"key": "infra", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "podAnnotations": {"example.com/a": "b"},
            "priorityClassName": "system",
            "podDisruptionBudget": {"enabled": True},
        },
        "fleet": {
            "namespace": "agents",
            "tokenSecret": "fleet-token",
            "mayCancelWaiting": False,
            "nodeSelector": {"a": "b"},
            "tolerations": [{"key": "infra", "operator": "Exists"}],
            "podAnnotations": {"example.com/a": "b"},
            "groups": {"gpu": {"slots": 8, "gpus": 1, "max": 4, "kubernetes": {"queue": "team"}}},
        },
        "networkPolicy": {"clients": [{"podSelector": {"matchLabels": {"app": "notebook"}}}]},
    },
}


@pytest.fixture(autouse=True)
def _has_helm() -> None:
    try:
        program("helm")
    except HelmMissing as error:
        pytest.skip(str(error))


def one(objects: list[Object], kind: str, name: str = "") -> Object:
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"].endswith(name)]
    return found


def test_helm_finds_nothing_wrong_with_the_chart(tmp_path: Path) -> None:
    done = helm("lint", "--strict", str(CHART), folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_what_is_rendered_is_valid_by_the_oldest_and_the_newest_schemas(values: Object, tmp_path: Path) -> None:
    assert VERSIONS[0].startswith(OLDEST)
    for found, version in itertools.product(rendered(values, tmp_path), (VERSIONS[0], NEWEST)):
        if found["apiVersion"] != "cert-manager.io/v1":
            assert problem_of(found, version) == "", found["metadata"]["name"]


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_no_container_has_rights_that_it_does_not_need(values: Object, tmp_path: Path) -> None:
    for found in rendered(values, tmp_path):
        if found["kind"] not in ("Deployment", "StatefulSet", "Job"):
            continue
        pod = found["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is (found["kind"] != "StatefulSet")
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


@pytest.mark.parametrize("values", [VALUES["a fleet"], VALUES["all"]])
def test_the_file_of_the_fleet_is_one_that_windrow_reads_without_a_warning(values: Object, tmp_path: Path) -> None:
    file = tmp_path / "fleet.yml"
    file.write_text(one(rendered(values, tmp_path), "ConfigMap", "-fleet")["data"]["fleet.yml"])
    read = load_fleet_file(file)
    assert read.warnings == ()
    assert all(group.engine.image for group in read.fleet.groups)


def test_the_values_of_the_page_are_two_groups(tmp_path: Path) -> None:
    page = (CHART.parents[2] / "docs" / "how-to" / "run-a-fleet-on-kubernetes.md").read_text()
    values = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[1])
    file = tmp_path / "fleet.yml"
    file.write_text(one(rendered(values, tmp_path), "ConfigMap", "-fleet")["data"]["fleet.yml"])
    cpu, gpu = load_fleet_file(file).fleet.groups
    assert cpu.engine.image == gpu.engine.image == "registry.example/windrow-agent:0.1.0"
    assert gpu.engine.queue == "team-a"


def test_values_of_users_come_before_those_of_the_chart(tmp_path: Path) -> None:
    values = {"fleet": {"groups": GROUPS, "defaults": {"kubernetes": {"queue": "team", "secrets": {"mine": "/mine"}}}}}
    file = tmp_path / "fleet.yml"
    file.write_text(one(rendered(values, tmp_path), "ConfigMap", "-fleet")["data"]["fleet.yml"])
    (group,) = load_fleet_file(file).fleet.groups
    assert group.engine.queue == "team"
    assert dict(group.engine.secrets) == {"mine": "/mine", "windrow-agent": "/windrow"}
    assert dict(group.engine.claims) == {"windrow-data": "/data"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"master": {"replicas": 3}}, "'replicas' not allowed"),
        ({"fleet": {"groups": {"cpu": 4}}}, "got number, want object"),
        ({"master": {"state": {"size": "much"}}}, "does not match pattern"),
        ({"user": 0}, "minimum"),
        ({"secrets": {"create": False}}, "name the Secret in secrets.existing.master"),
        ({"certManager": {"enabled": True}}, "certManager.enabled needs secrets.create: false"),
        (
            {"certManager": {"enabled": True}, "secrets": EXISTING},
            "certManager.enabled needs certManager.issuerRef.name",
        ),
    ],
)
def test_wrong_values_are_refused_with_what_is_wrong(values: Object, said: str, tmp_path: Path) -> None:
    (tmp_path / "values.yml").write_text(yaml.safe_dump(values))
    done = helm("template", "windrow", str(CHART), "--values", str(tmp_path / "values.yml"), folder=tmp_path)
    assert done.returncode
    assert said in done.stderr, done.stderr


def test_all_values_are_checked_and_have_a_word_of_explanation(tmp_path: Path) -> None:
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def unknown(found: Object, known: Object, path: str) -> list[str]:
        if "$ref" in known:
            known = schema["definitions"][known["$ref"].rpartition("/")[2]]
        if known.get("additionalProperties") is not False:
            return []
        missing = [f"{path}{key}" for key in found if key not in known["properties"]]
        return missing + [
            each
            for key, value in found.items()
            if isinstance(value, dict) and key in known["properties"]
            for each in unknown(value, known["properties"][key], f"{path}{key}.")
        ]

    assert unknown(values, schema, "") == []
    comments = re.findall(r"^#|^  #", (CHART / "values.yaml").read_text(), re.MULTILINE)
    assert len(comments) >= len(values)


def test_the_rights_of_the_fleet_are_enough_for_all_that_a_provider_does(cluster: KubeCluster, tmp_path: Path) -> None:
    rules = one(rendered(VALUES["a fleet"], tmp_path), "Role", "-fleet")["rules"]
    cluster.api.rights = frozenset(
        (verb, resource) for rule in rules for verb, resource in itertools.product(rule["verbs"], rule["resources"])
    )
    engine = provider_kit.Engine(make=cluster.new_provider, shape=Shape(1), waiting=Shape(5), wait_s=120)
    for check in provider_kit.CHECKS:
        check(engine)
    assert not cluster.api.refused, "the Role lacks a right"
    needed = {(verb, resource) for verb, resource in cluster.api.used}
    assert cluster.api.rights - needed <= {("list", "events")}, "the Role has a right that nothing uses"


def make_secrets(api: KubeApi, engine: KubeEngine, objects: list[Object], folder: Path, account: Path) -> str:
    """Run the Job of the chart that makes Secrets. Returns what it printed."""
    job = one(objects, "Job", "-setup")
    engine.containers.config_maps["windrow-setup"] = one(objects, "ConfigMap", "-setup")["data"]
    environment = {
        "KUBERNETES_SERVICE_HOST": "localhost",
        "KUBERNETES_SERVICE_PORT": str(api.port),
        "ACCOUNT_FOLDER": str(account),
        "TMPDIR": str(folder),
    }
    process = engine.containers.start(job["spec"]["template"]["spec"], folder / "setup", environment)
    code = process.wait(120)
    log = (folder / "setup" / "log").read_text()
    assert code == 0, log
    return log


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """What a pod finds of its service account; and `server.pem`, by which the API serves."""
    folder = tmp_path / "account"
    folder.mkdir()
    run_windrow("setup", "--folder", str(tmp_path / "pki"), "--name", "localhost,127.0.0.1")
    (folder / "server.pem").write_bytes((tmp_path / "pki" / "master" / "tls.pem").read_bytes())
    (folder / "ca.crt").write_bytes((tmp_path / "pki" / "agent" / "ca.pem").read_bytes())
    (folder / "namespace").write_text("ml")
    (folder / "token").write_text("the-token-of-a-pod")
    return folder


@contextmanager
def tls_api(folder: Path, account: Path) -> Iterator[KubeApi]:
    """An API as a service account finds it."""
    with kube_api(folder, namespace="ml", tls_file=account / "server.pem", ca_file=account / "ca.crt") as api:
        api.token = (account / "token").read_text()
        yield api


def run_windrow(*words: str, **variables: str) -> str:
    """Run a command to its good end; returns what it printed."""
    command = [str(Path(sys.executable).with_name("windrow")), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **variables})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_secrets_are_made_once_and_kept_and_renewed(tmp_path: Path, account: Path) -> None:
    objects = rendered({}, tmp_path)
    with tls_api(tmp_path, account) as api:
        api.rights = frozenset(
            (verb, resource)
            for rule in one(objects, "Role", "-setup")["rules"]
            for verb, resource in itertools.product(rule["verbs"], rule["resources"])
        )
        engine = KubeEngine(api, tmp_path / "pods")
        try:
            log = make_secrets(api, engine, objects, tmp_path / "first", account)
            assert [
                log.count(f"Secret windrow-{role}: made") for role in ("authority", "master", "agent", "client")
            ] == [1] * 4
            secrets = {name: dict(found["data"]) for name, found in api.store.objects["secrets"].items()}
            assert set(secrets["windrow-master"]) == {"tls.pem", "ca.pem", "join-token", "client-token"}
            assert set(secrets["windrow-agent"]) == {"ca.pem", "join-token"}
            assert set(secrets["windrow-client"]) == {"ca.pem", "client-token"}

            log = make_secrets(api, engine, objects, tmp_path / "second", account)
            assert log.count(": as it was") == 4

            # A certificate that lacks a name is renewed, by the same authority, with the same tokens.
            renamed = rendered({"secrets": {"names": ["windrow.example.com"]}}, tmp_path)
            make_secrets(api, engine, renamed, tmp_path / "third", account)
            after = {name: dict(found["data"]) for name, found in api.store.objects["secrets"].items()}
            assert after["windrow-agent"] == secrets["windrow-agent"]
            assert after["windrow-client"] == secrets["windrow-client"]
            assert after["windrow-master"]["tls.pem"] != secrets["windrow-master"]["tls.pem"]
        finally:
            engine.end()


JOB = """\
type: pipeline
jobs:
  square:
    type: parallel
    inputs:
      numbers: {type: mltable, path: ./numbers.csv}
    outputs:
      squares: {type: uri_file, path: ./squares.csv}
    input_data: ${{inputs.numbers}}
    mini_batch_size: 1kb
    task:
      type: run_function
      code: ./code
      entry_script: script.py
      program_arguments: --append_row_format csv
      append_row_to: ${{outputs.squares}}
"""
SCRIPT = """\
import time


def run(mini_batch):
    time.sleep(0.5)
    return mini_batch ** 2
"""


def test_what_the_chart_starts_runs_a_job_with_agents_as_pods_of_which_one_is_preempted(
    tmp_path: Path, account: Path
) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    address = f"localhost:{port}"
    data = tmp_path / "data"
    data.mkdir()
    with tls_api(tmp_path, account) as api:
        engine = KubeEngine(api, tmp_path / "pods")
        parts = []
        try:
            kubernetes = {"kubeconfig": str(api.kubeconfig)}
            values = {
                "fleet": {
                    "groups": {"cpu": {"slots": 1, "max": 2, "min": 1}},
                    "defaults": {"kubernetes": kubernetes, "agent": {"folder": "/scratch"}},
                }
            }
            objects = rendered(values, tmp_path)
            make_secrets(api, engine, objects, tmp_path / "made", account)
            containers = engine.containers
            containers.claims["windrow-data"] = data
            containers.config_maps["windrow-fleet"] = one(objects, "ConfigMap", "-fleet")["data"]
            containers.replaced = {"0.0.0.0:8470": f"127.0.0.1:{port}", "windrow-master.ml.svc:8470": address}
            # The kubelet makes a pod's own claim of a template.
            master = one(objects, "StatefulSet")["spec"]
            (template,) = master["volumeClaimTemplates"]
            claim = {"name": template["metadata"]["name"], "persistentVolumeClaim": {"claimName": "state"}}
            containers.claims["state"] = tmp_path / "state"
            containers.claims["state"].mkdir()
            pod = master["template"]["spec"]
            pod["volumes"].append(claim)
            parts.append(containers.start(pod, tmp_path / "master"))
            probe = pod["containers"][0]["readinessProbe"]["exec"]["command"]

            def is_ready() -> bool:
                words = [containers.here(word, {"/state": str(tmp_path / "state")}) for word in probe[1:]]
                command = [str(Path(sys.executable).with_name("windrow")), *words]
                return subprocess.run(command, capture_output=True, check=False).returncode == 0

            until(is_ready, (tmp_path / "master" / "log").read_text)
            parts.append(containers.start(one(objects, "Deployment")["spec"]["template"]["spec"], tmp_path / "fleet"))

            def running() -> list[str]:
                with api.store.lock:
                    pods = list(api.store.objects["pods"].values())
                    return [
                        each["metadata"]["labels"]["windrow/allocation"]
                        for each in pods
                        if each["status"]["phase"] == "Running" and "deletionTimestamp" not in each["metadata"]
                    ]

            until(running, (tmp_path / "fleet" / "log").read_text)
            client = {
                "WINDROW_MASTER": address,
                "WINDROW_CA_FILE": str(tmp_path / "fleet" / "secrets" / "ca.pem"),
                "WINDROW_TOKEN_FILE": str(tmp_path / "fleet" / "secrets" / "client-token"),
            }
            folder = tmp_path / "job"
            folder.mkdir()
            (folder / "numbers.csv").write_text("n\n" + "".join(f"{number}\n" for number in range(3000)))
            (folder / "code").mkdir()
            (folder / "code" / "script.py").write_text(SCRIPT)
            (folder / "job.yml").write_text(JOB)
            job = run_windrow("job", "create", str(folder / "job.yml"), **client).split()[0]
            first = running()[0]
            until(lambda: run_state(job, client) == "RUNNING", lambda: run_state(job, client))
            engine.preempt(first)
            until(lambda: run_state(job, client) in ("COMPLETED", "FAILED"), lambda: run_state(job, client))
            shown = run_windrow("job", "show", job, **client)
            assert run_state(job, client) == "COMPLETED", shown
            run_windrow("job", "download", job, "--to", str(tmp_path / "results"), **client)
            (squares,) = (tmp_path / "results").rglob("squares.csv")
            header, *lines = squares.read_text().split()
            assert [int(line) for line in lines] == [number * number for number in range(3000)], header
            shown = run_windrow("fleet", "show", "kubernetes", "--format", "json", **client)
            states = {each["name"]: each["state"] for each in json.loads(shown)["allocations"]}
            # An agent that has drained in time has left well: whoever looks once its pod is gone learns no more.
            assert states[first] in ("preempted", "completed")
        finally:
            for part in reversed(parts):
                part.send_signal(signal.SIGTERM)
                part.wait(60)
            engine.end()


def run_state(job: str, client: dict[str, str]) -> str:
    """The state of a job."""
    return str(json.loads(run_windrow("job", "show", job, "--format", "json", **client))["state"]).upper()


def test_the_manifests_for_kustomize_are_what_the_chart_makes_and_can_be_built(tmp_path: Path) -> None:
    base = CHART.parents[1] / "kustomize" / "base"
    values = yaml.safe_load((base / "values.yml").read_text())
    stored = [found for found in yaml.safe_load_all((base / "manifests.yaml").read_text()) if found]
    assert stored == rendered(values, tmp_path, namespace="windrow"), "make it anew: deploy/kustomize/README.md"
    copied = tmp_path / "base"
    shutil.copytree(base, copied, ignore=shutil.ignore_patterns("secrets"))
    run_windrow("setup", "--folder", str(copied / "secrets"), "--name", "windrow-master.windrow.svc,localhost")
    words = [program("kubectl"), "kustomize", str(copied)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = [found for found in yaml.safe_load_all(done.stdout) if found]
    assert [problem for found in built if (problem := problem_of(found))] == []
    assert {found["metadata"]["namespace"] for found in built} == {"windrow"}
    master = one(built, "StatefulSet")["spec"]["template"]["spec"]
    assert master["containers"][0]["image"] == "registry.example/windrow-master:0.1.0"
    sources = [each for volume in master["volumes"] for each in volume.get("projected", {}).get("sources", ())]
    named = {each["secret"]["name"] for each in sources}
    assert named <= {found["metadata"]["name"] for found in built if found["kind"] == "Secret"}
