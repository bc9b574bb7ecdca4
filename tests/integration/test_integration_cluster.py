"""A served master and two agents on loopback, by the commands an operator types: killed, drained, misused."""

from __future__ import annotations

import signal

import pytest
from cluster_commands import EXPECTED, FILES, ServedCluster
from embedded_run import check_words, wait_until


def test_a_drained_agent_leaves_and_costs_nothing(cluster: ServedCluster) -> None:
    cluster.start_agent("one")
    cluster.start_agent("two")
    cluster.create("nightly")
    wait_until(lambda: cluster.done("nightly") >= 10, "some of the job")
    one = cluster.processes["one"]
    one.send_signal(signal.SIGTERM)
    assert one.wait(240) == 0
    step = cluster.check_done("nightly")
    assert step["retries"] == 0
    assert step["failed_attempts"] == {}
    wait_until(lambda: cluster.node("one") == {}, "the node is gone")
    assert cluster.node("two")["state"] == "ready"


def test_a_node_is_known_by_the_secret_in_the_folder_of_its_agent(cluster: ServedCluster) -> None:
    cluster.start_agent("one")
    assert (cluster.folder / "folder-one" / "secret").is_file()
    # The same name from another folder.
    token = str(cluster.token_file("right"))
    cluster.start("other", "agent", "--folder", "folder-two", "--node-id", "one", "--join-token-file", token)
    wait_until(lambda: "does not have its secret" in cluster.said("other"), "the name is refused")


def test_a_killed_agent_and_a_restarted_master_cost_no_outcome(cluster: ServedCluster) -> None:
    cluster.start_agent("one")
    cluster.start_agent("two")
    # However long the commands between take: the job goes on until it is told to hurry.
    hurry, variables = cluster.folder / "hurry", "jobs.score.environment_variables"
    cluster.create("nightly", "--set", f"{variables}.PAUSE=2", "--set", f"{variables}.HURRY={hurry}")
    wait_until(lambda: cluster.done("nightly") >= 2, "some of the job")
    follower = cluster.start("follower", "job", "stream", "nightly")
    wait_until(lambda: "nightly" in cluster.said("follower"), "the job is followed")
    for name in ("two", "master"):
        cluster.processes[name].kill()
        cluster.processes[name].wait()
    wait_until(lambda: "No master answers" in cluster.said("follower"), "the follower waits")
    cluster.start_master()
    hurry.touch()
    step = cluster.check_done("nightly")
    assert set(step["failed_attempts"]) <= {"node_lost"}
    assert cluster.processes["one"].poll() is None, "it outlived its master"
    assert follower.wait(240) == 0
    assert cluster.said("follower").count("No master answers") == 1, "told once, whoever notices first"


def test_what_a_restarted_master_has_not_heard_of_a_node_is_not_told(cluster: ServedCluster) -> None:
    cluster.start_agent("one")
    wait_until(lambda: cluster.node("one")["workers"] is not None, "a heartbeat")
    for name in ("one", "master"):
        cluster.processes[name].kill()
        cluster.processes[name].wait()
    cluster.start_master()
    one = cluster.node("one")
    figures = ("workers", "cpu_percent", "memory_used_bytes", "disk_free_bytes", "silent_s")
    assert [one[figure] for figure in figures] == [None] * 5
    listed = cluster.run("node", "list")
    check_words(listed.stdout, [" -/2 ", f" - of {one['cpu_count']} "])
    assert "0%" not in listed.stdout


def test_create_list_show_logs_download_cancel(cluster: ServedCluster) -> None:
    cluster.start_agent("one")
    cluster.create("nightly")
    cluster.check_done("nightly")
    listed = cluster.run("job", "list")
    assert listed.returncode == 0
    assert "nightly" in listed.stdout
    assert "completed" in listed.stdout
    fetched = cluster.run("job", "download", "nightly", "--to", "fetched")
    assert fetched.returncode == 0, fetched.stderr
    assert (cluster.folder / "fetched" / "result" / "out.txt").read_text() == EXPECTED
    cluster.create("waiting", "--set", f"jobs.score.environment_variables.GATE={cluster.folder / 'gate'}")
    wait_until(lambda: cluster.job("waiting")["steps"][0]["mini_batches"]["leased"] > 0, "it runs")
    cancelled = cluster.run("job", "cancel", "waiting", "--wait")
    assert cancelled.returncode == 0, cancelled.stderr
    assert "waiting is cancelled" in cancelled.stdout
    followed = cluster.run("job", "stream", "waiting")
    assert followed.returncode == 4
    check_words(followed.stdout, [f"of {FILES} items 0 ok, 0 failed, {FILES} cancelled"])
    assert cluster.output.read_text() == EXPECTED, "of the first job"


def test_what_a_cluster_refuses(cluster: ServedCluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each at once, with the right exit code and words, and nobody else is disturbed."""
    cluster.start_agent("one")
    outside = tmp_path_factory.mktemp("outside")
    (outside / "file").write_text("")
    refused: list[tuple[list[str], int, list[str]]] = [
        (
            ["master", "--state", "other-state", "--listen", cluster.address],
            2,
            [cluster.address, "cannot be used", "--listen"],
        ),
        (["master", "--state", str(cluster.state), "--listen", "127.0.0.1:0"], 2, ["Another master", "--state DIR"]),
        (["master", "--state", "job.yml"], 2, ["job.yml", "is a file", "--state DIR"]),
        (["master", "--state", "s", "--listen", "nonsense"], 2, ["nonsense", "HOST:PORT"]),
        (["master", "--state", "s", "--datastore", "a=/no/such"], 2, ["a=/no/such", "folder that exists"]),
        (["master", "--state", "s", "--join-token-file", "none"], 2, ["none", "no such file"]),
        (cluster.agent("two", "wrong"), 2, ["not carry a join token", "--join-token-file FILE"]),
        (["agent", "--folder", "folder-two", "--node-id", "two"], 2, ["not carry a join token"]),
        (["agent", "--folder", "folder-one", "--node-id", "two"], 1, ["Another agent", "--folder"]),
        (["agent", "--folder", "folder-two", "--node-id", "no name"], 2, ["'no name'"]),
        (
            ["job", "create", "job.yml", "--set", f"inputs.data.path={outside}"],
            2,
            [str(outside), "outside the datastores"],
        ),
        (["job", "create", "job.yml", "--set", f"outputs.result.path={outside / 'o'}"], 2, ["outside the datastores"]),
        (["job", "show", "nothing"], 2, ["nothing", "windrow job list"]),
        (
            ["job", "list", "--master", "127.0.0.1:1"],
            5,
            ["No master answers at 127.0.0.1:1", "Check that it is running", "windrow master"],
        ),
    ]
    for arguments, code, words in refused:
        done = cluster.run(*arguments)
        assert done.returncode == code, (arguments, done.stdout + done.stderr)
        assert "Traceback" not in done.stderr
        missing = [word for word in words if word not in " ".join(done.stderr.split())]
        assert not missing, (arguments, done.stderr)
    assert cluster.node("one")["state"] == "ready"
    assert cluster.run("job", "list", "--format", "json").stdout.strip() == "[]"
