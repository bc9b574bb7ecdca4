"""Turns of planners: how many divide inputs at a time, in all and of one project.

An input may take for ever to divide, on a folder that hangs or by a pattern that is hard to match. So one project never
has all turns, and the next one goes to the project that has the fewest.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

PLANNERS_AT_ONCE = 32
"""A limit, because a job may begin a thousand steps at once."""
OF_ONE_PROJECT = 24


class _Waiting(NamedTuple):
    project: str
    turn: asyncio.Future[None]


class PlannerTurns:
    """Turns, for one event loop."""

    def __init__(self, at_once: int = PLANNERS_AT_ONCE, of_one_project: int = OF_ONE_PROJECT) -> None:
        self._at_once, self._of_one_project = at_once, of_one_project
        self._taken: Counter[str] = Counter()
        self._waiting: list[_Waiting] = []
        """In the order in which they came."""

    def of(self, project: Callable[[], str]) -> ProjectTurn:
        """What a driver waits for. `project`: the project of its job, which may change."""
        return ProjectTurn(self, project)

    def may_take(self, project: str) -> bool:
        """Whether there is a turn for a project now."""
        return self._taken.total() < self._at_once and self._taken[project] < self._of_one_project

    async def take(self, project: str) -> None:
        """Wait for a turn. Cancelled, it leaves none behind."""
        if self.may_take(project):
            self._taken[project] += 1
            return
        waiting = _Waiting(project, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            await waiting.turn
        except asyncio.CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            else:
                self.give_back(project)
            raise

    def give_back(self, project: str) -> None:
        """End a turn; the next one begins."""
        self._taken[project] -= 1
        while able := [one for one in self._waiting if self.may_take(one.project)]:
            following = min(able, key=lambda one: self._taken[one.project])
            self._waiting.remove(following)
            self._taken[following.project] += 1
            following.turn.set_result(None)


class ProjectTurn:
    """The turn of one driver, again and again."""

    def __init__(self, turns: PlannerTurns, project: Callable[[], str]) -> None:
        self._turns, self._project = turns, project
        self._taken_for = ""

    def locked(self) -> bool:
        """Whether it would have to wait."""
        return not self._turns.may_take(self._project())

    async def __aenter__(self) -> None:
        project = self._project()
        await self._turns.take(project)
        self._taken_for = project

    async def __aexit__(self, *how: object) -> None:
        self._turns.give_back(self._taken_for)
