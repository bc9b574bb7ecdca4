"""A fleet of processes: agents are killed and told to leave, and programs are killed, while jobs run."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from fleet_chaos import TIMEOUT_S, Chaos, FleetInChaos
from windrow.fleet.provider import State


class FleetOfKilledProcesses(FleetInChaos):
    """Its agents are processes of this machine."""

    def running(self) -> list[str]:
        """Those whose processes run."""
        return [one.name for one in self.seen() if one.state is State.STARTED]

    def created(self) -> list[str]:
        """All that this machine has had."""
        return [one.name for one in self.seen()]

    def happens(self) -> Mapping[str, Callable[[random.Random], None]]:
        """What happens to agents."""
        return {
            "agent": partial(self._send, signal.SIGKILL, self.killed),
            "drain": partial(self._send, signal.SIGTERM, set()),
        }

    def _send(self, number: signal.Signals, killed: set[str], dice: random.Random) -> None:
        victim = self.chosen(dice)
        if victim is None:
            return
        self.taken.add(victim)
        killed.add(victim)
        for pid in self.agent_pids(victim):
            # It may have left since.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[FleetOfKilledProcesses]:
    """A master that serves; the test starts the fleet's program."""
    made = FleetOfKilledProcesses(tmp_path)
    try:
        made.start_master()
        yield made
    finally:
        made.end()


@pytest.mark.timeout(TIMEOUT_S)
def test_jobs_are_right_whatever_is_killed_while_they_run(site: FleetOfKilledProcesses) -> None:
    Chaos(site).run()
