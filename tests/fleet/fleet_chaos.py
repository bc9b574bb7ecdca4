"""Random events upon a fleet while jobs run, and what has to hold whatever happens: the same for all engines.

WINDROW_FLEET_EVENTS says how many events, WINDROW_FLEET_SEED which ones; a failure tells the seed. The same seed gives
the same events in the same order. What each of them meets depends on how far the programs have come.
"""

from __future__ import annotations

import os
import random
import re
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cluster_commands import EXPECTED, FILES
from embedded_run import wait_until
from fleet_of_processes import FleetOfProcesses
from windrow import JobState
from windrow.sdk.fleet import ENDED_MAX, FROM_FILE, Allocation, Fleet, FleetGroup

EVENTS = int(os.environ.get("WINDROW_FLEET_EVENTS", "10"))
TIMEOUT_S = 600 + 20 * EVENTS
"""Of one test."""
MOST = 3
"""Agents of the group at once."""
PAUSE_S = 12
"""Of a mini-batch: so long that a job wants all agents, and that one which is told to leave gives mini-batches back."""
WAIT_S = 240.0
PAUSED = re.compile(
    r"\S.+ \((\d+ (agents|submissions) in a row [a-z ]+|trying again failed); it tries again after .+\)"
)
"""The reason of a group that waits because asking came to nothing: somebody's words, how often, and for how long."""
UNREADABLE = re.compile(r"Traceback|[a-z]Error\b|Exception|<[\w.]+ object|\\n|\{'|\bb'|\bNone\b|StatusCode\.")
"""What is left of a program's own language."""


class FleetInChaos(FleetOfProcesses):
    """A fleet with one group `local` of MOST agents, two slots each, to which things happen."""

    taken: set[str]
    """Allocations that an event has taken away."""
    killed: set[str]
    """Those among them whose agents were not told before."""
    look: Callable[[], None]
    """Called while the engine is away: looks whether the fleet says what it has to."""

    def chosen(self, dice: random.Random) -> str | None:
        """An allocation whose agent runs; None: there is none."""
        running = sorted(self.running())
        return dice.choice(running) if running else None

    @abstractmethod
    def happens(self) -> Mapping[str, Callable[[random.Random], None]]:
        """What may happen on this engine, by name. Each notes what it takes in `taken` and `killed`."""

    @abstractmethod
    def running(self) -> Sequence[str]:
        """Allocations whose agents the engine runs."""

    @abstractmethod
    def created(self) -> list[str]:
        """Allocations that the engine has ever had, each as often as it was asked for."""

    def is_taken(self, one: Allocation) -> bool:
        """Whether the engine or an event has ended an allocation."""
        return one.name in self.taken or one.state in ("preempted", "expired")

    def is_killed(self, name: str) -> bool:
        """Whether the engine or an event has ended an allocation, and its agent was not told before."""
        return name in self.killed

    def is_over(self, one: Allocation) -> bool:
        """Whether an allocation is over although its engine may still have it: its agent has said goodbye to the master
        and ends a moment later.
        """
        return one.state == "completed"

    def fleet(self) -> Fleet | None:
        """With all allocations that the master remembers."""
        with self.client() as client:
            if all(one.name != "site" for one in client.fleets.list()):
                return None
            return client.fleets.get("site", ended_max=ENDED_MAX)


