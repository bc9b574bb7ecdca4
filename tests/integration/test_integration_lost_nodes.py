"""Nodes that are lost or leave, and jobs that are cancelled, while mini-batches run: no item pays for it.

Reference: docs/reference/azure-ml/parallel-job.md#lost-workers-and-nodes.
"""

from __future__ import annotations

import signal
from pathlib import Path

from cluster_commands import EXPECTED, FILES, ServedCluster
from embedded_run import stored_attempts, wait_until


def hold(cluster: ServedCluster, name: str) -> Path:
    """A job on one node whose mini-batches wait for a gate, and are held for so long that they count as started."""
    cluster.start_agent(name, "--drain-grace", "0")
    gate = cluster.folder / "gate"
    cluster.create("nightly", "--set", f"jobs.score.environment_variables.GATE={gate}")
    wait_until(lambda: len(stored_attempts(cluster.state)) >= 2, "leases old enough to be written down")
    return gate


def test_a_node_that_is_lost_is_charged_to_nobody(cluster: ServedCluster) -> None:
    gate = hold(cluster, "one")
    held = len(stored_attempts(cluster.state))
    cluster.processes["one"].kill()
    cluster.processes["one"].wait()
    wait_until(lambda: cluster.job("nightly")["steps"][0]["failed_attempts"] != {}, "the loss is noticed")
    gate.touch()
    cluster.start_agent("two")
    step = cluster.check_done("nightly")
    assert step["failed_attempts"] == {"node_lost": held}
    assert step["retries"] == held
    (example,) = step["failure_examples"]
    assert (example["status"], example["error_category"]) == ("NODE_LOST", "SystemError")
    assert "Node one was lost" in example["message"]
    assert stored_attempts(cluster.state) == [("NODE_LOST", "node_lost")] * held


def test_what_a_leaving_node_hands_back_is_no_failure_at_all(cluster: ServedCluster) -> None:
    gate = hold(cluster, "one")
    cluster.processes["one"].send_signal(signal.SIGTERM)
    assert cluster.processes["one"].wait(240) == 0
    gate.touch()
    cluster.start_agent("two")
    step = cluster.check_done("nightly")
    assert (step["failed_attempts"], step["retries"]) == ({}, 0)
    assert set(stored_attempts(cluster.state)) == {("PREEMPTED", "preempted")}


def test_what_is_cancelled_is_no_failure_at_all(cluster: ServedCluster) -> None:
    hold(cluster, "one")
    assert cluster.run("job", "cancel", "nightly", "--wait").returncode == 0
    (step,) = cluster.job("nightly")["steps"]
    assert (step["failed_attempts"], step["retries"], step["error_category"]) == ({}, 0, "")
    assert step["items"] == {"total": FILES, "ok": 0, "failed": 0, "cancelled": FILES, "taken_over": 0}
    assert set(stored_attempts(cluster.state)) == {("CANCELLED", "cancelled")}
    assert not cluster.output.exists() or cluster.output.read_text() != EXPECTED
