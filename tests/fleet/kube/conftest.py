"""For the tests of Kubernetes: a cluster of its own for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kube_cluster import KubeCluster, kube_cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KubeCluster]:
    """An API, and what runs its pods; one node with four processors."""
    with kube_cluster(tmp_path) as made:
        yield made
