"""Nodes that an operator sets aside, lets go, forgets and adds, by the commands; jobs go on, or wait."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

from embedded_run import WINDROW, check_words, wait_until
from fleet_commands import FILES, Fleet

PAUSE = "jobs.score.environment_variables.PAUSE"
GATE = "jobs.score.environment_variables.GATE"


def waits(fleet: Fleet, name: str) -> None:
    """The job is divided, and nobody gets any of it."""
    wait_until(lambda: fleet.job(name)["steps"][0]["mini_batches"]["total"] == FILES, "the job is divided")
    job = fleet.job(name)
    assert (job["state"], job["steps"][0]["mini_batches"]["leased"]) == ("running", 0)


def done(fleet: Fleet, *arguments: str) -> str:
    """A command that must succeed; what it said."""
    ended = fleet.run(*arguments)
    assert ended.returncode == 0, ended.stderr
    return " ".join(ended.stdout.split())


def test_who_follows_a_job_that_waits_for_a_node_is_told(fleet: Fleet) -> None:
    fleet.create("early")
    assert "No node is connected: the job waits for one" in done(fleet, "job", "show", "early")
    stream = fleet.start("stream", "job", "stream", "early")
    wait_until(lambda: "No node is connected" in fleet.said("stream"), "the stream says why nothing happens")
    fleet.start_agent("one")
    assert stream.wait(240) == 0
    assert fleet.said("stream").count("No node is connected") == 1
    fleet.check_done("early")
    assert "the job waits" not in done(fleet, "job", "show", "early")


def test_a_node_is_drained_in_the_middle_of_a_job_and_stays_cordoned_when_it_comes_back(fleet: Fleet) -> None:
    fleet.start_agent("one")
    fleet.start_agent("two")
    fleet.create("first", "--set", f"{PAUSE}=0.2")
    wait_until(lambda: fleet.node("one")["leases"] > 0, "it works for the job")
    assert "one has left. Its name stays cordoned." in done(fleet, "node", "drain", "one", "--wait")
    assert fleet.processes["one"].wait(240) == 0
    step = fleet.check_done("first")
    assert (step["retries"], step["failed_attempts"]) == (0, {})
    assert (fleet.node("one")["state"], fleet.node("one")["cordoned"]) == ("lost", True)
    check_words(done(fleet, "node", "list"), ["lost,cordoned", "Left.", "windrow node remove one"])
    assert "already gone" in done(fleet, "node", "drain", "one", "--wait")
    fleet.start_agent("one")
    check_words(done(fleet, "node", "list"), ["ready,cordoned", "windrow node uncordon one"])
    done(fleet, "node", "drain", "two", "--wait")
    fleet.create("second")
    waits(fleet, "second")
    assert json.loads(done(fleet, "node", "uncordon", "one", "--format", "json"))["cordoned"] is False
    fleet.check_done("second")


def test_a_cordon_holds_over_a_restart_of_the_master_and_a_job_waits_for_its_end(fleet: Fleet) -> None:
    fleet.start_agent("one")
    assert "one is cordoned" in done(fleet, "node", "cordon", "one")
    fleet.create("nightly")
    waits(fleet, "nightly")
    fleet.processes["master"].kill()
    fleet.processes["master"].wait()
    fleet.start_master()
    wait_until(lambda: fleet.node("one").get("state") == "ready", "the node is here again")
    assert fleet.node("one")["cordoned"]
    waits(fleet, "nightly")
    done(fleet, "node", "uncordon", "one")
    step = fleet.check_done("nightly")
    assert step["failed_attempts"] == {}


def test_a_drain_outlives_who_waits_for_it_and_the_master(fleet: Fleet, tmp_path: Path) -> None:
    fleet.start_agent("one")
    gate = tmp_path / "gate"
    fleet.create("nightly", "--set", f"{GATE}={gate}")
    wait_until(lambda: fleet.node("one")["leases"] > 0, "it works for the job")
    waiting = subprocess.Popen(
        [WINDROW, "node", "drain", "one", "--wait"], env=fleet.environment(), stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: fleet.node("one")["state"] == "draining", "it drains")
    waiting.send_signal(signal.SIGINT)
    assert "one is still draining" in waiting.communicate(timeout=240)[1]
    assert waiting.returncode == 130
    fleet.processes["master"].kill()
    fleet.processes["master"].wait()
    fleet.start_master()
    wait_until(lambda: fleet.node("one")["leases"] > 0, "it is here again, with what it holds")
    assert (fleet.node("one")["state"], fleet.node("one")["cordoned"]) == ("draining", True)
    gate.touch()
    assert fleet.processes["one"].wait(240) == 0
    fleet.start_agent("one")
    waits(fleet, "nightly")
    done(fleet, "node", "uncordon", "one")
    step = fleet.check_done("nightly")
    assert (step["retries"], step["failed_attempts"]) == (0, {})


def test_only_a_node_that_is_gone_is_removed(fleet: Fleet) -> None:
    fleet.start_agent("one")
    for command in ("drain", "cordon", "uncordon", "remove"):
        refused = fleet.run("node", command, "nobody")
        assert refused.returncode == 2
        check_words(refused.stderr, ["no node named nobody", "windrow node list"])
    refused = fleet.run("node", "remove", "one", "--format", "json")
    assert (refused.returncode, json.loads(refused.stdout)["reason"]) == (2, "NODE_CONNECTED")
    check_words(json.loads(refused.stdout)["message"], ["one is still connected", "windrow node drain one"])
    done(fleet, "node", "cordon", "one")
    fleet.processes["one"].kill()
    fleet.processes["one"].wait()
    wait_until(lambda: fleet.node("one")["state"] == "lost", "it is lost")
    assert "one was removed" in done(fleet, "node", "remove", "one")
    assert fleet.node("one") == {}
    fleet.start_agent("one")
    assert not fleet.node("one")["cordoned"], "a new one under an old name"


def test_a_fleet_grows_and_shrinks_in_the_middle_of_a_job(fleet: Fleet) -> None:
    fleet.start_agent("one")
    hurry = fleet.folder / "hurry"
    fleet.create("nightly", "--set", f"{PAUSE}=2", "--set", f"jobs.score.environment_variables.HURRY={hurry}")
    wait_until(lambda: fleet.done("nightly") >= 2, "one works")
    for name in ("two", "three"):
        fleet.start_agent(name)
    for name in ("two", "three"):
        wait_until(lambda name=name: fleet.node(name)["leases"] > 0, f"{name} works too")  # type: ignore[misc]
    for name in ("two", "three"):
        fleet.processes[name].send_signal(signal.SIGTERM)
    for name in ("two", "three"):
        assert fleet.processes[name].wait(240) == 0
    assert fleet.done("nightly") < FILES, "in the middle of the job"
    hurry.touch()
    step = fleet.check_done("nightly")
    assert (step["retries"], step["failed_attempts"]) == (0, {})
    listed = json.loads(done(fleet, "node", "list", "--format", "json"))
    assert [node["node_id"] for node in listed] == ["one"], "who left in order leaves nothing behind"
