"""The ledger of leases, hunted by a Hypothesis state machine that plays master, workers and deaths."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from windrow_agent.leases.lease import Lease, LeaseState
from windrow_agent.leases.ledger import Ledger

STEPS = st.sampled_from([1, 2])
WORKERS = st.sampled_from([1, 2, 3])


def lease(lease_id: int, step_id: int = 1, *, exclusive: bool = False) -> Lease:
    return Lease(lease_id, step_id, 1, lease_id, 0, 1, b"", 1, exclusive)


class LedgerMachine(RuleBasedStateMachine):
    """The model: what the channels hold unread, what the master believes, what has been told to it."""

    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.next_id = 1
        self.channels: dict[int, list[int]] = {1: [], 2: [], 3: []}
        self.taken: dict[int, list[int]] = {1: [], 2: [], 3: []}
        self.outcomes: dict[int, str] = {}

    def _end(self, lease_id: int, outcome: str) -> None:
        assert lease_id not in self.outcomes, f"{lease_id} ended twice: {self.outcomes[lease_id]}, {outcome}"
        self.outcomes[lease_id] = outcome

    @rule(target=ids, step=STEPS, exclusive=st.booleans() | st.just(False), fetch=st.booleans())
    def receive(self, step: int, exclusive: bool, fetch: bool) -> int:
        lease_id = self.next_id * 0x9E3779B97F4A7C15 % 2**64
        self.next_id += 1
        assert len(self.ledger.receive([lease(lease_id, step, exclusive=exclusive)], fetch=fetch)) == 1
        return lease_id

    @rule(lease_id=ids)
    def fetched(self, lease_id: int) -> None:
        held = self.ledger.get(lease_id)
        waits = held is not None and held.state is LeaseState.FETCHING
        assert self.ledger.fetched(lease_id, b"local") == waits
        if held is not None and waits:
            assert held.state is LeaseState.QUEUED and held.recipe == b"local"

    @rule(lease_id=ids)
    def receive_again(self, lease_id: int) -> None:
        if self.ledger.get(lease_id) is not None:
            assert self.ledger.receive([lease(lease_id)]) == []

    @rule(step=STEPS, worker=WORKERS, limit=st.integers(1, 5))
    def give(self, step: int, worker: int, limit: int) -> None:
        given = self.ledger.give(step, worker, limit)
        assert not any(x.revoked or x.state is LeaseState.FETCHING for x in given)
        self.channels[worker] += [x.lease_id for x in given]

    @rule(step=STEPS, worker=WORKERS, limit=st.integers(1, 5), fit=st.integers(0, 4))
    def give_to_a_full_channel(self, step: int, worker: int, limit: int, fit: int) -> None:
        given = self.ledger.give(step, worker, limit)
        self.channels[worker] += [x.lease_id for x in given[:fit]]
        self.ledger.withdraw(worker, given[fit:])
        if given[fit:] and self.ledger.exclusive_waiting is None:
            assert self.ledger.queued(step) >= len(given[fit:])

    @rule(worker=WORKERS)
    def give_exclusive(self, worker: int) -> None:
        given = self.ledger.give_exclusive(worker)
        if given is not None:
            assert not any(self.channels.values()) and not any(self.taken.values())
            self.channels[worker].append(given.lease_id)

    @rule(worker=WORKERS)
    def worker_reads(self, worker: int) -> None:
        if self.channels[worker] and not self.taken[worker]:
            self.taken[worker].append(self.channels[worker].pop(0))

    @rule(worker=WORKERS)
    def worker_finishes(self, worker: int) -> None:
        if self.taken[worker]:
            done = self.ledger.finish(worker, self.taken[worker].pop(0))
            assert done is not None and done.state is LeaseState.FINISHED
            assert self.ledger.finish(worker, done.lease_id) is None

    @rule(worker=WORKERS, lease_id=ids)
    def somebody_else_claims_a_result(self, worker: int, lease_id: int) -> None:
        if lease_id not in self.channels[worker] + self.taken[worker]:
            assert self.ledger.finish(worker, lease_id) is None

    @rule(worker=WORKERS)
    def take_back(self, worker: int) -> None:
        unread, self.channels[worker] = self.channels[worker], []
        for lease_id in self.ledger.take_back(worker, unread):
            self._end(lease_id, "released")

    @rule(worker=WORKERS)
    def worker_dies(self, worker: int) -> None:
        unread, self.channels[worker] = self.channels[worker], []
        for lease_id in self.ledger.take_back(worker, unread):
            self._end(lease_id, "released")
        begun = self.taken[worker][0] if self.taken[worker] else 0
        self.taken[worker] = []
        loss = self.ledger.lose(worker, begun)
        assert loss.charged is None or loss.charged.lease_id == begun
        assert not loss.requeued or begun == 0
        for lease_id in loss.released:
            assert lease_id == begun
            self._end(lease_id, "released")
        assert not self.ledger.of_worker(worker)

    @rule(lease_id=ids)
    def fail_here(self, lease_id: int) -> None:
        held = self.ledger.get(lease_id)
        waits = held is not None and held.state in (LeaseState.FETCHING, LeaseState.QUEUED)
        assert self.ledger.fail(lease_id) == waits

    @rule(lease_id=ids)
    def acknowledge(self, lease_id: int) -> None:
        held = self.ledger.get(lease_id)
        finished = held is not None and held.state is LeaseState.FINISHED
        gone = self.ledger.acknowledge([lease_id])
        assert gone == ([lease_id] if finished else [])
        if finished:
            self._end(lease_id, "acknowledged")

    @rule(lease_id=ids)
    def revoke(self, lease_id: int) -> None:
        known = self.ledger.get(lease_id) is not None
        revocation = self.ledger.revoke([lease_id])
        if known:
            for released in revocation.released:
                self._end(released, "released")
        for worker in revocation.take_back:
            self.take_back(worker)

    @rule(step_id=st.sampled_from([1, 2]), count=st.integers(0, 4))
    def recall(self, step_id: int, count: int) -> None:
        waiting = (LeaseState.FETCHING, LeaseState.QUEUED)
        before = [lease.lease_id for lease in self.ledger if lease.step_id == step_id and lease.state in waiting]
        gone = self.ledger.release_last(step_id, count)
        assert len(gone) == min(count, len(before)) and set(gone) <= set(before)
        for released in gone:
            self._end(released, "released")

    @rule(lease_id=consumes(ids))
    def nothing_ended_comes_back(self, lease_id: int) -> None:
        assert (self.ledger.get(lease_id) is None) == (lease_id in self.outcomes)

    @rule()
    def drain(self) -> None:
        for lease_id in self.ledger.release_queued():
            self._end(lease_id, "released")

    @invariant()
    def holds(self) -> None:
        self.ledger.check()
        for worker in (1, 2, 3):
            assert set(self.ledger.of_worker(worker)) == set(self.channels[worker] + self.taken[worker])
        assert self.ledger.unfinished == sum(1 for x in self.ledger if x.state is not LeaseState.FINISHED)


LedgerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLedger = LedgerMachine.TestCase


def test_a_dead_workers_unread_leases_keep_their_place() -> None:
    """Order matters: what has waited longest is run first, whatever dies."""
    ledger = Ledger()
    ledger.receive(lease(i) for i in range(1, 7))
    ledger.give(1, 1, 4)
    ledger.take_back(1, [2, 3, 4])
    assert ledger.lose(1, 1).charged is not None
    assert [x.lease_id for x in ledger.give(1, 2, 9)] == [2, 3, 4, 5, 6]


def test_a_revoked_lease_is_never_charged() -> None:
    ledger = Ledger()
    ledger.receive([lease(1)])
    ledger.give(1, 1, 1)
    assert ledger.revoke([1]).take_back == {1}
    loss = ledger.lose(1, 1)
    assert (loss.charged, loss.released, ledger.count, ledger.digest) == (None, [1], 0, 0)
