"""The half of a Work stream that goes down to the agent: merges what waits into as few messages as possible."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from windrow.rpc.v1 import agent_service_pb2, work_pb2

RESPONSE_BYTES_MAX = 1 << 20
"""A soft limit for one message: a single larger recipe exceeds it."""
ANSWERS_WAITING_MAX = 100_000
"""Acknowledged leases that wait to be sent. While there are more, nothing is read from the node: one that does not
read its stream cannot fill the memory."""


class WorkSession:
    """Collects the responses of one stream. Only one task may call `next_response`."""

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self._responses: deque[agent_service_pb2.WorkResponse] = deque()
        self._filled = asyncio.Event()
        self._closed = False
        self._answers_waiting = self._answers_in_last = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    async def room(self) -> None:
        """Wait until the node has read enough of what was sent before."""
        await self._has_room.wait()

    @property
    def _last(self) -> agent_service_pb2.WorkResponse:
        """The last waiting message, which takes more parts; a new one if none waits."""
        if not self._responses:
            self._responses.append(agent_service_pb2.WorkResponse())
            self._answers_in_last = 0
        self._filled.set()
        return self._responses[-1]

    def send_step(self, step: work_pb2.StepSpec) -> None:
        """Offer a step to the node."""
        self._last.steps.append(step)

    def add_assignments(self, step_id: int, generation: int, size: int) -> work_pb2.StepAssignments:
        """Return the part of a message into which leases go that are handed out, all at once. `size`: bytes of their
        recipes, at most RESPONSE_BYTES_MAX except for one larger recipe.
        """
        last = self._last
        if last.assignments and last.ByteSize() + size > RESPONSE_BYTES_MAX:
            last = agent_service_pb2.WorkResponse()
            self._responses.append(last)
        return last.assignments.add(step_id=step_id, generation=generation)

    def send_acknowledgements(self, verdicts: dict[int, list[int]]) -> None:
        """Acknowledge completions. `verdicts`: lease ids by verdict."""
        for verdict, lease_ids in verdicts.items():
            last = self._last
            if self._answers_in_last > ANSWERS_WAITING_MAX:
                # All together, they may be more than a message takes.
                last = agent_service_pb2.WorkResponse()
                self._responses.append(last)
                self._answers_in_last = 0
            last.acknowledgements.add(verdict=verdict, lease_ids=lease_ids)
            self._answers_in_last += len(lease_ids)
            self._answers_waiting += len(lease_ids)
        if self._answers_waiting > ANSWERS_WAITING_MAX:
            self._has_room.clear()

    def acknowledge_worker_failures(self, number: int) -> None:
        """Acknowledge all failures of workers up to a number."""
        self._last.worker_failures_acknowledged = number

    def share(self, shares: Sequence[tuple[int, int]], reclaim_after_s: float) -> None:
        """Tell the node how many workers each step should have there: pairs of a step and a number. `reclaim_after_s`:
        how long workers that have to yield may go on with what they run.
        """
        message = self._last.shares
        message.Clear()
        for step_id, workers in shares:
            message.steps.add(step_id=step_id, workers=workers)
        message.reclaim_after.FromMilliseconds(int(reclaim_after_s * 1000))

    def revoke(self, lease_ids: list[int]) -> None:
        """Revoke leases: the node stops them."""
        self._last.revoked_lease_ids.extend(lease_ids)

    def recall(self, step_id: int, count: int, kept: Sequence[int]) -> None:
        """Ask the node to give back this many leases of a step that have not started, other than the `kept` ones."""
        self._last.recalls.add(step_id=step_id, count=count, kept_lease_ids=kept)

    def end_step(self, step_id: int, generation: int) -> None:
        """Tell the node that a generation of a step has ended; all of them if 0."""
        self._last.ended_step_ids.append(step_id)
        self._last.ended_step_generations.append(generation)

    def drain(self) -> None:
        """Ask the node to drain."""
        self._last.drain = True

    def close(self) -> None:
        """End the stream once all waiting messages are sent."""
        self._closed = True
        self._filled.set()

    async def next_response(self) -> agent_service_pb2.WorkResponse | None:
        """Wait for the next message; None if the stream ends."""
        while not self._responses:
            if self._closed:
                return None
            self._filled.clear()
            await self._filled.wait()
        response = self._responses.popleft()
        self._answers_waiting -= sum(len(answer.lease_ids) for answer in response.acknowledgements)
        if self._answers_waiting <= ANSWERS_WAITING_MAX:
            self._has_room.set()
        return response
