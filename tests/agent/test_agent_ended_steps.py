"""The master hears that a step has ended on a node, whatever becomes of its files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from pathlib import Path

from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import work_pb2 as work
from windrow_agent.control import ended_steps
from windrow_agent.control.ended_steps import EndedSteps
from windrow_agent.environments.cache import Lock
from windrow_agent.environments.provider import Held
from windrow_agent.outgoing.outbox import Outbox
from windrow_agent.outgoing.queue import OutgoingQueue
from windrow_agent.steps.lineages import Lineage
from windrow_agent.steps.step import Step


def ended(folder: Path, steps: int, *, broken: bool = False, unsaved: str = "") -> list[rpc.EndedStep]:
    """What the master is told of steps that have ended, asked twice: before their files are removed, and after."""

    async def scenario() -> list[rpc.EndedStep]:
        outgoing = OutgoingQueue(Outbox(folder, memory_max=1 << 20, held_max=1 << 20))
        tasks: list[asyncio.Future[None]] = []

        def run_aside(coroutine: Awaitable[None]) -> None:
            tasks.append(asyncio.ensure_future(coroutine))

        all_steps = EndedSteps(outgoing, run_aside)
        for step_id in range(1, steps + 1):
            step = Step.open(work.StepSpec(step_id=step_id), folder, "node-1", 1, 0, Lineage())
            step.unsaved = unsaved
            if broken:
                # Its lock was closed behind our back: giving it back fails.
                lock = Lock(os.sysconf("SC_OPEN_MAX") + 1)
                step.environment = Held(folder, folder, [folder], "3.11", [], lock)
            all_steps.add(step)
            all_steps.ask(step_id, 1)
        await asyncio.gather(*tasks)
        for step_id in range(1, steps + 1):
            all_steps.ask(step_id, 1)
        return list(rpc.WorkRequest.FromString(outgoing.take(1 << 20)).ended_steps)

    return asyncio.run(scenario())


def test_a_step_whose_files_cannot_be_removed_has_ended_too(tmp_path: Path) -> None:
    assert [one.step_id for one in ended(tmp_path, 1, broken=True)] == [1, 1]


def test_how_steps_ended_is_kept_for_the_last_thousand(tmp_path: Path) -> None:
    kept = ended_steps._BADLY_ENDED_KEPT
    told = ended(tmp_path, kept + 2, unsaved="the disk of the store is full")
    assert all(one.unsaved for one in told[: kept + 2])
    assert sum(not one.unsaved for one in told[kept + 2 :]) == 2
