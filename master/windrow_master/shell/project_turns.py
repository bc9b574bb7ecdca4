"""Turns of projects at what the master does a few times at once: planners, and threads that prepare and finish steps.

Any of it may take for ever, on a folder that hangs or over an input that is hard to divide, and one project may have
thousands of jobs. So one project never has all turns. The next one goes to the project that has the fewest, unless a
`Place` says that others go before that.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple, TypeVar

T = TypeVar("T")

PLANNERS_AT_ONCE = 32
"""A limit, because a job may begin a thousand steps at once."""
OF_ONE_PROJECT = 24
NICE_STEP, NICE_MAX = 2, 10
"""By so much a planner is nicer than the one before it of its project, and at most so nice. Its share of a busy
processor goes down, and nothing ever stops."""


class Place(NamedTuple):
    """Where somebody stands who waits for a turn; lower ones go first. Between the two counts how many turns its
    project has.
    """

    tier: float = 0.0
    place: tuple[float, ...] = ()


FIRST_COME = Place()


class _Waiting(NamedTuple):
    project: str
    turn: asyncio.Future[None]
    place: Callable[[], Place]


class ProjectTurns:
    """Turns, for one event loop."""

    def __init__(self, at_once: int = PLANNERS_AT_ONCE, of_one_project: int = OF_ONE_PROJECT) -> None:
        self._at_once, self._of_one_project = at_once, of_one_project
        self._taken: Counter[str] = Counter()
        self._waiting: list[_Waiting] = []
        """In the order in which they came."""

    def of(self, project: Callable[[], str], place: Callable[[], Place] = lambda: FIRST_COME) -> ProjectTurn:
        """What a driver waits for. `project`: the project of its job; `place`: where it stands among others that wait.
        Both may change.
        """
        return ProjectTurn(self, project, place)

    def may_take(self, project: str) -> bool:
        """Whether there is a turn for a project now."""
        return self._taken.total() < self._at_once and self._taken[project] < self._of_one_project

    async def take(self, project: str, place: Callable[[], Place] = lambda: FIRST_COME) -> None:
        """Wait for a turn. Cancelled, it leaves none behind."""
        if self.may_take(project):
            self._taken[project] += 1
            return
        waiting = _Waiting(project, asyncio.get_running_loop().create_future(), place)
        self._waiting.append(waiting)
        try:
            await waiting.turn
        except asyncio.CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            else:
                self.give_back(project)
            raise

    def taken_by(self, project: str) -> int:
        """How many turns a project has now."""
        return self._taken[project]

    def give_back(self, project: str) -> None:
        """End a turn; the next one begins."""
        self._taken[project] -= 1
        while able := [one for one in self._waiting if self.may_take(one.project)]:
            following = min(able, key=self._turn_of)
            self._waiting.remove(following)
            self._taken[following.project] += 1
            following.turn.set_result(None)

    def _turn_of(self, waiting: _Waiting) -> tuple[float, int, tuple[float, ...]]:
        tier, place = waiting.place()
        return tier, self._taken[waiting.project], place


class ProjectTurn:
    """The turn of one driver, again and again."""

    def __init__(self, turns: ProjectTurns, project: Callable[[], str], place: Callable[[], Place]) -> None:
        self._turns, self._project, self._place = turns, project, place
        self._taken_for = ""
        self.nice = 0
        """How nice the planner of this turn is: the more, the more of its project run already. So a planner of another
        project is not one of many at the processors."""

    def locked(self) -> bool:
        """Whether it would have to wait."""
        return not self._turns.may_take(self._project())

    async def __aenter__(self) -> None:
        project = self._project()
        await self._turns.take(project, self._place)
        self._taken_for = project
        self.nice = min(NICE_STEP * (self._turns.taken_by(project) - 1), NICE_MAX)

    async def __aexit__(self, *how: object) -> None:
        self._turns.give_back(self._taken_for)


class ProjectThreads:
    """Threads for work that blocks, by turns of projects; for one event loop."""

    def __init__(self, threads: int, of_one_project: int, name: str) -> None:
        self._turns = ProjectTurns(threads, of_one_project)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._closed = False

    async def run(self, project: str, work: Callable[..., T], *arguments: object) -> T:
        """Run `work` in a thread when it is the project's turn, and return its result. Cancelled, the thread goes on,
        and has the turn until it ends."""
        await self._turns.take(project)
        loop = asyncio.get_running_loop()

        def give_back(_: object) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._turns.give_back, project)

        if self._closed:
            raise asyncio.CancelledError
        running = self._pool.submit(work, *arguments)
        running.add_done_callback(give_back)
        return await asyncio.wrap_future(running)

    def shutdown(self) -> None:
        """Wait for the threads to end. What has not begun is cancelled."""
        self._closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)
