"""What a group of a fleet says of Kubernetes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping as Values
from types import MappingProxyType
from typing import NamedTuple

from windrow.common.quantities import bytes_in, seconds_in
from windrow.spec.reading.context import Context
from windrow.spec.reading.keys import as_mapping, check_keys, read_scalar, read_text_map, read_texts
from windrow.spec.reading.nodes import Mapping, Node, Scalar, Sequence, is_null, shown
from windrow.spec.settings.fields import Field

GRACE_S = 60
KEEP_FINISHED_S = 3600
TIMEOUT_S = 30
GPU_RESOURCE = "nvidia.com/gpu"
USER = 1000
"""That of the agent's image."""

_USER_MAX = 2**31 - 1
_FIELDS = {
    "image": Field("text"),
    "namespace": Field("text"),
    "image_pull_policy": Field("choice", choices=("Always", "IfNotPresent", "Never")),
    "image_pull_secrets": Field("texts"),
    "service_account": Field("text"),
    "priority_class": Field("text"),
    "queue": Field("text"),
    "node_selector": Field("map"),
    "tolerations": Field("node"),
    "labels": Field("map"),
    "annotations": Field("map"),
    "secrets": Field("map"),
    "claims": Field("map"),
    "scratch": Field("text"),
    "gpu_resource": Field("text"),
    "user": Field("int", 1, _USER_MAX),
    "grace": Field("text"),
    "keep_finished": Field("text"),
    "kubeconfig": Field("text"),
    "context": Field("text"),
    "timeout": Field("text"),
}
_TOLERATION = {
    "key": Field("text"),
    "operator": Field("choice", choices=("Exists", "Equal")),
    "value": Field("text"),
    "effect": Field("choice", choices=("NoSchedule", "PreferNoSchedule", "NoExecute")),
    "tolerationSeconds": Field("int", 0),
}
_LABEL = re.compile(r"([a-z0-9]([-a-z0-9]*[a-z0-9])?)?", re.ASCII)
_DOTTED = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_LABEL_MAX, _NAME_MAX = 63, 253


class KubernetesSettings(NamedTuple):
    """What the Job of an allocation holds besides the agent, its shape and its lifetime. "": as the cluster has it."""

    image: str
    namespace: str = ""
    """"": that of the credentials, else `default`."""
    image_pull_policy: str = ""
    image_pull_secrets: tuple[str, ...] = ()
    service_account: str = ""
    priority_class: str = ""
    queue: str = ""
    """A LocalQueue of Kueue, which then decides when the Job starts."""
    node_selector: Values[str, str] = MappingProxyType({})
    tolerations: tuple[Values[str, str | int], ...] = ()
    labels: Values[str, str] = MappingProxyType({})
    """Further labels of the Job and its pod."""
    annotations: Values[str, str] = MappingProxyType({})
    """Further annotations of the Job and its pod."""
    secrets: Values[str, str] = MappingProxyType({})
    """Secrets, by name, and the folders in which their keys are files."""
    claims: Values[str, str] = MappingProxyType({})
    """Claims of persistent volumes, by name, and the folders at which they are mounted."""
    scratch_bytes: int = 0
    """Most that the agent's own folder may hold; 0: no limit."""
    gpu_resource: str = GPU_RESOURCE
    user: int = USER
    grace_s: int = GRACE_S
    """Between the notice to an agent and its end."""
    keep_finished_s: int = KEEP_FINISHED_S
    """So long the cluster keeps a Job that has ended."""
    kubeconfig: str = ""
    """"": the credentials of the pod if this is one, else $KUBECONFIG, else ~/.kube/config."""
    context: str = ""
    timeout_s: int = TIMEOUT_S
    """Of each call of the API."""


def read(mapping: Mapping, key: str, context: Context) -> KubernetesSettings:
    """Read the keys below `kubernetes`. A relative `kubeconfig` starts at the folder of the file."""
    check_keys(mapping, _FIELDS, key, context)
    reader = _Reader(mapping, key, context)
    image = reader.text("image")
    if not image:
        context.problems.error(mapping, f"{key}.image", "is missing; name the image of the agents.")
    kubeconfig = reader.text("kubeconfig")
    user = read_scalar(mapping.entries.get("user"), _FIELDS["user"], f"{key}.user", context)
    return KubernetesSettings(
        image=image,
        namespace=reader.name("namespace", dotted=False),
        image_pull_policy=reader.text("image_pull_policy"),
        image_pull_secrets=tuple(
            read_texts(mapping.entries.get("image_pull_secrets"), f"{key}.image_pull_secrets", context)
        ),
        service_account=reader.name("service_account"),
        priority_class=reader.name("priority_class"),
        queue=reader.name("queue"),
        node_selector=reader.labels("node_selector"),
        tolerations=_tolerations(mapping.entries.get("tolerations"), f"{key}.tolerations", context),
        labels=reader.labels("labels"),
        annotations=read_text_map(mapping.entries.get("annotations"), f"{key}.annotations", context),
        secrets=reader.mounts("secrets"),
        claims=reader.mounts("claims"),
        scratch_bytes=reader.size("scratch"),
        gpu_resource=reader.text("gpu_resource") or GPU_RESOURCE,
        user=int(user) if user is not None else USER,
        grace_s=reader.seconds("grace", GRACE_S),
        keep_finished_s=reader.seconds("keep_finished", KEEP_FINISHED_S),
        kubeconfig=os.path.join(context.source.folder, os.path.expanduser(kubeconfig)) if kubeconfig else "",  # noqa: PTH111, PTH118  as other settings, a text
        context=reader.text("context"),
        timeout_s=reader.seconds("timeout", TIMEOUT_S),
    )


