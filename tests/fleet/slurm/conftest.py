"""For the tests of Slurm: a cluster of its own for each, which starts within a second."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from slurm_cluster import SlurmCluster, slurm_cluster
from slurm_packages import SlurmMissing


def _started(monkeypatch: pytest.MonkeyPatch, *, has_accounting: bool) -> Iterator[SlurmCluster]:
    try:
        with slurm_cluster(has_accounting=has_accounting) as cluster:
            for name, value in cluster.environment.items():
                monkeypatch.setenv(name, value)
            yield cluster
    except SlurmMissing as error:
        if os.environ.get("WINDROW_REQUIRE_SLURM") == "1":
            pytest.fail(f"WINDROW_REQUIRE_SLURM=1, and the tests of Slurm cannot run: {error}")
        pytest.skip(f"the tests of Slurm cannot run: {error}")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """Slurm without accounting; commands of this process find it."""
    yield from _started(monkeypatch, has_accounting=False)


@pytest.fixture
def accounting_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """Slurm with accounting; commands of this process find it."""
    yield from _started(monkeypatch, has_accounting=True)
