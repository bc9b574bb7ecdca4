"""The Job of one allocation, as the API of Kubernetes takes it."""

from __future__ import annotations

import math
from pathlib import PurePosixPath
from typing import Any

import yaml

from windrow.fleet.provider import Request
from windrow.fleet.providers.kubernetes.settings import KubernetesSettings

MANAGED_BY, FLEET = "app.kubernetes.io/managed-by", "windrow-fleet"
GROUP, ALLOCATION = "windrow/group", "windrow/allocation"
QUEUE = "kueue.x-k8s.io/queue-name"
START_MARGIN_S = 300
"""A pod's time begins before its image is pulled, the agent's when it starts."""
NEVER_EVICT = {
    # A busy agent is worth more than a node that could be spared: agents leave by themselves when they are idle.
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
SECRET_MODE = 0o440


def job_of(settings: KubernetesSettings, request: Request) -> dict[str, Any]:
    """The Job, without its namespace."""
    labels = {**settings.labels, **own_labels(request.name)}
    annotations = dict(settings.annotations)
    queue = {QUEUE: settings.queue} if settings.queue else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": request.name, "labels": labels | queue, "annotations": annotations},
        "spec": {
            "parallelism": 1,
            "completions": 1,
            # The Job ends with its pod, however that ends: whether another agent is wanted is for the fleet to say, and
            # a second pod would be another machine under the name of the first.
            "backoffLimit": 0,
            # Nor is there another one while the first still ends.
            "podReplacementPolicy": "Failed",
            # The Job itself then tells for good that its pod was taken away: the pod may be gone before anybody looks.
            "podFailurePolicy": {
                "rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
            },
            "ttlSecondsAfterFinished": settings.keep_finished_s,
            "template": {
                "metadata": {"labels": labels, "annotations": {**NEVER_EVICT, **annotations}},
                "spec": _pod(settings, request),
            },
        },
    }


def own_labels(name: str) -> dict[str, str]:
    """The labels by which an allocation is found."""
    return {
        "app.kubernetes.io/name": "windrow-agent",
        MANAGED_BY: FLEET,
        GROUP: name.rpartition("-")[0],
        ALLOCATION: name,
    }


def selector_of(prefix: str) -> str:
    """Selects the Jobs and pods of a group by the prefix of its allocations' names."""
    group = prefix.rstrip("-")
    return f"{MANAGED_BY}={FLEET}" + (f",{GROUP}={group}" if group else "")


def shown(settings: KubernetesSettings, request: Request) -> str:
    """What the cluster would be asked for a request, for people."""
    words = ["kubectl"]
    for option, value in (
        ("--kubeconfig", settings.kubeconfig),
        ("--context", settings.context),
        ("--namespace", settings.namespace),
    ):
        words += [option, value] if value else []
    manifest = yaml.safe_dump(job_of(settings, request), sort_keys=False, default_flow_style=False, width=120)
    return f"{' '.join([*words, 'create', '-f', '-'])} <<'END'\n{manifest}END"


def _pod(settings: KubernetesSettings, request: Request) -> dict[str, Any]:
    volumes, mounts = _volumes(settings, request)
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": settings.grace_s,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # Another process than the agent is the first one of the pod, and reaps what scripts have left.
        "shareProcessNamespace": True,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": settings.user,
            "runAsGroup": settings.user,
            # The files of secrets, and new volumes, belong to this group.
            "fsGroup": settings.user,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(settings, request, mounts)],
        "volumes": volumes,
    }
    if request.lifetime_s is not None:
        # Of the pod, not of the Job: that of the Job would go on while it waits for a machine.
        pod["activeDeadlineSeconds"] = math.ceil(request.lifetime_s) + START_MARGIN_S
    if settings.service_account:
        pod["serviceAccountName"] = settings.service_account
    if settings.priority_class:
        pod["priorityClassName"] = settings.priority_class
    if settings.node_selector:
        pod["nodeSelector"] = dict(settings.node_selector)
    if settings.tolerations:
        pod["tolerations"] = [dict(one) for one in settings.tolerations]
    if settings.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    return pod


def _container(settings: KubernetesSettings, request: Request, mounts: list[dict[str, Any]]) -> dict[str, Any]:
    resources = _resources(settings, request)
    environment = {**_home(request), **request.agent.environment}
    container: dict[str, Any] = {
        "name": "agent",
        "image": settings.image,
        "command": [_literal(word) for word in request.agent.arguments],
        "env": [{"name": name, "value": _literal(value)} for name, value in environment.items()],
        "resources": {"requests": resources, "limits": dict(resources)},
        "volumeMounts": mounts,
        # How an agent that failed had ended is in the state of its pod: nobody needs the right to read logs.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    if settings.image_pull_policy:
        container["imagePullPolicy"] = settings.image_pull_policy
    return container


def _resources(settings: KubernetesSettings, request: Request) -> dict[str, str]:
    shape = request.shape
    found = {"cpu": f"{shape.slots:g}"}
    if shape.memory_bytes:
        found["memory"] = str(shape.memory_bytes)
    if shape.gpus:
        found[settings.gpu_resource] = str(shape.gpus)
    return found


def _home(request: Request) -> dict[str, str]:
    """Where packages that agents fetch are kept: the user of a pod has no home of its own."""
    return {"HOME": _above(request)} if request.agent.folder else {}


def _above(request: Request) -> str:
    return str(PurePosixPath(request.agent.folder).parent)


def _volumes(settings: KubernetesSettings, request: Request) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []
    if request.agent.folder:
        limit = {"sizeLimit": str(settings.scratch_bytes)} if settings.scratch_bytes else {}
        volumes.append({"name": "scratch", "emptyDir": limit})
        mounts.append({"name": "scratch", "mountPath": _above(request)})
    for index, (name, folder) in enumerate(settings.secrets.items()):
        volumes.append({"name": f"secret-{index}", "secret": {"secretName": name, "defaultMode": SECRET_MODE}})
        mounts.append({"name": f"secret-{index}", "mountPath": folder, "readOnly": True})
    for index, (name, folder) in enumerate(settings.claims.items()):
        volumes.append({"name": f"claim-{index}", "persistentVolumeClaim": {"claimName": name}})
        mounts.append({"name": f"claim-{index}", "mountPath": folder})
    return volumes, mounts


def _literal(text: str) -> str:
    """A text in which Kubernetes replaces nothing: it would expand $(NAME)."""
    return text.replace("$", "$$")