class _Reader:
    """Reads keys of one mapping."""

    def __init__(self, mapping: Mapping, key: str, context: Context) -> None:
        self._entries, self._key, self._context = mapping.entries, key, context

    def text(self, name: str) -> str:
        """A text or one of several words; "" if it is absent or wrong."""
        found = read_scalar(self._entries.get(name), _FIELDS[name], f"{self._key}.{name}", self._context)
        return "" if found is None else str(found)

    def name(self, name: str, *, dotted: bool = True) -> str:
        """The name of an object of Kubernetes; "" if it is absent or wrong."""
        found = self.text(name)
        pattern, most = (_DOTTED, _NAME_MAX) if dotted else (_LABEL, _LABEL_MAX)
        if found and (not pattern.fullmatch(found) or len(found) > most):
            self._error(name, f'is "{found}"; it must be a name of Kubernetes: lower-case letters, digits and -.')
            return ""
        return found

    def labels(self, name: str) -> dict[str, str]:
        """Labels with values that Kubernetes takes."""
        found = read_text_map(self._entries.get(name), f"{self._key}.{name}", self._context)
        for label, value in found.items():
            if not _LABEL_VALUE.fullmatch(value):
                allowed = "at most 63 letters, digits, -, _ and ., with a letter or digit at both ends"
                self._error(name, f'has the value "{value}" for {label}; it must be {allowed}.')
        return found

    def mounts(self, name: str) -> dict[str, str]:
        """Names of objects, and the folders at which they are mounted."""
        found = read_text_map(self._entries.get(name), f"{self._key}.{name}", self._context)
        for source, folder in found.items():
            if not _DOTTED.fullmatch(source):
                self._error(name, f'has "{source}", which is no name of an object of Kubernetes.')
            if not folder.startswith("/") or folder == "/" or ":" in folder:
                self._error(
                    name, f'mounts {source} at "{folder}"; it must be an absolute path of the pod, without ":".'
                )
        return found

    def seconds(self, name: str, default: int) -> int:
        """A time in seconds."""
        node = self._entries.get(name)
        if node is None or is_null(node):
            return default
        seconds = seconds_in(node.text) if isinstance(node, Scalar) else None
        if not seconds:
            self._error(name, f"is {shown(node)}; it must be a time such as 60s, 5min or 1h.")
            return default
        return seconds

    def size(self, name: str) -> int:
        """A size in bytes; 0 if it is absent or wrong."""
        node = self._entries.get(name)
        if node is None or is_null(node):
            return 0
        found = bytes_in(node.text) if isinstance(node, Scalar) else None
        if not found:
            self._error(name, f"is {shown(node)}; it must be a size such as 50GB or 20GiB.")
        return found or 0

    def _error(self, name: str, said: str) -> None:
        self._context.problems.error(self._entries[name], f"{self._key}.{name}", said)


def _tolerations(node: Node | None, key: str, context: Context) -> tuple[dict[str, str | int], ...]:
    """A list of mappings with Kubernetes' own keys."""
    if node is None or is_null(node):
        return ()
    if not isinstance(node, Sequence):
        context.problems.error(node, key, f"is {shown(node)}; it must be a list, as in the specification of a pod.")
        return ()
    found = []
    for index, item in enumerate(node.items):
        mapping = as_mapping(item, f"{key}[{index}]", context)
        if mapping is None:
            continue
        check_keys(mapping, _TOLERATION, f"{key}[{index}]", context)
        one: dict[str, str | int] = {}
        for name, field in _TOLERATION.items():
            value = read_scalar(mapping.entries.get(name), field, f"{key}[{index}].{name}", context)
            if value is not None:
                one[name] = value if isinstance(value, str) else int(value)
        found.append(one)
    return tuple(found)
