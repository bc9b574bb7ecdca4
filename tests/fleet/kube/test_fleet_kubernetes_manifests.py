"""The keys of `kubernetes` in a fleet's file, and the Jobs that are made of them, by the published schemas."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from kube_schemas import VERSIONS, problem_of
from windrow.fleet.agent_command import request_of
from windrow.fleet.file import load_fleet_file
from windrow.fleet.provider import AgentCommand, Request, Shape
from windrow.fleet.providers.kubernetes.manifest import job_of, shown
from windrow.fleet.providers.kubernetes.settings import KubernetesSettings
from windrow.fleet.settings import GroupSettings
from windrow.spec import JobFileError

FULL = """\
name: site
groups:
  gpu:
    provider: kubernetes
    pool: gpu
    slots: 8
    memory: 60GiB
    gpus: 2
    max: 20
    lifetime: 4h
    agent:
      join_token_file: /windrow/join-token
      ca_file: /windrow/ca.pem
      folder: /scratch
      environment: {UV_INDEX: "https://index.example/$(simple)"}
    kubernetes:
      image: registry.example/windrow-agent:0.1.0
      namespace: ml
      image_pull_policy: IfNotPresent
      image_pull_secrets: [registry]
      service_account: agents
      priority_class: batch-low
      queue: team-a
      node_selector: {gpu: "true"}
      tolerations:
        - {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}
        - {key: spot, operator: Equal, value: "yes", effect: NoExecute, tolerationSeconds: 30}
      labels: {team: a}
      annotations: {example.com/owner: "someone@example.com"}
      secrets: {windrow-agents: /windrow}
      claims: {data: /data}
      scratch: 50GiB
      gpu_resource: amd.com/gpu
      user: 1001
      grace: 2min
      keep_finished: 10min
      kubeconfig: admin.conf
      context: prod
      timeout: 15s
"""
SMALL = """\
name: site
groups:
  cpu: {provider: kubernetes, slots: 1, max: 2, kubernetes: {image: windrow-agent}}
