"""The planner's process: what happens to a step when it cannot run."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from own_children import own_children
from windrow_master.core.commands import FailStep, PlanGroup
from windrow_master.core.ids import StepId
from windrow_master.core.records import PLAN_RECORD
from windrow_master.shell.planner_processes import PlannerProcesses
from windrow_master.shell.planning_driver import STARTS_MAX, PlanningDriver
from windrow_master.shell.project_turns import NICE_STEP, ProjectTurns


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


def planners() -> list[psutil.Process]:
    """Those of this process that run."""
    return own_children(lambda words: "windrow_master.planning" in words)


KILLS = STARTS_MAX + 3
FILES = 20_000
"""More than so many planners have handed over, with all that is still on its way from them, when they are killed."""


def request_over(data: Path, step: Path) -> dict[str, Any]:
    """What a planner is asked: a mini-batch for each file of a folder."""
    return {
        "step_folder": str(step),
        "inputs": [{"name": "data", "type": "uri_folder", "path": str(data), "mode": "ro_mount"}],
        "mini_batch_size": 1,
        "mini_batch_rows": None,
        "file_format": None,
        "exact_row_index": False,
        "mixed_types": False,
        "partition_keys": [],
        "datastores": {},
        "roots": None,
        "rows_folder": None,
        "earlier": None,
        "slow": [],
    }


def run_with_kills(tmp_path: Path) -> tuple[list[Any], int]:
    """What a driver submits whose first planners are each killed at their first group, the last one of a plan or a
    failure; and how many were killed."""
    data, step = tmp_path / "data", tmp_path / "step"
    data.mkdir()
    step.mkdir()
    for number in range(FILES):
        (data / f"{number:05}").touch()
    request = request_over(data, step)
    submitted: list[Any] = []
    killed: set[int] = set()

    async def run() -> None:
        stored: list[bytes | None] = [None]

        async def submit(command: Any) -> bool:
            submitted.append(command)
            if isinstance(command, FailStep):
                return True
            for planner in planners():
                if len(killed) < KILLS:
                    planner.kill()
                    killed.add(planner.pid)
            assert command.start == stored[0]
            stored[0] = command.end
            return True

        driver = PlanningDriver(StepId(1), request, lambda: stored[0], submit, ProjectTurns(1, 1).of(lambda: ""))
        driver.start()
        async with asyncio.timeout(60):
            await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
        await driver.stop()

    asyncio.run(run())
    return submitted, len(killed)


def test_planners_that_are_killed_again_and_again_get_to_the_end(tmp_path: Path) -> None:
    """As long as each gets further."""
    submitted, killed = run_with_kills(tmp_path)
    assert killed == KILLS
    assert all(isinstance(one, PlanGroup) for one in submitted)
    assert sum(len(one.records) for one in submitted) == FILES * PLAN_RECORD.size


def test_a_further_planner_of_a_project_is_nice_to_others(tmp_path: Path) -> None:
    """More is on its way from it than a pipe holds, so it has not ended when its first group is there."""
    data, step = tmp_path / "data", tmp_path / "step"
    data.mkdir()
    step.mkdir()
    for number in range(FILES):
        (data / f"{number:05}").touch()
    nice: asyncio.Queue[int] = asyncio.Queue()

    async def run() -> int:
        turns = ProjectTurns(2, 2)
        await turns.take("p")  # by the first planner of the project

        async def submit(command: Any) -> bool:
            for planner in planners():
                nice.put_nowait(planner.nice())
            await asyncio.Event().wait()
            return True

        driver = PlanningDriver(StepId(1), request_over(data, step), lambda: None, submit, turns.of(lambda: "p"))
        driver.start()
        try:
            async with asyncio.timeout(120):
                return await nice.get()
        finally:
            await driver.stop()

    assert asyncio.run(run()) == os.getpriority(os.PRIO_PROCESS, 0) + NICE_STEP


def test_a_planner_is_not_kept_while_enough_mini_batches_are_ready(tmp_path: Path) -> None:
    """Its process ends and its turn is another's; when there is room again, it continues where it was."""
    data, step = tmp_path / "data", tmp_path / "step"
    data.mkdir()
    step.mkdir()
    for number in range(30):
        (data / f"{number:05}").touch()
    submitted: list[Any] = []
    pauses: list[int] = []

    async def run() -> None:
        stored: list[bytes | None] = [None]
        turns = ProjectTurns(1, 1).of(lambda: "")

        async def submit(command: Any) -> bool:
            assert not isinstance(command, FailStep), command
            assert command.start == stored[0]
            submitted.append(command)
            stored[0] = command.end
            return True

        def has_room(paused: bool) -> bool:
            if not paused:
                return not submitted or len(pauses) == len(submitted)
            assert not turns.locked()
            assert not planners()
            pauses.append(len(submitted))
            return True

        driver = PlanningDriver(
            StepId(1), request_over(data, step), lambda: stored[0], submit, turns, has_room=has_room
        )
        driver.start()
        async with asyncio.timeout(60):
            await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
        await driver.stop()

    asyncio.run(run())
    assert pauses, "groups are small at first: there are several"
    assert sum(len(one.records) for one in submitted) == 30 * PLAN_RECORD.size
    assert submitted[-1].done


