"""The provider of Slurm keeps the contract of providers, on a real Slurm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from slurm_cluster import CPUS, NODES, SlurmCluster
from windrow.fleet import provider_kit
from windrow.fleet.provider import Shape
from windrow.fleet.providers.slurm import SlurmProvider
from windrow.fleet.providers.slurm.settings import SlurmSettings


@pytest.fixture
def engine(cluster: SlurmCluster, tmp_path: Path) -> provider_kit.Engine:
    # One processor of each node is taken: an allocation of all four waits.
    cluster.sbatch("sleep 3600", f"--nodes={len(NODES)}", "--ntasks-per-node=1")
    settings = SlurmSettings(log_folder=str(tmp_path / "logs"), extra_args=("--mem=100M",))
    return provider_kit.Engine(
        make=lambda prefix: SlurmProvider(settings, prefix), shape=Shape(1), waiting=Shape(CPUS), wait_s=120
    )


@pytest.mark.parametrize("check", provider_kit.CHECKS, ids=lambda check: check.__name__)
def test_slurm_keeps_the_contract_of_providers(
    engine: provider_kit.Engine, check: Callable[[provider_kit.Engine], None]
) -> None:
    check(engine)
