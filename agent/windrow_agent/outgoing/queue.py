"""What waits to go up the Work stream: completions, capacities, released leases, failures of workers, ended steps.

Completions wait in the outbox until the master has acknowledged them. A failure of a worker waits until the message
that carries it is written: if the stream breaks before that, the next one carries it. Everything else is either in the
hello of the next stream, or asked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from windrow.rpc.v1 import agent_service_pb2 as rpc

from windrow_agent.outgoing.outbox import Outbox

_FAILURES_KEPT = 1000
_FAILURES_A_MESSAGE = 10


class OutgoingQueue:
    """The rest of the agent adds to it; the session takes messages out. It calls `wake` when something is added."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.draining = False
        self.wake: Callable[[], None] = lambda: None
        self._capacities: dict[int, rpc.StepCapacity] = {}
        self._released: list[int] = []
        self._failures: list[rpc.WorkerFailure] = []
        self._unwritten_failures: list[rpc.WorkerFailure] = []
        """Those in the message that is being written."""
        self._ended: list[rpc.EndedStep] = []
        self._send_draining = False

    def capacity(self, step_id: int, leases_max: int, workers: int, *, given_up: bool = False) -> None:
        """Replaces what waits for the step. `given_up`: this node starts no more workers for it."""
        self._capacities[step_id] = rpc.StepCapacity(
            step_id=step_id, leases_max=leases_max, workers=workers, given_up=given_up
        )
        self.wake()

    def release(self, lease_ids: Iterable[int]) -> None:
        """Gives leases back that have not been started."""
        before = len(self._released)
        self._released += lease_ids
        if len(self._released) > before:
            self.wake()

    def fail(self, failure: rpc.WorkerFailure) -> None:
        """A worker could not be made ready. At most 1,000 of these are kept while the master is away."""
        if len(self._failures) < _FAILURES_KEPT:
            self._failures.append(failure)
        self.wake()

    def end(self, ended: rpc.EndedStep) -> None:
        """A step has ended on this node."""
        self._ended.append(ended)
        self.wake()

    def complete(self, lease_id: int, completion: bytes) -> None:
        """Adds an encoded completion."""
        self.outbox.add(lease_id, completion)
        self.wake()

    def forget(self, step_id: int) -> None:
        """Drops everything that waits for a step, except completions."""
        self._capacities.pop(step_id, None)
        self._failures = [failure for failure in self._failures if failure.step_id != step_id]
        self._unwritten_failures = [failure for failure in self._unwritten_failures if failure.step_id != step_id]
        self._ended = [ended for ended in self._ended if ended.step_id != step_id]

    def drain(self) -> None:
        """The node is leaving."""
        self.draining = self._send_draining = True
        self.wake()

    def begin_stream(self) -> None:
        """A new stream begins. Its hello lists what is held, so earlier releases are covered; completions go again."""
        self._released.clear()
        self._capacities.clear()
        self._ended.clear()  # the master asks again
        self._failures[:0] = self._unwritten_failures
        self._unwritten_failures = []
        self._send_draining = self.draining
        self.outbox.rewind()

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return self.completions_only and not self.outbox.has_unsent

    @property
    def completions_only(self) -> bool:
        """Whether nothing waits but completions."""
        return not (
            self._capacities
            or self._released
            or self._failures
            or self._unwritten_failures
            or self._ended
            or self._send_draining
        )

    def take(self, limit: int) -> bytes:
        """The next message, encoded, of about `limit` bytes at most; empty if nothing waits. The caller calls `written`
        when the stream has taken it.
        """
        parts: list[bytes] = []
        # The master handles completions first, since they free capacity; so they come first in a message.
        if self.outbox.has_unsent:
            parts.append(self.outbox.take(limit))
        if not self.completions_only:
            self._unwritten_failures += self._failures[:_FAILURES_A_MESSAGE]
            del self._failures[:_FAILURES_A_MESSAGE]
            message = rpc.WorkRequest(
                capacities=self._capacities.values(),
                released_lease_ids=self._released,
                worker_failures=self._unwritten_failures,
                draining=self._send_draining,
                ended_steps=self._ended,
            )
            self._capacities.clear()
            self._released.clear()
            self._ended.clear()
            self._send_draining = False
            parts.append(message.SerializeToString())
        return b"".join(parts)

    def written(self) -> None:
        """The stream has taken the last message."""
        self._unwritten_failures.clear()