def test_a_planner_that_cannot_be_started_fails_its_step() -> None:
    """It must not be a step that waits for ever for its first mini-batch."""

    async def run() -> Any:
        told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def submit(command: Any) -> bool:
            told.set_result(command)
            return True

        driver = PlanningDriver(StepId(1), {"inputs": [{}]}, lambda: None, submit, ProjectTurns(1, 1).of(lambda: ""))
        with no_descriptors_left():
            driver.start()
            command = await asyncio.wait_for(told, 240)
        await driver.stop()
        return command

    command = asyncio.run(run())
    assert isinstance(command, FailStep)
    assert "Too many open files" in command.message


def oom_score(pid: int) -> str:
    return Path(f"/proc/{pid}/oom_score_adj").read_text().strip()


def test_a_planner_that_the_kernel_ends_is_told_as_that(tmp_path: Path) -> None:
    """And it is what the kernel ends before the master."""
    data, step = tmp_path / "data", tmp_path / "step"
    data.mkdir()
    step.mkdir()
    for number in range(FILES):
        (data / f"{number:05}").touch()
    scores: dict[int, str] = {}
    failed: list[FailStep] = []

    async def run() -> None:
        async def submit(command: Any) -> bool:
            if isinstance(command, FailStep):
                failed.append(command)
                return True
            for planner in planners():
                if planner.pid not in scores:
                    scores[planner.pid] = oom_score(planner.pid)
                    planner.kill()
            return True

        # What is handed over is not kept: no planner gets further.
        driver = PlanningDriver(
            StepId(1), request_over(data, step), lambda: None, submit, ProjectTurns(1, 1).of(lambda: "")
        )
        driver.start()
        async with asyncio.timeout(60):
            await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
        await driver.stop()

    asyncio.run(run())
    assert list(scores.values()) == ["500"] * STARTS_MAX
    assert "ended by SIGKILL" in failed[0].message and "memory runs out" in failed[0].message


def test_the_planner_at_hand_plans_once_and_not_if_it_has_ended() -> None:
    def living() -> set[int]:
        return {child.pid for child in planners()}

    async def scenario() -> None:
        processes = PlannerProcesses()
        await processes.have_one_at_hand()
        at_hand = living()
        first, second = await processes.start(), await processes.start()
        assert {first.pid} == at_hand != {second.pid}
        await processes.have_one_at_hand()
        dead = processes._at_hand
        assert dead is not None
        dead.kill()
        await dead.wait()
        third = await processes.start()
        assert third.pid != dead.pid
        await processes.have_one_at_hand()
        await processes.close()
        assert living() == {first.pid, second.pid, third.pid}
        for process in (first, second, third):
            process.kill()
            await process.wait()

    asyncio.run(scenario())
