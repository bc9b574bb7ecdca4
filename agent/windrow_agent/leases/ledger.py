"""The ledger: every lease that this agent holds, from its arrival until the master has acknowledged its completion.

States::

    (arrives) ──► FETCHING ──fetched──► QUEUED; ──fail──► FINISHED; ──release──► (gone)

    (arrives) ──► QUEUED ──give──► GIVEN ──start──► STARTED ──finish──► FINISHED ──acknowledge──► (gone)
                    ▲  │              │  │              │                    ▲
                    │  └─release──►   │  └───finish─────┼────────────────────┤
                    │   (gone)        │                 │                    │
                    ├──fail───────────┼─────────────────┼────────────────────┤
                    └────take_back────┘                 ├──lose, charged─────┘
                    └──────lose, not charged────────────┘

FETCHING: the data of the mini-batch is being fetched from remote storage; no worker may have it before.
GIVEN: sent into the channel of one worker, and can be taken back until the worker reads it.
STARTED: the worker is known to have read it (its page names it, or it was no longer in the channel).
A lease that finishes without having been seen as started goes from GIVEN to FINISHED.

Invariants:

1. A lease id is in exactly one state. While it is held, the same id arriving again is ignored; the master never reuses
   an id.
2. GIVEN and STARTED leases belong to exactly one worker; FETCHING, QUEUED and FINISHED ones to none.
3. A lease is finished at most once; only by the worker to which it belongs, or when that worker is lost.
4. Losing a worker charges at most one lease; its others return to the front of their queue, in their old order.
5. A revoked lease is never given again: it leaves as soon as no worker has it, or it finishes.
6. While an exclusive lease is with a worker, no other lease is with any worker.
7. `count` and `digest` are those of all leases in the ledger, FINISHED ones included.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Set

from windrow_agent.leases.lease import Lease, LeaseState, Loss, Revocation

_WAITING = (LeaseState.FETCHING, LeaseState.QUEUED)


class Ledger:
    """All leases of one agent.

    Methods that a mistake of the master or a worker can reach do not raise; their result says that they did nothing.
    """

    def __init__(self) -> None:
        self._leases: dict[int, Lease] = {}
        self._queues: dict[int, deque[Lease]] = {}
        self._exclusive: deque[Lease] = deque()
        self._fetching: dict[int, Lease] = {}
        self._with_worker: dict[int, dict[int, Lease]] = {}
        self._out = 0
        self._exclusive_out = False
        self.digest = 0

    # What it holds.

    @property
    def count(self) -> int:
        """Leases held or finished-unacknowledged."""
        return len(self._leases)

    @property
    def unfinished(self) -> int:
        """Leases that are not FINISHED."""
        return self._out + sum(map(len, self._queues.values())) + len(self._exclusive) + len(self._fetching)

    @property
    def out(self) -> int:
        """Leases with workers."""
        return self._out

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._leases.values())

    def get(self, lease_id: int) -> Lease | None:
        """The lease of this id, if it is held."""
        return self._leases.get(lease_id)

    def queued(self, step_id: int) -> int:
        """Leases of a step that wait for a worker, exclusive ones not counted."""
        queue = self._queues.get(step_id)
        return len(queue) if queue else 0

    def of_worker(self, worker: int) -> dict[int, Lease]:
        """The leases with one worker, oldest first. Read only."""
        return self._with_worker.get(worker, {})

    def steps_held(self) -> set[int]:
        """The steps of which there are unfinished leases. Goes through all of them: not for the hot path."""
        return {lease.step_id for lease in self if lease.state is not LeaseState.FINISHED}

    @property
    def exclusive_waiting(self) -> Lease | None:
        """The exclusive lease that is next, if any waits: nothing else may be given before it."""
        return self._exclusive[0] if self._exclusive else None

    @property
    def exclusive_out(self) -> bool:
        """Whether an exclusive lease is with a worker."""
        return self._exclusive_out

    # Edges.

    def receive(self, leases: Iterable[Lease], *, fetch: bool = False) -> list[Lease]:
        """Takes in leases; returns those that are new. `fetch`: their data has to be fetched first."""
        held = self._leases
        new: list[Lease] = []
        for lease in leases:
            if lease.lease_id in held:
                continue
            held[lease.lease_id] = lease
            self.digest ^= lease.lease_id
            new.append(lease)
            if fetch:
                lease.state = LeaseState.FETCHING
                self._fetching[lease.lease_id] = lease
            elif lease.exclusive:
                self._exclusive.append(lease)
            else:
                self._queue(lease.step_id).append(lease)
        return new

    def fetched(self, lease_id: int, recipe: bytes) -> bool:
        """Takes the recipe for the worker, since the data of a FETCHING lease has arrived. False: the lease is no
        longer FETCHING.
        """
        lease = self._fetching.pop(lease_id, None)
        if lease is None:
            return False
        lease.state = LeaseState.QUEUED
        lease.recipe = recipe
        if lease.exclusive:
            self._exclusive.append(lease)
        else:
            self._queue(lease.step_id).append(lease)
        return True

    def give(self, step_id: int, worker: int, limit: int) -> list[Lease]:
        """Gives up to `limit` queued leases of a step to a worker, in order."""
        queue = self._queues.get(step_id)
        if not queue or self._exclusive or self._exclusive_out:
            return []
        given = self._given_to(worker)
        taken: list[Lease] = []
        for _ in range(min(limit, len(queue))):
            lease = queue.popleft()
            lease.state = LeaseState.GIVEN
            lease.worker = worker
            given[lease.lease_id] = lease
            taken.append(lease)
        self._out += len(taken)
        return taken

    def give_exclusive(self, worker: int) -> Lease | None:
        """Gives the waiting exclusive lease to a worker, if no worker has a lease."""
        if self._out or not self._exclusive:
            return None
        lease = self._exclusive.popleft()
        lease.state = LeaseState.GIVEN
        lease.worker = worker
        self._given_to(worker)[lease.lease_id] = lease
        self._out = 1
        self._exclusive_out = True
        return lease

    def take_back(self, worker: int, unread: Iterable[int]) -> list[int]:
        """Leases read back unread from a worker's channel return to the front of their queue.

        All others of the worker are STARTED now (it has read them). Returns the revoked ones, which are gone.
        """
        back = set(unread)
        released: list[int] = []
        requeue: list[Lease] = []
        for lease in list(self._with_worker.get(worker, {}).values()):
            if lease.lease_id not in back:
                lease.state = LeaseState.STARTED
                continue
            self._leave_worker(lease)
            if lease.revoked:
                self._drop(lease)
                released.append(lease.lease_id)
            else:
                requeue.append(lease)
        self._requeue(requeue)
        return released

    def withdraw(self, worker: int, leases: Iterable[Lease]) -> None:
        """Leases that did not fit into a worker's channel return to the front of their queue; nothing else changes."""
        back = list(leases)
        for lease in back:
            self._leave_worker(lease)
        self._requeue(back)

    def finish(self, worker: int, lease_id: int) -> Lease | None:
        """The worker's result for a lease has arrived. It is ignored (None) if the worker does not have the lease."""
        given = self._with_worker.get(worker)
        lease = given.pop(lease_id, None) if given is not None else None
        if lease is None:
            return None
        self._out -= 1
        if lease.exclusive:
            self._exclusive_out = False
        lease.worker = 0
        lease.state = LeaseState.FINISHED
        lease.recipe = b""
        return lease

    def fail(self, lease_id: int) -> bool:
        """A FETCHING or QUEUED lease cannot run on this node: it is FINISHED, and the caller makes its completion.

        False: it is neither.
        """
        lease = self._leases.get(lease_id)
        if lease is None or lease.state not in _WAITING:
            return False
        self._unqueue([lease])
        lease.state = LeaseState.FINISHED
        return True

    def lose(self, worker: int, started: int) -> Loss:
        """A worker is dead, and all its frames have been read. `started`: the lease that it had started, 0 for none.

        That one is charged unless it was revoked: it is FINISHED, and the caller makes its completion. The rest is
        queued again.
        """
        loss = Loss()
        for lease in list(self._with_worker.pop(worker, {}).values()):
            self._out -= 1
            lease.worker = 0
            if lease.exclusive:
                self._exclusive_out = False
            if lease.revoked:
                self._drop(lease)
                loss.released.append(lease.lease_id)
            elif lease.lease_id == started:
                lease.state = LeaseState.FINISHED
                loss.charged = lease
            else:
                loss.requeued.append(lease)
        self._requeue(loss.requeued)
        return loss

    def acknowledge(self, lease_ids: Iterable[int]) -> list[int]:
        """The master has acknowledged these leases: drops the FINISHED ones among them, and returns their ids."""
        gone: list[int] = []
        for lease_id in lease_ids:
            lease = self._leases.get(lease_id)
            if lease is not None and lease.state is LeaseState.FINISHED:
                self._drop(lease)
                gone.append(lease_id)
        return gone

    def revoke(self, lease_ids: Iterable[int]) -> Revocation:
        """Gives leases up. Queued ones go at once; those with workers are marked, to be taken back or killed.

        A FINISHED one stays: its completion is on its way, and the master answers it.
        """
        revocation = Revocation()
        queued: list[int] = []
        for lease_id in lease_ids:
            lease = self._leases.get(lease_id)
            if lease is None:
                # Not held: release it again, in case the first release was lost.
                revocation.released.append(lease_id)
            elif lease.state in _WAITING:
                queued.append(lease_id)
            elif lease.state is not LeaseState.FINISHED:
                lease.revoked = True
                revocation.take_back.add(lease.worker)
        revocation.released += self.release(queued)
        return revocation

    def release(self, lease_ids: Iterable[int]) -> list[int]:
        """Drops the FETCHING and QUEUED ones among these leases; returns their ids."""
        wanted = [lease for i in lease_ids if (lease := self._leases.get(i)) and lease.state in _WAITING]
        self._unqueue(wanted)
        for lease in wanted:
            self._drop(lease)
        return [lease.lease_id for lease in wanted]

    def release_last(self, step_id: int, count: int, kept: Set[int] = frozenset()) -> list[int]:
        """Drops up to `count` FETCHING and QUEUED leases of a step, other than the `kept` ones, the last ones first;
        returns their ids.
        """
        waiting = [
            *(lease for lease in reversed(self._fetching.values()) if lease.step_id == step_id),
            *reversed(self._queues.get(step_id, ())),
            *(lease for lease in reversed(self._exclusive) if lease.step_id == step_id),
        ]
        ids = [lease.lease_id for lease in waiting if lease.lease_id not in kept]
        return self.release(ids[:count])

    def release_queued(self, step_id: int | None = None) -> list[int]:
        """Drops all FETCHING and QUEUED leases of one step, or of all steps; returns their ids."""
        return self.release(
            [
                lease.lease_id
                for lease in self
                if lease.state in _WAITING and (step_id is None or lease.step_id == step_id)
            ]
        )

    # Inside.

    def _queue(self, step_id: int) -> deque[Lease]:
        queue = self._queues.get(step_id)
        if queue is None:
            queue = self._queues[step_id] = deque()
        return queue

    def _given_to(self, worker: int) -> dict[int, Lease]:
        given = self._with_worker.get(worker)
        if given is None:
            given = self._with_worker[worker] = {}
        return given

    def _leave_worker(self, lease: Lease) -> None:
        del self._with_worker[lease.worker][lease.lease_id]
        self._out -= 1
        lease.worker = 0
        if lease.exclusive:
            self._exclusive_out = False

    def _requeue(self, leases: list[Lease]) -> None:
        for lease in reversed(leases):
            lease.state = LeaseState.QUEUED
            lease.worker = 0
            if lease.exclusive:
                self._exclusive.appendleft(lease)
            else:
                self._queue(lease.step_id).appendleft(lease)

    def _unqueue(self, leases: list[Lease]) -> None:
        for lease in leases:
            self._fetching.pop(lease.lease_id, None)
        leases = [lease for lease in leases if lease.state is LeaseState.QUEUED]
        gone = {lease.lease_id for lease in leases}
        for step_id in {lease.step_id for lease in leases if not lease.exclusive}:
            self._queues[step_id] = deque(x for x in self._queues[step_id] if x.lease_id not in gone)
        if any(lease.exclusive for lease in leases):
            self._exclusive = deque(x for x in self._exclusive if x.lease_id not in gone)

    def _drop(self, lease: Lease) -> None:
        del self._leases[lease.lease_id]
        self.digest ^= lease.lease_id

    def check(self) -> None:
        """Asserts the invariants: for tests."""
        placed: dict[int, int] = {}
        for step_id, queue in self._queues.items():
            for lease in queue:
                assert lease.state is LeaseState.QUEUED and lease.worker == 0 and not lease.exclusive
                assert lease.step_id == step_id and not lease.revoked
                placed[lease.lease_id] = placed.get(lease.lease_id, 0) + 1
        for lease in self._exclusive:
            assert lease.state is LeaseState.QUEUED and lease.exclusive and not lease.revoked
            placed[lease.lease_id] = placed.get(lease.lease_id, 0) + 1
        for lease in self._fetching.values():
            assert lease.state is LeaseState.FETCHING and lease.worker == 0 and not lease.revoked
            placed[lease.lease_id] = placed.get(lease.lease_id, 0) + 1
        out = 0
        for worker, given in self._with_worker.items():
            for lease in given.values():
                assert lease.worker == worker and lease.state in (LeaseState.GIVEN, LeaseState.STARTED)
                placed[lease.lease_id] = placed.get(lease.lease_id, 0) + 1
                out += 1
                if lease.exclusive:
                    assert self._exclusive_out and self._out == 1
        assert out == self._out
        digest = 0
        for lease in self:
            digest ^= lease.lease_id
            if lease.state is LeaseState.FINISHED:
                assert lease.worker == 0
                placed[lease.lease_id] = placed.get(lease.lease_id, 0) + 1
        assert digest == self.digest
        assert placed == dict.fromkeys(self._leases, 1)
