"""The provider of Kubernetes keeps the contract of providers, on the tests' cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kube_cluster import KubeCluster
from windrow.fleet import provider_kit
from windrow.fleet.provider import Shape


@pytest.mark.parametrize("check", provider_kit.CHECKS, ids=lambda check: check.__name__)
def test_kubernetes_keeps_the_contract_of_providers(
    cluster: KubeCluster, check: Callable[[provider_kit.Engine], None]
) -> None:
    engine = provider_kit.Engine(make=cluster.new_provider, shape=Shape(1), waiting=Shape(5), wait_s=120)
    check(engine)
