"""Workspaces that leave no process behind, and masters that answer by script."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import psutil
import pytest
from client_workspace import Workspace
from scripted_service import Script
from windrow.rpc.v1 import artifact_service_pb2_grpc, job_service_pb2_grpc


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


@pytest.fixture
def script() -> Script:
    """An empty script."""
    return Script()


@pytest.fixture
def address(script: Script, tmp_path: Path) -> Iterator[str]:
    """Where the script is served."""
    server = grpc.server(ThreadPoolExecutor(4))
    job_service_pb2_grpc.add_JobServiceServicer_to_server(script, server)
    artifact_service_pb2_grpc.add_ArtifactServiceServicer_to_server(script, server)
    address = f"unix:{tmp_path}/s"
    server.add_insecure_port(address)
    server.start()
    yield address
    server.stop(0).wait()
