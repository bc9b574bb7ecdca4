"""Agents from Kubernetes: each allocation is a Job with one pod, which runs one agent.

`settings` reads the keys of a group, `manifest` makes the Job, `api` speaks to the cluster, `states` says what Jobs and
pods mean for an allocation, and `kubernetes_provider` keeps the contract of providers.
"""

from __future__ import annotations

from windrow.fleet.provider import Kind
from windrow.fleet.providers.kubernetes.kubernetes_provider import KubernetesProvider
from windrow.fleet.providers.kubernetes.manifest import shown
from windrow.fleet.providers.kubernetes.settings import read

KIND = Kind(read=read, make=KubernetesProvider, show=shown)
