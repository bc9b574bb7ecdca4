"""Agents that leave by themselves: with nothing to do, or before the engine ends them that they come from."""

from __future__ import annotations

from cluster_commands import ServedCluster
from embedded_run import stored_attempts, wait_until


def test_agents_that_leave_when_idle_stay_while_there_is_work(cluster: ServedCluster) -> None:
    cluster.start_agent("idles", "--exit-idle", "2s")
    assert cluster.processes["idles"].wait(240) == 0
    assert "it has had nothing to do for" in cluster.said("idles")
    assert cluster.node("idles") == {}
    gate = cluster.folder / "gate"
    cluster.create("nightly", "--set", f"jobs.score.environment_variables.GATE={gate}")
    cluster.start_agent("works", "--exit-idle", "2s")
    wait_until(
        lambda: any(one["phase_s"] > 3 for one in cluster.node("works").get("processes", [])),
        "a worker runs a mini-batch for longer than that",
    )
    assert cluster.processes["works"].poll() is None
    gate.touch()
    step = cluster.check_done("nightly")
    assert (step["failed_attempts"], step["retries"]) == ({}, 0)
    assert cluster.processes["works"].wait(240) == 0
    assert cluster.node("works") == {}


def test_an_agent_hands_back_what_it_cannot_finish_before_its_end(cluster: ServedCluster) -> None:
    gate = cluster.folder / "gate"
    cluster.create("nightly", "--set", f"jobs.score.environment_variables.GATE={gate}")
    cluster.start_agent("short", "--lifetime", "15s", "--drain-grace", "0")
    assert 0 < cluster.node("short")["lifetime_s"] <= 15
    assert "ENDS IN" in cluster.run("node", "list").stdout
    wait_until(lambda: len(stored_attempts(cluster.state)) >= 2, "leases old enough to be written down")
    assert cluster.processes["short"].wait(240) == 0
    assert "its lifetime ends in" in cluster.said("short")
    # Nothing has got through: all that is known is that it takes longer than that.
    cluster.start_agent("shorter", "--lifetime", "8s", "--drain-grace", "0")
    told = cluster.run("job", "explain", "nightly").stdout
    assert "the node that lives longest, shorter, ends in" in told, told
    gate.touch()
    cluster.start_agent("long")
    step = cluster.check_done("nightly")
    assert (step["failed_attempts"], step["retries"]) == ({}, 0)
    assert set(stored_attempts(cluster.state)) == {("PREEMPTED", "preempted")}


def test_an_agent_whose_machine_is_taken_away_drains_and_nobody_is_charged(cluster: ServedCluster) -> None:
    gate, notice = cluster.folder / "gate", cluster.folder / "notice"
    cluster.create("nightly", "--set", f"jobs.score.environment_variables.GATE={gate}")
    check = f"sh -c 'cat {notice} 2>/dev/null'"
    cluster.start_agent("spot", "--preemption-check", check, "--drain-grace", "0")
    wait_until(lambda: len(stored_attempts(cluster.state)) >= 2, "leases old enough to be written down")
    part = notice.with_name("part")
    part.write_text("taken at 12:00\n")
    part.rename(notice)
    assert cluster.processes["spot"].wait(240) == 0
    assert "this machine is about to be taken away: taken at 12:00" in cluster.said("spot")
    gate.touch()
    cluster.start_agent("stays")
    step = cluster.check_done("nightly")
    assert (step["failed_attempts"], step["retries"]) == ({}, 0)
