"""A served master with a fleet whose agents are processes of this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The cluster that operators' commands make, and what waits for it.
sys.path.append(str(Path(__file__).parents[1] / "integration"))

from fleet_of_processes import FleetOfProcesses


@pytest.fixture
def site(tmp_path: Path) -> Iterator[FleetOfProcesses]:
    """A master that serves; the test starts the fleet's program."""
    made = FleetOfProcesses(tmp_path)
    try:
        made.start_master()
        yield made
    finally:
        made.end()