class Chaos:
    """Lets events happen to a fleet, one after the other, and checks what becomes of it."""

    def __init__(self, site: FleetInChaos) -> None:
        self.site = site
        self.seed = int(os.environ.get("WINDROW_FLEET_SEED") or random.randrange(2**32))
        self.told: list[str] = []
        self.reasons: Counter[str] = Counter()
        site.taken, site.killed, site.look = set(), set(), self._check_reason
        self._hurry = site.folder / "hurry"
        self._jobs: list[str] = []
        self._dice = random.Random(self.seed)

    def __str__(self) -> str:
        return f"WINDROW_FLEET_SEED={self.seed} after {len(self.told)} events: {' '.join(self.told)}"

    def run(self) -> None:
        """All of it, from no agent to none."""
        site = self.site
        happens = {"fleet": self._kill_fleet, "master": self._kill_master, "scale": self._scale, **site.happens()}
        site.start_fleet()
        self._submit()
        self._wait(lambda: len(site.running()) > 1, "agents run")
        for number in range(EVENTS):
            event, pause = self._dice.choice(list(happens)), self._dice.random()
            self.told.append(event)
            self._wait(self._runs, "an agent runs, upon which something can happen")
            print(number + 1, event, flush=True)
            # Numbers of its own for each, so that how many an event needs does not decide what follows.
            happens[event](random.Random(f"{self.seed} {number}"))
            time.sleep(pause)
            self._check_bounds()
            self._check_reason()
            if self._has_ended(self._jobs[-1]):
                self._check_job(self._jobs[-1])
                self._submit()
        self._hurry.touch()
        with site.client() as client:
            client.fleets.scale("site", "local", max=FROM_FILE)
            # Nobody waits for the end of a pause here.
            client.fleets.resume("site")
        self._check_job(self._jobs[-1])
        self._wait(lambda: site.live() == [] and not site.alive(), "the agents have left")
        self._check_allocations()
        print(f"{self}\n{len(self._jobs)} jobs, {len(site.created())} allocations, {len(site.taken)} taken")
        for reason, count in self.reasons.most_common():
            print(f"{count:5} {reason}")

    def _runs(self) -> bool:
        """Whether an agent runs. A group that waits because its agents were ended before they joined is resumed."""
        if self.site.running():
            return True
        if self.site.group().retry_time is not None:
            self._check_reason()
            with self.site.client() as client:
                client.fleets.resume("site")
        return False

    def _kill_fleet(self, dice: random.Random) -> None:
        site = self.site
        old = next(one for name, one in site.processes.items() if name.startswith("fleet") and one.poll() is None)
        old.kill()
        old.wait()
        time.sleep(dice.random())
        site.start_fleet(f"fleet-{len(self.told)}")

    def _kill_master(self, dice: random.Random) -> None:
        self.site.processes["master"].kill()
        self.site.processes["master"].wait()
        time.sleep(dice.random())
        self.site.start_master()

    def _scale(self, dice: random.Random) -> None:
        with self.site.client() as client:
            client.fleets.scale("site", "local", max=dice.choice([1, 2, MOST]))

    def _submit(self) -> None:
        name, variables = f"nightly-{len(self._jobs)}", "jobs.score.environment_variables"
        pauses = "--set", f"{variables}.PAUSE={PAUSE_S}", "--set", f"{variables}.HURRY={self._hurry}"
        self.site.create(name, *pauses)
        self._jobs.append(name)

    def _has_ended(self, job: str) -> bool:
        with self.site.client() as client:
            return client.find(job).state.ended

    def _check_bounds(self) -> None:
        """No more agents than the group may have, for the engine and for the master."""
        alive = self.site.alive()
        allocations = self.site.allocations()
        over = {one.name for one in allocations if self.site.is_over(one)}
        there = [one for one in alive if one.name not in over]
        live = [one for one in allocations if not one.has_ended]
        assert len(there) <= MOST and len(live) <= MOST, f"{self}: {there}, {live}"

    def _check_reason(self) -> None:
        """A group that has less than it wants says why, in words for people."""

        def says_why() -> FleetGroup | None:
            group = self.site.group()
            has_enough = group.wanted <= group.begun + group.queued + group.started
            return group if group.reason or has_enough else None

        group = self._wait(says_why, "the group has what it wants, or says why not")
        self.reasons[re.sub(r"\d[\d:.]*", "7", group.reason)] += 1
        assert not UNREADABLE.search(group.reason), f"{self}: {group.reason}"
        if group.retry_time is not None and "Paused" not in group.reason:
            assert PAUSED.search(group.reason), f"{self}: {group.reason}"

    def _check_job(self, name: str) -> None:
        """It ends well, its output is right, and nobody's tries were charged."""
        site = self.site
        self._wait(lambda: self._has_ended(name), f"{name} ends")
        with site.client() as client:
            job = client.find(name)
            assert job.state is JobState.COMPLETED, f"{self}: {job}"
            assert site.output.read_text() == EXPECTED, f"{self}: {name}"
            (step,) = job.steps
            assert step.items.ok == FILES, f"{self}: {step}"
            assert set(step.failed_attempts) <= {"node_lost"}, f"{self}: {step.failed_attempts}"
            attempts = [one for index in range(FILES) for one in client.mini_batch(job, index).attempts]
        of_name = {one.name: one for one in site.allocations()}
        for one in attempts:
            if one.cause == "node_lost":
                assert site.is_killed(one.node_id), f"{self}: its node was not killed: {one}"
            elif one.cause == "preempted":
                assert site.is_taken(of_name[one.node_id]), f"{self}: nobody has taken its node: {one}"

    def _check_allocations(self) -> None:
        """Nothing was asked for twice, nothing is left, and no agent ended but by itself or by an event."""
        site = self.site
        names, allocations = site.created(), site.allocations()
        assert len(names) == len(set(names)), f"{self}: {names}"
        assert set(names) <= {one.name for one in allocations}, str(self)
        for one in allocations:
            ended_by_itself = one.state == "completed" or not one.join_time
            assert ended_by_itself or site.is_taken(one), f"{self}: nobody has ended {one}"

    def _wait(self, condition: Callable[[], Any], what: str) -> Any:
        return wait_until(condition, f"{what}: {self}", WAIT_S)
