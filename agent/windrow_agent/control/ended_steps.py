"""Steps that have ended on this node: their files are removed, the master is notified, and logs stay until it has them.

Invariants:

1. The master hears that a step has ended only after its files are removed, so that the next step finds the disk free.
   It also hears if they cannot be removed: a job must not wait for that.
2. The master hears nothing of a step that another one has replaced on this node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from windrow.common.journal import say
from windrow.rpc.v1 import agent_service_pb2 as rpc

from windrow_agent.node.disks import sync_places
from windrow_agent.outgoing.queue import OutgoingQueue
from windrow_agent.steps.step import Step

_BADLY_ENDED_KEPT = 1000
"""The master asks again about a step only until it has stored the answer."""


class EndedSteps:
    """`run_aside` runs a coroutine as a task. `leave_outputs` is called on another thread, when nothing of the step
    writes any more. `ended`: steps whose logs the master may not have in full."""

    def __init__(
        self,
        outgoing: OutgoingQueue,
        run_aside: Callable[[Awaitable[None]], None],
        leave_outputs: Callable[[Step], None] = lambda step: None,
    ) -> None:
        self.ended: list[Step] = []
        self._outgoing = outgoing
        self._run_aside = run_aside
        self._leave_outputs = leave_outputs
        self._dropping: dict[int, Step] = {}
        self._badly_ended: dict[int, rpc.EndedStep] = {}

    def add(self, step: Step) -> None:
        """Takes an ended step whose last worker is gone and whose outputs are saved."""
        for log in step.logs:
            log.file.end()
        self.ended.append(step)
        if not step.replaced:
            self._dropping[step.step_id] = step
        self._run_aside(self._drop(step))

    def ask(self, step_id: int, generation: int) -> None:
        """Answers the master's question about a generation of a step without workers on this node: at once, or when its
        files are removed.
        """
        if (step := self._dropping.get(step_id)) is not None:
            step.asked_generation = generation
            return
        ended = rpc.EndedStep(step_id=step_id)
        if (badly := self._badly_ended.get(step_id)) is not None:
            ended.CopyFrom(badly)
        ended.asked_generation = generation
        self._outgoing.end(ended)

    def replace(self, step_id: int) -> None:
        """Discards the recorded end of a step that is offered again."""
        self._badly_ended.pop(step_id, None)
        if (step := self._dropping.pop(step_id, None)) is not None:
            step.replaced = True

    def kept(self) -> list[Step]:
        """Ended steps of which something is left on this node."""
        return [*dict.fromkeys([*self.ended, *self._dropping.values()])]

    def forget(self, step_id: int) -> None:
        """Forgets a step that the master's state does not have: neither its end nor its logs are sent."""
        for step in self.kept():
            if step.step_id == step_id:
                step.foreign = True
        self.replace(step_id)

    async def _drop(self, step: Step) -> None:
        if step.spec.synced_paths and not step.replaced:
            try:
                # What its workers have written outside of run().
                await asyncio.to_thread(sync_places, step.spec.synced_paths)
            except OSError as error:
                step.unsaved = f"What its scripts wrote outside of run() cannot be brought to disk: {error}"
                say(logging.ERROR, step.unsaved, step=step.step_id)
        try:
            await asyncio.to_thread(self._leave_outputs, step)
            await asyncio.to_thread(step.drop_work)
        except Exception as error:
            say(logging.ERROR, "files of an ended step could not be removed", step=step.step_id, why=repr(error))
        if step.replaced:
            return
        del self._dropping[step.step_id]
        ended = step.as_ended()
        if step.unsaved or step.shutdown_failures:
            while len(self._badly_ended) >= _BADLY_ENDED_KEPT:
                del self._badly_ended[next(iter(self._badly_ended))]
            self._badly_ended[step.step_id] = ended
        if step.asked_generation is not None:
            self._outgoing.end(ended)
