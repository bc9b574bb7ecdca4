"""A connection that goes to another master, and one that is closed while threads still call."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest
from windrow.rpc.connection import Connection
from windrow.rpc.v1 import job_service_pb2 as pb
from windrow.rpc.v1 import job_service_pb2_grpc as services

CALLED_AFTER_CLOSE = """
from windrow.rpc.connection import Connection
from windrow.rpc.v1 import job_service_pb2 as pb, job_service_pb2_grpc as services
connection = Connection("127.0.0.1:1", patience_s=1)
before = services.JobServiceStub(connection.channel)
connection.close()
for call in (lambda: before.GetMaster(pb.GetMasterRequest()), lambda: services.JobServiceStub(connection.channel)):
    try:
        call()
    except ValueError as error:
        print(error)
"""


class Named(services.JobServiceServicer):
    """A master that tells its name as its version."""

    def __init__(self, name: str) -> None:
        self._name = name

    def GetMaster(self, request: object, context: object) -> pb.GetMasterResponse:
        return pb.GetMasterResponse(windrow_version=self._name)


@contextmanager
def serving(name: str) -> Iterator[str]:
    """Such a master; gives its address."""
    server = grpc.server(ThreadPoolExecutor(4))
    services.add_JobServiceServicer_to_server(Named(name), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def test_a_call_after_the_end_of_its_client_is_an_error_and_no_crash() -> None:
    # In a process of its own: gRPC's answer to it was a segmentation fault.
    command = [sys.executable, "-c", CALLED_AFTER_CLOSE]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout) == (0, "Cannot invoke RPC on closed channel!\n" * 2), done.stderr


def test_stubs_outlive_a_move_while_threads_call() -> None:
    with serving("first") as first, serving("second") as second:
        connection = Connection(first, patience_s=15)
        stub = services.JobServiceStub(connection.channel)
        moved, told = threading.Event(), []

        def ask() -> None:
            while True:
                was_moved = moved.is_set()
                answer = connection.call(stub.GetMaster, pb.GetMasterRequest())
                if was_moved:
                    told.append(answer.windrow_version)
                    return

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert connection.call(stub.GetMaster, pb.GetMasterRequest()).windrow_version == "first"
        connection.move(second)
        moved.set()
        for thread in threads:
            thread.join(30)
        assert told == ["second"] * 4
        connection.close()
        connection.move(first)
        with pytest.raises(ValueError, match="closed channel"):
            stub.GetMaster(pb.GetMasterRequest())
