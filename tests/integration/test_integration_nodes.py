"""Nodes that an operator sets aside, lets go, forgets and adds, by the commands; jobs go on, or wait."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

from cluster_commands import FILES, ServedCluster
from embedded_run import WINDROW, check_words, wait_until

PAUSE = "jobs.score.environment_variables.PAUSE"
GATE = "jobs.score.environment_variables.GATE"


def waits(cluster: ServedCluster, name: str) -> None:
    """The job is divided, and nobody gets any of it."""
    wait_until(lambda: cluster.job(name)["steps"][0]["mini_batches"]["total"] == FILES, "the job is divided")
    job = cluster.job(name)
    assert (job["state"], job["steps"][0]["mini_batches"]["leased"]) == ("running", 0)


def done(cluster: ServedCluster, *arguments: str) -> str:
    """A command that must succeed; what it said."""
    ended = cluster.run(*arguments)
    assert ended.returncode == 0, ended.stderr
    return " ".join(ended.stdout.split())


def test_who_follows_a_job_that_waits_for_a_node_is_told(cluster: ServedCluster) -> None:
    cluster.create("early")
    assert "No node is connected: the job waits for one" in done(cluster, "job", "show", "early")
    stream = cluster.start("stream", "job", "stream", "early")
    wait_until(lambda: "No node is connected" in cluster.said("stream"), "the stream says why nothing happens")
    cluster.start_agent("one")
    assert stream.wait(240) == 0
    assert cluster.said("stream").count("No node is connected") == 1
    cluster.check_done("early")
    assert "the job waits" not in done(cluster, "job", "show", "early")


def test_a_node_is_drained_in_the_middle_of_a_job_and_stays_cordoned_when_it_comes_back(cluster: ServedCluster) -> None:
    cluster.start_agent("one")
    cluster.start_agent("two")
    cluster.create("first", "--set", f"{PAUSE}=0.2")
    wait_until(lambda: cluster.node("one")["leases"] > 0, "it works for the job")
    assert "one has left. Its name stays cordoned." in done(cluster, "node", "drain", "one", "--wait")
    assert cluster.processes["one"].wait(240) == 0
    step = cluster.check_done("first")
    assert (step["retries"], step["failed_attempts"]) == (0, {})
    assert (cluster.node("one")["state"], cluster.node("one")["cordoned"]) == ("lost", True)
    check_words(done(cluster, "node", "list"), ["lost,cordoned", "Left.", "windrow node remove one"])
    assert "already gone" in done(cluster, "node", "drain", "one", "--wait")
    cluster.start_agent("one")
    check_words(done(cluster, "node", "list"), ["ready,cordoned", "windrow node uncordon one"])
    done(cluster, "node", "drain", "two", "--wait")
    cluster.create("second")
    waits(cluster, "second")
    assert json.loads(done(cluster, "node", "uncordon", "one", "--format", "json"))["cordoned"] is False
    cluster.check_done("second")


def test_a_cordon_holds_over_a_restart_of_the_master_and_a_job_waits_for_its_end(cluster: ServedCluster) -> None:
    cluster.start_agent("one")
    assert "one is cordoned" in done(cluster, "node", "cordon", "one")
    cluster.create("nightly")
    waits(cluster, "nightly")
    cluster.processes["master"].kill()
    cluster.processes["master"].wait()
    cluster.start_master()
    wait_until(lambda: cluster.node("one").get("state") == "ready", "the node is here again")
    assert cluster.node("one")["cordoned"]
    waits(cluster, "nightly")
    done(cluster, "node", "uncordon", "one")
    step = cluster.check_done("nightly")
    assert step["failed_attempts"] == {}


def test_a_drain_outlives_who_waits_for_it_and_the_master(cluster: ServedCluster, tmp_path: Path) -> None:
    cluster.start_agent("one")
    gate = tmp_path / "gate"
    cluster.create("nightly", "--set", f"{GATE}={gate}")
    wait_until(lambda: cluster.node("one")["leases"] > 0, "it works for the job")
    waiting = subprocess.Popen(
        [WINDROW, "node", "drain", "one", "--wait"], env=cluster.environment(), stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: cluster.node("one")["state"] == "draining", "it drains")
    waiting.send_signal(signal.SIGINT)
    assert "one is still draining" in waiting.communicate(timeout=240)[1]
    assert waiting.returncode == 130
    cluster.processes["master"].kill()
    cluster.processes["master"].wait()
    cluster.start_master()
    wait_until(lambda: cluster.node("one")["leases"] > 0, "it is here again, with what it holds")
    assert (cluster.node("one")["state"], cluster.node("one")["cordoned"]) == ("draining", True)
    gate.touch()
    assert cluster.processes["one"].wait(240) == 0
    cluster.start_agent("one")
    waits(cluster, "nightly")
    done(cluster, "node", "uncordon", "one")
    step = cluster.check_done("nightly")
    assert (step["retries"], step["failed_attempts"]) == (0, {})


def test_only_a_node_that_is_gone_is_removed(cluster: ServedCluster) -> None:
    cluster.start_agent("one")
    for command in ("drain", "cordon", "uncordon", "remove"):
        refused = cluster.run("node", command, "nobody")
        assert refused.returncode == 2
        check_words(refused.stderr, ["no node named nobody", "windrow node list"])
    refused = cluster.run("node", "remove", "one", "--format", "json")
    assert (refused.returncode, json.loads(refused.stdout)["reason"]) == (2, "NODE_CONNECTED")
    check_words(json.loads(refused.stdout)["message"], ["one is still connected", "windrow node drain one"])
    done(cluster, "node", "cordon", "one")
    cluster.processes["one"].kill()
    cluster.processes["one"].wait()
    wait_until(lambda: cluster.node("one")["state"] == "lost", "it is lost")
    assert "one was removed" in done(cluster, "node", "remove", "one")
    assert cluster.node("one") == {}
    cluster.start_agent("one")
    assert not cluster.node("one")["cordoned"], "a new one under an old name"


def test_a_cluster_grows_and_shrinks_in_the_middle_of_a_job(cluster: ServedCluster) -> None:
    cluster.start_agent("one")
    hurry = cluster.folder / "hurry"
    cluster.create("nightly", "--set", f"{PAUSE}=2", "--set", f"jobs.score.environment_variables.HURRY={hurry}")
    wait_until(lambda: cluster.done("nightly") >= 2, "one works")
    for name in ("two", "three"):
        cluster.start_agent(name)
    for name in ("two", "three"):
        wait_until(lambda name=name: cluster.node(name)["leases"] > 0, f"{name} works too")  # type: ignore[misc]
    for name in ("two", "three"):
        cluster.processes[name].send_signal(signal.SIGTERM)
    for name in ("two", "three"):
        assert cluster.processes[name].wait(240) == 0
    assert cluster.done("nightly") < FILES, "in the middle of the job"
    hurry.touch()
    step = cluster.check_done("nightly")
    assert (step["retries"], step["failed_attempts"]) == (0, {})
    listed = json.loads(done(cluster, "node", "list", "--format", "json"))
    assert [node["node_id"] for node in listed] == ["one"], "who left in order leaves nothing behind"
