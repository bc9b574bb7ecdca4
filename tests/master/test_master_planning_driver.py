"""The planner's process: what happens to a step when it cannot run."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from windrow_master.core.commands import FailStep
from windrow_master.core.ids import StepId
from windrow_master.shell.planning_driver import PlanningDriver


@contextmanager
def no_descriptors_left() -> Iterator[None]:
    """This process can open nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_planner_that_cannot_be_started_fails_its_step() -> None:
    """It must not be a step that waits for ever for its first mini-batch."""

    async def run() -> Any:
        told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def submit(command: Any) -> bool:
            told.set_result(command)
            return True

        driver = PlanningDriver(StepId(1), {}, lambda: None, submit)
        with no_descriptors_left():
            driver.start()
            command = await asyncio.wait_for(told, 30)
        await driver.stop()
        return command

    command = asyncio.run(run())
    assert isinstance(command, FailStep)
    assert "Too many open files" in command.message
