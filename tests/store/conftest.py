"""Stores under test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from store_groups import StoreHarness, disk_harness, memory_harness


@pytest.fixture(params=["disk", "memory"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreHarness]:
    """Every store there is: the conformance suite runs over each."""
    made = disk_harness(tmp_path / "state") if request.param == "disk" else memory_harness()
    yield made
    made.close()
