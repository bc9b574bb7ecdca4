"""What waits to go up the Work stream: completions, capacities, released leases, failures of workers, ended steps.

Completions wait in the outbox until the master has acknowledged them. So do failures of workers, which have numbers, so
that the master counts none twice. Everything else is either in the hello of the next stream, or asked for again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice

from windrow.rpc.v1 import agent_service_pb2 as rpc

from windrow_agent.outgoing.claimed_faults import ClaimedFaults
from windrow_agent.outgoing.files_first import FilesFirst
from windrow_agent.outgoing.metrics_first import MetricsFirst
from windrow_agent.outgoing.outbox import Outbox

_FAILURES_KEPT = 1000
_FAILURES_A_MESSAGE = 10


class OutgoingQueue:
    """The rest of the agent adds to it; the session takes messages out. It calls `wake` when something is added."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.metrics_first = MetricsFirst()
        self.files_first = FilesFirst()
        self.claimed_faults = ClaimedFaults()
        self.draining = False
        self.wake: Callable[[], None] = lambda: None
        self._capacities: dict[int, rpc.StepCapacity] = {}
        self._released: list[int] = []
        self._cut_short: list[rpc.CutShort] = []
        self._failures: deque[rpc.WorkerFailure] = deque()
        """Those that are not acknowledged, by number."""
        self._failures_made = 0
        """The number of the last one."""
        self._failures_sent = 0
        """The number of the last one that the current stream has."""
        self._ended: list[rpc.EndedStep] = []
        self._send_draining = False

    def capacity(self, step_id: int, leases_max: int, workers: int, *, given_up: bool = False) -> None:
        """Replaces what waits for the step. `given_up`: this node starts no more workers for it."""
        self._capacities[step_id] = rpc.StepCapacity(
            step_id=step_id, leases_max=leases_max, workers=workers, given_up=given_up
        )
        self.wake()

    def release(self, lease_ids: Iterable[int], cut_short: rpc.CutShort | None = None) -> None:
        """Gives leases back. `cut_short`: what a killed worker had spent on one of them; the others were not begun."""
        before = len(self._released)
        self._released += lease_ids
        if cut_short is not None:
            self._cut_short.append(cut_short)
        if len(self._released) > before:
            self.wake()

    def fail(self, failure: rpc.WorkerFailure) -> None:
        """A worker could not be made ready. At most 1,000 of these are kept while the master is away."""
        if len(self._failures) < _FAILURES_KEPT:
            self._failures_made += 1
            numbered = rpc.WorkerFailure(number=self._failures_made)
            numbered.MergeFrom(failure)
            self._failures.append(numbered)
        self.wake()

    def acknowledge_failures(self, number: int) -> None:
        """The master has all failures up to this number: drops them."""
        while self._failures and self._failures[0].number <= number:
            self._failures.popleft()

    def end(self, ended: rpc.EndedStep) -> None:
        """A step has ended on this node."""
        self._ended.append(ended)
        self.wake()

    def complete(self, lease_id: int, completion: bytes) -> None:
        """Adds an encoded completion."""
        self.outbox.add(lease_id, completion)
        self.wake()

    def complete_all(self, completions: Iterable[tuple[int, bytes]]) -> None:
        """Adds encoded completions, each with the id of its lease."""
        for lease_id, completion in completions:
            self.outbox.add(lease_id, completion)
        self.wake()

    def forget(self, step_id: int) -> None:
        """Drops everything that waits for a step, except completions."""
        self._capacities.pop(step_id, None)
        self._failures = deque(failure for failure in self._failures if failure.step_id != step_id)
        self._ended = [ended for ended in self._ended if ended.step_id != step_id]

    def drain(self) -> None:
        """The node is leaving."""
        self.draining = self._send_draining = True
        self.wake()

    def begin_stream(self) -> None:
        """A new stream begins. Its hello lists what is held, so earlier releases are covered; completions go again."""
        self._released.clear()
        self._cut_short.clear()
        self._capacities.clear()
        self._ended.clear()  # the master asks again
        self._failures_sent = 0
        self._send_draining = self.draining
        self.outbox.rewind()

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return self.completions_only and not self.outbox.has_unsent

    @property
    def completions_only(self) -> bool:
        """Whether nothing waits but completions."""
        return not (self._capacities or self._released or self._unsent_failures or self._ended or self._send_draining)

    @property
    def _unsent_failures(self) -> bool:
        return bool(self._failures) and self._failures[-1].number > self._failures_sent

    def take(self, limit: int) -> bytes:
        """The next message, encoded, of about `limit` bytes at most; empty if nothing waits."""
        parts: list[bytes] = []
        # The master handles completions first, since they free capacity; so they come first in a message.
        if self.outbox.has_unsent:
            parts.append(self.outbox.take(limit))
        if not self.completions_only:
            unsent = (failure for failure in self._failures if failure.number > self._failures_sent)
            failures = [*islice(unsent, _FAILURES_A_MESSAGE)]
            message = rpc.WorkRequest(
                capacities=self._capacities.values(),
                released_lease_ids=self._released,
                cut_short=self._cut_short,
                worker_failures=failures,
                draining=self._send_draining,
                ended_steps=self._ended,
            )
            self._capacities.clear()
            self._released.clear()
            self._cut_short.clear()
            self._ended.clear()
            self._send_draining = False
            if failures:
                self._failures_sent = failures[-1].number
            parts.append(message.SerializeToString())
        return b"".join(parts)
