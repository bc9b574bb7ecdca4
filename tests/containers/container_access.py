"""Ways to a cluster's master that a client does not take, and a look at what they leave behind."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from container_cluster import Cluster, wait_until
from container_engine import docker
from windrow.rpc import errors

CALL_S = 90.0
"""For one call."""


@functools.cache
def token_of(cluster: Cluster, name: str) -> str:
    """`join-token` or `client-token`, as the master's own user reads it."""
    return docker("exec", cluster.master, "cat", f"/windrow/{name}").strip()


def in_setup(cluster: Cluster, program: str) -> str:
    """What a Python program says that runs as the service `setup` does, over all its volumes."""
    return cluster.compose(
        "run", "--rm", "-T", "--entrypoint", "/opt/windrow/bin/python", "setup", "-c", program
    ).stdout


def log_of(container: str) -> str:
    """All that it has said."""
    done = subprocess.run(
        ["docker", "logs", container], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True, timeout=240
    )
    return done.stdout.decode(errors="replace")


def stand_of(cluster: Cluster) -> tuple[list[str], list[str], list[str]]:
    """Jobs, nodes, and files of the data folder."""
    with cluster.client() as client:
        jobs = [job.job_id for job in client.list_jobs()]
        nodes = [node.node_id for node in client.list_nodes()]
    return jobs, nodes, sorted(map(str, cluster.data.rglob("*")))


@contextmanager
def nothing_changes(cluster: Cluster, *logged: str) -> Iterator[None]:
    """What is tried meanwhile leaves no job, no node, no file; the master's log tells of it in these words."""
    before, master = stand_of(cluster), cluster.master
    told = len(log_of(master))
    yield
    wait_until(lambda: all(words in log_of(master)[told:] for words in logged), f"the log tells: {logged}", 10)
    assert stand_of(cluster) == before


@contextmanager
def channel_of(cluster: Cluster, token: str = "") -> Iterator[grpc.Channel]:
    """A connection to the master that is like a client's, but for the token."""
    access = cluster.access
    credentials = grpc.ssl_channel_credentials(access.ca.encode())
    if token:
        credentials = grpc.composite_channel_credentials(credentials, grpc.access_token_call_credentials(token))
    with grpc.secure_channel(access.address, credentials, options=ANY_SIZE) as channel:
        yield channel


ANY_SIZE = [("grpc.max_send_message_length", -1)]
"""A client of ours would not send what is too large."""


def failure_of(call: Any) -> errors.Failure:
    """Why a call was refused."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return errors.read_failure(caught.value)
