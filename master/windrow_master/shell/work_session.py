"""The downward half of one Work stream: what waits to be sent, merged into as few messages as possible."""

from __future__ import annotations

import asyncio
from collections import deque

from windrow.rpc.v1 import agent_service_pb2, work_pb2

RESPONSE_BYTES_MAX = 1 << 20
"""Soft bound for one message; a single larger recipe passes it."""


class WorkSession:
    """Collects responses for one stream. `next_response` is called by one task only."""

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self._responses: deque[agent_service_pb2.WorkResponse] = deque()
        self._filled = asyncio.Event()
        self._closed = False

    @property
    def _last(self) -> agent_service_pb2.WorkResponse:
        """The message that still takes more."""
        if not self._responses:
            self._responses.append(agent_service_pb2.WorkResponse())
        self._filled.set()
        return self._responses[-1]

    def send_step(self, step: work_pb2.StepSpec) -> None:
        """Offer a step."""
        self._last.steps.append(step)

    def send_assignments(
        self, step_id: int, generation: int, assignments: list[work_pb2.Assignment], size: int
    ) -> None:
        """Hand leases out. `size`: bytes of their recipes; the caller keeps one call within RESPONSE_BYTES_MAX."""
        last = self._last
        if last.assignments and last.ByteSize() + size > RESPONSE_BYTES_MAX:
            last = agent_service_pb2.WorkResponse()
            self._responses.append(last)
        last.assignments.add(step_id=step_id, generation=generation, assignments=assignments)

    def send_acknowledgements(self, verdicts: dict[int, list[int]]) -> None:
        """Answer completions."""
        last = self._last
        for verdict, lease_ids in verdicts.items():
            last.acknowledgements.add(verdict=verdict, lease_ids=lease_ids)

    def revoke(self, lease_ids: list[int]) -> None:
        """Take leases away."""
        self._last.revoked_lease_ids.extend(lease_ids)

    def recall(self, step_id: int, count: int) -> None:
        """Ask for leases of a step that have not started."""
        self._last.recalls.add(step_id=step_id, count=count)

    def end_step(self, step_id: int) -> None:
        """Tell that a step has ended."""
        self._last.ended_step_ids.append(step_id)

    def drain(self) -> None:
        """Ask the node to leave."""
        self._last.drain = True

    def close(self) -> None:
        """End the stream after what waits is sent."""
        self._closed = True
        self._filled.set()

    async def next_response(self) -> agent_service_pb2.WorkResponse | None:
        """The next message; None when the stream is to end."""
        while not self._responses:
            if self._closed:
                return None
            self._filled.clear()
            await self._filled.wait()
        return self._responses.popleft()
