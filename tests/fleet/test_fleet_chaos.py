"""A fleet, its agents and the master killed again and again while a job runs: nothing is lost, doubled or left."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time

from cluster_commands import EXPECTED, FILES
from embedded_run import wait_until
from fleet_of_processes import FleetOfProcesses

EVENTS = 20
MOST = 3


def test_a_job_is_right_whatever_is_killed_while_it_runs(site: FleetOfProcesses) -> None:
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    hurry, variables = site.folder / "hurry", "jobs.score.environment_variables"
    site.start_fleet()
    site.create("nightly", "--set", f"{variables}.PAUSE=1", "--set", f"{variables}.HURRY={hurry}")
    wait_until(site.live, "it has asked for an agent")
    told = []
    for number in range(EVENTS):
        event = dice.choice(["fleet", "fleet", "agent", "agent", "master", "drain"])
        told.append(event)
        match event:
            case "fleet":
                old = next(
                    one for name, one in site.processes.items() if name.startswith("fleet") and one.poll() is None
                )
                old.kill()
                old.wait()
                time.sleep(dice.random())
                site.start_fleet(f"fleet-{number}")
            case "agent" | "drain":
                for victim in dice.sample(agents := site.agent_pids(), min(1, len(agents))):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(victim, signal.SIGKILL if event == "agent" else signal.SIGTERM)
            case "master":
                site.processes["master"].kill()
                site.processes["master"].wait()
                time.sleep(dice.random())
                site.start_master()
        time.sleep(dice.random())
        assert len(site.alive()) <= MOST and len(site.live()) <= MOST, (seed, told)
    hurry.touch()
    # Agents that were killed without joining pause the group; nobody waits for that here.
    site.run("fleet", "resume", "site")
    wait_until(lambda: site.job("nightly")["state"] == "completed", f"the job ends: {seed}, {told}")
    assert site.output.read_text() == EXPECTED, (seed, told)
    assert site.job("nightly")["steps"][0]["items"]["ok"] == FILES
    wait_until(lambda: site.live() == [] and not site.alive(), f"the agents have left: {seed}, {told}")
    # What this machine has had, the master has had, and the other way round, but for what was never started.
    names = [one.name for one in site.seen()]
    with_process = {one.name for one in site.allocations() if one.start_time or one.join_time}
    assert len(names) == len(set(names)) and with_process <= set(names), (seed, told)
    assert set(names) <= {one.name for one in site.allocations()}, (seed, told)
