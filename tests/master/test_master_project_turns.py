"""Turns of projects: of all and of one project there is a limit, and who has fewest is next."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from windrow_master.core.commands import AwaitPlanner, FailStep
from windrow_master.core.ids import StepId
from windrow_master.shell.planning_driver import PlanningDriver
from windrow_master.shell.project_turns import NICE_MAX, NICE_STEP, ProjectThreads, ProjectTurns


class Planning:
    """Planners of projects, which hold their turn until they are told to end."""

    def __init__(self, turns: ProjectTurns) -> None:
        self._turns = turns
        self.begun: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}

    def start(self, name: str) -> asyncio.Task[None]:
        """`name`: the project, and a number."""
        self.ends[name] = asyncio.Event()
        return asyncio.create_task(self._plan(name))

    async def _plan(self, name: str) -> None:
        async with self._turns.of(lambda: name.rstrip("0123456789")):
            self.begun.append(name)
            await self.ends[name].wait()


async def settled() -> None:
    """All that can go on has gone on."""
    for _ in range(20):
        await asyncio.sleep(0)


def played(play: Callable[[Planning], Coroutine[Any, Any, None]], **turns: int) -> list[str]:
    """Who began, in order."""

    async def run() -> list[str]:
        planning = Planning(ProjectTurns(**turns))
        await play(planning)
        for end in planning.ends.values():
            end.set()
        await settled()
        return planning.begun

    return asyncio.run(run())


def test_a_project_whose_inputs_hang_leaves_turns_to_others() -> None:
    async def play(planning: Planning) -> None:
        for number in range(10):
            planning.start(f"bad{number}")
        planning.start("good1")
        await settled()
        assert planning.begun == ["bad0", "bad1", "bad2", "good1"]

    played(play, at_once=4, of_one_project=3)


def test_the_next_turn_is_of_the_project_that_has_fewest_and_in_it_of_who_came_first() -> None:
    async def play(planning: Planning) -> None:
        for name in ("a1", "a2", "a3", "a4", "b1", "b2"):
            planning.start(name)
        await settled()
        planning.ends["a1"].set()
        await settled()
        assert planning.begun == ["a1", "a2", "a3", "b1"]
        planning.ends["a2"].set()
        await settled()
        assert planning.begun[4:] == ["a4"], "each has one, and it came before b2"

    assert sorted(played(play, at_once=3, of_one_project=3)) == ["a1", "a2", "a3", "a4", "b1", "b2"]


def test_who_stops_waiting_leaves_no_turn_taken() -> None:
    async def play(planning: Planning) -> None:
        planning.start("a1")
        waits = planning.start("a2")
        late = planning.start("b1")
        await settled()
        waits.cancel()
        planning.ends["a1"].set()
        late.cancel()  # its turn has just come, and it does not know yet
        await settled()
        planning.start("c1")
        await settled()
        assert planning.begun == ["a1", "c1"]

    played(play, at_once=1, of_one_project=1)


def test_a_step_that_has_to_wait_says_so_and_its_clock_begins_with_its_turn() -> None:
    async def run() -> list[Any]:
        turns = ProjectTurns(1, 1)
        submitted: list[Any] = []

        async def submit(command: Any) -> bool:
            submitted.append(command)
            return True

        other = turns.of(lambda: "other")
        async with other:
            driver = PlanningDriver(StepId(1), {"inputs": [{}]}, lambda: b"no json", submit, turns.of(lambda: "one"))
            driver.start()
            await settled()
            assert submitted == [AwaitPlanner(StepId(1), waits=True)]
        async with asyncio.timeout(120):
            await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
        await driver.stop()
        return submitted[1:]

    then, failed = asyncio.run(run())
    assert then == AwaitPlanner(StepId(1), waits=False) and isinstance(failed, FailStep)


def test_each_further_planner_of_a_project_leaves_more_of_the_processors_to_others() -> None:
    async def run() -> list[int]:
        turns, found = ProjectTurns(), []
        for project in (*"aaaaaaaa", "b"):
            turn = turns.of(lambda project=project: project)  # type: ignore[misc]
            await turn.__aenter__()
            found.append(turn.nice)
        return found

    nice = asyncio.run(run())
    assert nice == [*range(0, NICE_MAX, NICE_STEP), *[NICE_MAX] * 3, 0]


def test_work_that_hangs_for_one_project_holds_up_no_other() -> None:
    """Threads, too: of ten that hang, three have begun, and another project's work begins and ends meanwhile."""
    go_on, order = threading.Event(), []

    def work(name: str) -> str:
        order.append(name)
        if name.startswith("bad"):
            go_on.wait()
        return name

    async def run() -> None:
        threads = ProjectThreads(4, 3, "test")
        try:
            bad = [asyncio.create_task(threads.run("bad", work, f"bad{number}")) for number in range(10)]
            await settled()
            assert [await threads.run("good", work, f"good{number}") for number in range(5)] == order[3:]
            assert order[:3] == ["bad0", "bad1", "bad2"]
            # Who no longer waits for a thread that hangs has not ended it: its turn is still taken.
            bad[0].cancel()
            await settled()
            assert len(order) == 8
        finally:
            go_on.set()
        assert await asyncio.gather(*bad[1:]) == [f"bad{number}" for number in range(1, 10)]
        threads.shutdown()
        with pytest.raises(asyncio.CancelledError):
            await threads.run("good", work, "late")

    asyncio.run(run())
    assert "late" not in order