"""


def read(text: str, folder: Path) -> GroupSettings:
    (folder / "fleet.yml").write_text(text)
    (group,) = load_fleet_file(folder / "fleet.yml").fleet.groups
    return group


def made(group: GroupSettings) -> Request:
    return request_of(group, "site-gpu-0a1b2c-x123456789", "master.example:8470", stays=False)


@pytest.mark.parametrize("text", [FULL, SMALL], ids=["full", "small"])
@pytest.mark.parametrize("version", VERSIONS)
def test_jobs_are_valid_by_the_schemas_of_all_versions(text: str, version: str, tmp_path: Path) -> None:
    group = read(text, tmp_path)
    assert problem_of(job_of(group.engine, made(group)), version) == ""


def test_all_keys_of_the_file_are_in_the_job(tmp_path: Path) -> None:
    group = read(FULL, tmp_path)
    job = job_of(group.engine, made(group))
    assert job["metadata"]["labels"] == {
        "team": "a",
        "app.kubernetes.io/name": "windrow-agent",
        "app.kubernetes.io/managed-by": "windrow-fleet",
        "windrow/group": "site-gpu-0a1b2c",
        "windrow/allocation": "site-gpu-0a1b2c-x123456789",
        "kueue.x-k8s.io/queue-name": "team-a",
    }
    spec = job["spec"]
    assert (spec["backoffLimit"], spec["ttlSecondsAfterFinished"]) == (0, 600)
    pod = spec["template"]["spec"]
    (agent,) = pod["containers"]
    assert agent["resources"]["limits"] == {"cpu": "8", "memory": str(60 * 1024**3), "amd.com/gpu": "2"}
    assert agent["resources"]["requests"] == agent["resources"]["limits"]
    assert (agent["image"], agent["imagePullPolicy"]) == ("registry.example/windrow-agent:0.1.0", "IfNotPresent")
    assert {"name": "UV_INDEX", "value": "https://index.example/$$(simple)"} in agent["env"]
    assert {"name": "HOME", "value": "/scratch"} in agent["env"]
    mounts = {one["mountPath"]: one["name"] for one in agent["volumeMounts"]}
    volumes = {one["name"]: one for one in pod["volumes"]}
    assert volumes[mounts["/scratch"]]["emptyDir"] == {"sizeLimit": str(50 * 1024**3)}
    assert volumes[mounts["/windrow"]]["secret"]["secretName"] == "windrow-agents"
    assert volumes[mounts["/data"]]["persistentVolumeClaim"] == {"claimName": "data"}
    assert pod["securityContext"]["runAsUser"] == 1001
    assert pod["terminationGracePeriodSeconds"] == 120
    assert pod["nodeSelector"] == {"gpu": "true"}
    assert pod["tolerations"][1]["tolerationSeconds"] == 30
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert (pod["serviceAccountName"], pod["priorityClassName"]) == ("agents", "batch-low")
    assert group.engine.kubeconfig == str(tmp_path / "admin.conf")
    assert (group.engine.namespace, group.engine.context, group.engine.timeout_s) == ("ml", "prod", 15)


def test_the_time_of_an_agent_begins_when_its_pod_starts_not_while_it_waits(tmp_path: Path) -> None:
    group = read(FULL, tmp_path)
    spec = job_of(group.engine, made(group))["spec"]
    assert "activeDeadlineSeconds" not in spec
    assert spec["template"]["spec"]["activeDeadlineSeconds"] > 4 * 3600
    without = read(SMALL, tmp_path)
    assert "activeDeadlineSeconds" not in job_of(without.engine, made(without))["spec"]["template"]["spec"]


def test_an_agent_has_no_rights_in_the_cluster_and_none_of_root() -> None:
    request = Request("f-g-0-x1", Shape(1), None, AgentCommand(("windrow", "agent"), {}))
    pod = job_of(KubernetesSettings("image"), request)["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    own = pod["containers"][0]["securityContext"]
    assert own == {"allowPrivilegeEscalation": False, "privileged": False, "capabilities": {"drop": ["ALL"]}}


def test_autoscalers_are_told_to_leave_busy_agents() -> None:
    request = Request("f-g-0-x1", Shape(1), None, AgentCommand(("windrow", "agent"), {}))
    annotations = job_of(KubernetesSettings("image"), request)["spec"]["template"]["metadata"]["annotations"]
    assert annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
    assert annotations["karpenter.sh/do-not-disrupt"] == "true"


def test_what_is_shown_is_a_command_with_the_job_that_would_be_created(tmp_path: Path) -> None:
    group = read(FULL, tmp_path)
    command, _, rest = shown(group.engine, made(group)).partition(" <<'END'\n")
    assert command == f"kubectl --kubeconfig {tmp_path / 'admin.conf'} --context prod --namespace ml create -f -"
    assert yaml.safe_load(rest.removesuffix("END")) == job_of(group.engine, made(group))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("{}", "groups.cpu.kubernetes.image: is missing; name the image of the agents."),
        ("{image: a, namespace: Team_A}", 'namespace: is "Team_A"; it must be a name of Kubernetes'),
        ("{image: a, image_pull_policy: Often}", "Always, IfNotPresent, Never"),
        ("{image: a, secrets: {tokens: windrow}}", 'mounts tokens at "windrow"; it must be an absolute path'),
        ("{image: a, node_selector: {a: b c}}", 'has the value "b c" for a'),
        ("{image: a, tolerations: {key: a}}", "it must be a list"),
        ("{image: a, tolerations: [{operator: Is}]}", "tolerations[0].operator"),
        ("{image: a, grace: soon}", 'grace: is "soon"; it must be a time such as 60s'),
        ("{image: a, scratch: much}", 'scratch: is "much"; it must be a size'),
        ("{image: a, user: 0}", "user: is 0"),
    ],
)
def test_a_wrong_key_is_named_with_what_it_must_be(keys: str, said: str, tmp_path: Path) -> None:
    text = f"name: site\ngroups:\n  cpu:\n    {{provider: kubernetes, slots: 1, max: 2, kubernetes: {keys}}}\n"
    with pytest.raises(JobFileError) as raised:
        read(text, tmp_path)
    assert said in str(raised.value)
