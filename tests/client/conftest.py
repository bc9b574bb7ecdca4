"""Workspaces that leave no process behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from client_workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    """An empty workspace; whatever still runs for it at the end is killed."""
    workspace = Workspace(tmp_path)
    yield workspace
    for process in workspace.processes():
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
