"""Stores under test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from store_harness import StoreHarness
from stores import all_harnesses

HARNESSES = all_harnesses()


@pytest.fixture(params=HARNESSES)
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreHarness]:
    """Every store there is."""
    made = HARNESSES[request.param](tmp_path / "state")
    yield made
    made.close()
