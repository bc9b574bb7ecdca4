"""Pushes the workers' logs to the master, in increments and within a budget, so that they do not delay work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

import grpc
from windrow.common.journal import Condition
from windrow.rpc import errors
from windrow.rpc.v1 import agent_service_pb2 as rpc

from windrow_agent.control.controller import Controller
from windrow_agent.link import Link, LinkLost
from windrow_agent.outgoing.metrics_first import MetricsFirst
from windrow_agent.steps.step import Step

INTERVAL_S = 1.0
_PAUSE_S = 0.02
"""Between two pushes that results wait for."""
_MESSAGE_BYTES = 1 << 20
_FILE_BYTES = 256 << 10
_BUDGET_BYTES = 8 << 20
"""Most bytes per interval."""
_PASSING = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.NOT_FOUND,
}
"""Failures that say nothing about the logs. After others, results no longer wait for metrics."""


class LogPushes:
    """`link` waits for a connection over which the node is admitted.

    There is one push at a time: what is sent next depends on what the last push has delivered. Results that wait for
    their metrics hasten it.
    """

    def __init__(
        self, controller: Controller, metrics_first: MetricsFirst, link: Callable[[], asyncio.Future[Link]]
    ) -> None:
        self._controller = controller
        self._metrics_first = metrics_first
        self._wanted = asyncio.Event()
        metrics_first.push = self._wanted.set
        self._link = link
        self._turn = asyncio.Lock()
        self._not_pushed = Condition(
            logging.WARNING,
            "logs of workers do not reach the master",
            "logs of workers reach the master again",
            from_times=3,
        )

    async def run(self) -> None:
        """Never returns."""
        while True:
            await self._controller.at_work.wait()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), INTERVAL_S)
            self._wanted.clear()
            try:
                await self.push()
            except grpc.aio.AioRpcError as error:
                failure = errors.read_failure(error)
                self._not_pushed.goes_on(why=f"{failure.code.name} {failure.message}")
                if failure.code not in _PASSING:
                    self._metrics_first.give_up()
            except (OSError, LinkLost) as error:
                self._not_pushed.goes_on(why=str(error))
            else:
                self._not_pushed.is_over()
                if not self._steps():
                    self._controller.at_work.clear()
                if len(self._metrics_first):
                    self._wanted.set()
                    await asyncio.sleep(_PAUSE_S)

    async def push(self) -> None:
        """Pushes what is there, within the budget; removes the folders of ended steps whose logs are complete.

        Raises AioRpcError, LinkLost, OSError; the same bytes are then pushed again later.
        """
        async with self._turn:
            await self._push_within(_BUDGET_BYTES)
            await self._drop_settled()

    async def _push_within(self, budget: int) -> None:
        while budget > 0:
            chunks: list[rpc.LogChunk] = []
            sent = []
            size = 0
            for step in self._steps():
                for log in sorted(step.logs, key=lambda log: log.kind != rpc.LOG_KIND_METRICS):
                    content = log.file.increment(min(_FILE_BYTES, _MESSAGE_BYTES - size))
                    if content:
                        chunks.append(
                            rpc.LogChunk(
                                step_id=step.step_id,
                                kind=log.kind,
                                process_number=log.process_number,
                                offset=log.file.length,
                                content=content,
                            )
                        )
                        sent.append((log.file, len(content)))
                        size += len(content)
                    if size >= _MESSAGE_BYTES:
                        break
            if not chunks:
                break
            link = await self._link()
            async with link.guard():
                await link.agent.PushLogs(rpc.PushLogsRequest(chunks=chunks), metadata=link.metadata, timeout=30)
            for file, length in sent:
                file.sent += length
            self._metrics_first.look()
            budget -= size

    async def push_all(self) -> None:
        """Pushes until the master has everything; for when workers no longer write. Raises as `push` does."""
        await self.push()
        while not self.settled:
            await self.push()

    @property
    def settled(self) -> bool:
        """Whether the master has all logs of workers that have ended."""
        return not any(log.file.increment(1) for step in self._steps() for log in step.logs)

    def _steps(self) -> list[Step]:
        steps = [*self._controller.steps.values(), *self._controller.ended_steps.ended]
        return [step for step in steps if not step.foreign]

    async def _drop_settled(self) -> None:
        for step in list(self._controller.ended_steps.ended):
            if step.foreign or all(log.file.pushed for log in step.logs):
                try:
                    await self._controller.drop(step)
                except Exception:
                    # What a script has left there must not end the agent.
                    logging.getLogger("windrow.agent").exception("the folder of an ended step could not be removed")
        for step in self._controller.steps.values():
            step.logs[:] = [log for log in step.logs if not log.file.settled]
