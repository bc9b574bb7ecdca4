"""Fixtures of the job file's tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from spec_workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A folder with all that the smallest job needs."""
    return Workspace(tmp_path)
