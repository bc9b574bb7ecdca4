"""What waits to go up the Work stream, besides completions: capacities, released leases, failures of workers,
steps that have ended, draining.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from windrow.rpc.v1 import agent_service_pb2 as rpc

from windrow_agent.outgoing.outbox import Outbox

_FAILURES_KEPT = 1000


class OutgoingQueue:
    """Gathers; the stream takes. ``wake`` is called when there is something to take."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.draining = False
        self.wake: Callable[[], None] = lambda: None
        self._capacities: dict[int, rpc.StepCapacity] = {}
        self._released: list[int] = []
        self._failures: list[rpc.WorkerFailure] = []
        self._ended: list[rpc.EndedStep] = []
        self._tell_draining = False

    def capacity(self, step_id: int, leases_max: int, workers: int, *, given_up: bool = False) -> None:
        """The newest number counts. ``given_up``: no worker is started for the step any more."""
        self._capacities[step_id] = rpc.StepCapacity(
            step_id=step_id, leases_max=leases_max, workers=workers, given_up=given_up
        )
        self.wake()

    def release(self, lease_ids: Iterable[int]) -> None:
        """Leases given back unstarted."""
        before = len(self._released)
        self._released += lease_ids
        if len(self._released) > before:
            self.wake()

    def fail(self, failure: rpc.WorkerFailure) -> None:
        """A worker that could not be made ready. Kept while the master is away, within reason."""
        if len(self._failures) < _FAILURES_KEPT:
            self._failures.append(failure)
        self.wake()

    def end(self, ended: rpc.EndedStep) -> None:
        """A step has ended here."""
        self._ended.append(ended)
        self.wake()

    def complete(self, lease_id: int, completion: bytes) -> None:
        """A finished attempt."""
        self.outbox.add(lease_id, completion)
        self.wake()

    def forget(self, step_id: int) -> None:
        """Nothing that waits is to be told of a step."""
        self._capacities.pop(step_id, None)
        self._failures = [failure for failure in self._failures if failure.step_id != step_id]
        self._ended = [ended for ended in self._ended if ended.step_id != step_id]

    def drain(self) -> None:
        """The node is leaving."""
        self.draining = self._tell_draining = True
        self.wake()

    def begin_stream(self) -> None:
        """A new stream: its hello says what is held, so releases of before are said already; completions go again."""
        self._released.clear()
        self._capacities.clear()
        self._ended.clear()  # asked for again
        self._tell_draining = self.draining
        self.outbox.rewind()

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return self.completions_only and not self.outbox.has_unsent

    @property
    def completions_only(self) -> bool:
        """Whether nothing waits but completions."""
        return not (self._capacities or self._released or self._failures or self._ended or self._tell_draining)

    def take(self, limit: int) -> bytes:
        """The next message, encoded; about ``limit`` bytes at most. Empty when nothing waits."""
        parts: list[bytes] = []
        # Completions come first in a message, and a master handles them first: what is finished frees capacity.
        if self.outbox.has_unsent:
            parts.append(self.outbox.take(limit))
        if not self.completions_only:
            message = rpc.WorkRequest(
                capacities=self._capacities.values(),
                released_lease_ids=self._released,
                worker_failures=self._failures[:10],
                draining=self._tell_draining,
                ended_steps=self._ended,
            )
            self._capacities.clear()
            self._released.clear()
            del self._failures[:10]
            self._ended.clear()
            self._tell_draining = False
            parts.append(message.SerializeToString())
        return b"".join(parts)
