"""Clients that leave in the middle of a call that streams, and those that hardly begin one."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from besieged import Besieged, FuzzNode, GatedJob, besieged, check_state
from fuzzing import Prey
from protocol import RPCS, Rpc
from raw_http2 import RawConnection
from windrow_master.identity.needs import NEEDS, Who

CLIENTS = 100
"""Of each call."""
WAYS = ("cancel", "kill", "half_close")
STREAMING = [rpc for rpc in RPCS if rpc.streams]
SLOW = 200
"""Connections that never come to a request."""


@pytest.fixture(scope="module")
def prey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Besieged, Prey]]:
    with besieged(tmp_path_factory.mktemp("master")) as made:
        prey = Prey(made)
        prey.set_up()
        with made.client() as client:
            client.submit(GatedJob(made.master.data / "standing", 2, "nowhere").file, name="standing")
        yield made, prey
        job = GatedJob(made.master.data / "after", 2, "local")
        job.gate.open(2)
        with made.client() as client:
            client.submit(job.file, name="after")
            client.wait("after", timeout_s=120)
            assert list(client.results("after")) == job.expected
        made.end_agents()
    assert made.master.process.returncode == 0
    assert not made.faults()
    check_state(made)


def _of_standing(request: Any) -> bytes:
    for name, value in (("job_id", "standing"), ("follow", True)):
        if hasattr(request, name):
            setattr(request, name, value)
    return bytes(request.SerializeToString())


@pytest.mark.parametrize("rpc", STREAMING, ids=lambda rpc: rpc.name)
def test_a_master_outlives_clients_that_leave(prey: tuple[Besieged, Prey], rpc: Rpc) -> None:
    made, known = prey
    # Of a job that has ended, and of one that goes on.
    messages = [known.corpus.filled(rpc).SerializeToString(), _of_standing(known.corpus.filled(rpc))]
    metadata = [("authorization", f"Bearer {made.master.token('client-token')}")]
    with made.master.channel() as channel:
        node = FuzzNode(made, channel)
        for number in range(CLIENTS):
            if NEEDS[rpc.path].who == Who.NODE:
                node.keep()
                metadata = node.metadata
            # A third of them takes no more than a few bytes of the answer.
            connection = RawConnection(made.master, window=16 if number % 3 == 0 else 65_535)
            ends = not rpc.takes_stream or number % 5 == 0
            connection.call(rpc.path, metadata, messages[number % 2], ends=ends)
            if number % 4:
                with contextlib.suppress(OSError):
                    connection.begins()
            with contextlib.suppress(OSError):
                getattr(connection, WAYS[number % 3])()
            connection.kill()
    with made.client() as client:
        assert client.master().incarnation
    assert made.lives() and not made.faults()


def test_half_open_connections_hold_nobody_up(prey: tuple[Besieged, Prey]) -> None:
    """Some have not begun TLS, some send a byte now and then, some have begun a call and go no further."""
    made, _ = prey
    before = made.memory()
    plain = [socket.create_connection(("127.0.0.1", int(made.master.port))) for _ in range(SLOW)]
    begun = [RawConnection(made.master) for _ in range(SLOW // 2)]
    token = [("authorization", f"Bearer {made.master.token('client-token')}")]
    calls = [RawConnection(made.master) for _ in range(SLOW // 2)]
    try:
        for connection in calls:
            connection.call("/windrow.rpc.v1.JobService/SubmitJob", token, b"\n\xff\xff\xff\x7f", ends=False)
        job = GatedJob(made.master.data / "meanwhile", 8, "prey")
        with made.client() as client:
            client.submit(job.file, name="meanwhile")
            for item in range(len(job.names)):
                job.gate.open(item + 1)
                for one in plain:
                    with contextlib.suppress(OSError):
                        one.send(b"\x16")
                for connection in begun:
                    with contextlib.suppress(OSError):
                        connection.send(b"\0")
            client.wait("meanwhile", timeout_s=120)
            assert list(client.results("meanwhile")) == job.expected
        assert made.memory() < before + (200 << 20)
    finally:
        for one in plain:
            one.close()
        for connection in (*begun, *calls):
            connection.kill()
