"""Unacknowledged completions: nothing is lost, whatever the order of sends, answers, breaks and spills."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import work_pb2 as work
from windrow_agent.outgoing.outbox import Outbox
from windrow_agent.outgoing.queue import OutgoingQueue


def encoded(lease_id: int, size: int = 10) -> bytes:
    return work.Completion(lease_id=lease_id, rows=bytes([lease_id % 251]) * size).SerializeToString()


def decoded(message: bytes) -> list[int]:
    completions = rpc.WorkRequest.FromString(message).completions
    for completion in completions:
        assert set(completion.rows) <= {completion.lease_id % 251}
    return [completion.lease_id for completion in completions]


class OutboxMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.outbox = Outbox(Path(self.folder.name), memory_max=500, held_max=3000)
        self.kept: dict[int, int] = {}
        self.unsent: list[int] = []
        self.next = 1

    def teardown(self) -> None:
        self.outbox.close()
        self.folder.cleanup()

    @rule(size=st.integers(0, 400))
    def add(self, size: int) -> None:
        data = encoded(self.next, size)
        self.outbox.add(self.next, data)
        self.outbox.add(self.next, b"a second result of the same lease")
        self.kept[self.next] = len(data)
        self.unsent.append(self.next)
        self.next += 1

    @rule(limit=st.integers(1, 2000))
    def take(self, limit: int) -> None:
        message = self.outbox.take(limit)
        got = decoded(message)
        assert got == self.unsent[: len(got)]
        assert len(message) <= limit or len(got) == 1
        assert got or not self.unsent
        del self.unsent[: len(got)]

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        some = data.draw(st.lists(st.sampled_from(sorted(self.kept)), max_size=5)) if self.kept else []
        self.outbox.acknowledge([*some, 999_999])
        for lease_id in set(some):
            del self.kept[lease_id]
        self.unsent = [i for i in self.unsent if i in self.kept]

    @rule()
    def new_stream(self) -> None:
        self.outbox.rewind()
        self.unsent = sorted(self.kept)

    @invariant()
    def counts(self) -> None:
        assert len(self.outbox) == len(self.kept)
        assert self.outbox.held == sum(self.kept.values())
        assert self.outbox.held - self.outbox.spilled <= 500
        assert self.outbox.full == (self.outbox.held >= 3000)


OutboxMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestOutbox = OutboxMachine.TestCase


def test_a_full_disk_keeps_rows_in_memory_and_stops_new_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outbox = Outbox(tmp_path, memory_max=150, held_max=10**9)

    def no_space(fd: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", no_space)
    outbox.add(1, encoded(1, 90))
    assert not outbox.full
    outbox.add(2, encoded(2, 90))
    assert outbox.full
    assert decoded(outbox.take(10_000)) == [1, 2]
    outbox.acknowledge([1])
    assert not outbox.full
    outbox.close()


def test_rows_that_cannot_be_read_again_are_given_back_as_the_nodes_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each new stream would break over them, for ever."""
    outbox = Outbox(tmp_path, memory_max=150, held_max=10**9)
    for lease_id in (1, 2, 3):
        outbox.add(lease_id, encoded(lease_id, 90))

    def broken(fd: int, length: int, offset: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", broken)
    told = rpc.WorkRequest.FromString(outbox.take(10_000)).completions
    assert [(c.lease_id, c.cause) for c in told] == [
        (1, work.CAUSE_UNSPECIFIED),
        (2, work.CAUSE_NODE_FAULT),
        (3, work.CAUSE_NODE_FAULT),
    ]
    assert "Input/output error" in told[1].message
    outbox.close()


def test_staged_rows_count_until_they_are_acknowledged(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, memory_max=100, held_max=1000)
    outbox.reserve(1, 2000)
    assert outbox.full
    outbox.add(1, encoded(1))
    outbox.acknowledge([1])
    assert (outbox.full, outbox.held) == (False, 0)


def test_a_message_is_one_work_request(tmp_path: Path) -> None:
    outgoing = OutgoingQueue(Outbox(tmp_path, memory_max=10**6, held_max=10**9))
    outgoing.complete(5, encoded(5, 2000))
    outgoing.capacity(1, 3, 2)
    outgoing.capacity(1, 4, 2)
    outgoing.release([8, 9])
    outgoing.drain()
    message = rpc.WorkRequest.FromString(outgoing.take(1 << 20))
    assert [c.lease_id for c in message.completions] == [5]
    assert [(c.step_id, c.leases_max, c.workers) for c in message.capacities] == [(1, 4, 2)]
    assert (list(message.released_lease_ids), message.draining) == ([8, 9], True)
    assert outgoing.empty
    outgoing.begin_stream()
    again = rpc.WorkRequest.FromString(outgoing.take(1 << 20))
    assert [c.lease_id for c in again.completions] == [5] and again.draining
    assert not again.released_lease_ids, "the hello says what is held; a release of before means nothing any more"


def test_failures_of_workers_are_sent_on_each_stream_until_they_are_acknowledged(tmp_path: Path) -> None:
    outgoing = OutgoingQueue(Outbox(tmp_path, memory_max=10**6, held_max=10**9))

    def numbers(message: bytes) -> list[int]:
        return [failure.number for failure in rpc.WorkRequest.FromString(message).worker_failures]

    for at in range(12):
        outgoing.fail(rpc.WorkerFailure(step_id=at % 2, process_number=at))
    assert numbers(outgoing.take(1 << 20)) == list(range(1, 11))
    assert numbers(outgoing.take(1 << 20)) == [11, 12]
    assert outgoing.empty and outgoing.completions_only
    outgoing.acknowledge_failures(9)
    outgoing.begin_stream()
    assert numbers(outgoing.take(1 << 20)) == [10, 11, 12]
    outgoing.forget(0)
    outgoing.begin_stream()
    assert numbers(outgoing.take(1 << 20)) == [10, 12], "the master's state does not have step 0"
    outgoing.acknowledge_failures(12)
    outgoing.begin_stream()
    assert outgoing.empty
    outgoing.fail(rpc.WorkerFailure(step_id=1))
    assert numbers(outgoing.take(1 << 20)) == [13]
