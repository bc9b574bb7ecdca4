"""Fixtures of the tests of logs and reports."""

from __future__ import annotations

import pytest
from reported_job import ReportedJob


@pytest.fixture(scope="package")
def reported(tmp_path_factory: pytest.TempPathFactory) -> ReportedJob:
    """The job after its run: completed, with failures that its thresholds allow."""
    job = ReportedJob(tmp_path_factory.mktemp("reported"))
    code, text = job.run()
    assert code == 0, text
    return job
