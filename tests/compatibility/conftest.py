"""Jobs of users, and environments of theirs."""

from __future__ import annotations

from pathlib import Path

import pytest
from compatibility_job import CompatibilityJob
from foreign_environments import Environments


@pytest.fixture
def job(tmp_path: Path) -> CompatibilityJob:
    """An empty folder for a job."""
    return CompatibilityJob(tmp_path)


@pytest.fixture(scope="session")
def environments(pytestconfig: pytest.Config) -> Environments:
    """Virtual environments of the user's, kept from one test run to the next."""
    return Environments(Path(pytestconfig.cache.mkdir("foreign-environments")))
