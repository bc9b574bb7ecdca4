"""A served master and two agents on loopback, by the commands an operator types: killed, drained, misused."""

from __future__ import annotations

import signal

import pytest
from embedded_run import check_words, wait_until
from fleet_commands import EXPECTED, FILES, Fleet


def test_a_drained_agent_leaves_and_costs_nothing(fleet: Fleet) -> None:
    fleet.start_agent("one")
    fleet.start_agent("two")
    fleet.create("nightly")
    wait_until(lambda: fleet.done("nightly") >= 10, "some of the job")
    one = fleet.processes["one"]
    one.send_signal(signal.SIGTERM)
    assert one.wait(240) == 0
    step = fleet.check_done("nightly")
    assert step["retries"] == 0
    assert step["failed_attempts"] == {}
    wait_until(lambda: fleet.node("one") == {}, "the node is gone")
    assert fleet.node("two")["state"] == "ready"


def test_a_node_is_known_by_the_secret_in_the_folder_of_its_agent(fleet: Fleet) -> None:
    fleet.start_agent("one")
    assert (fleet.folder / "folder-one" / "secret").is_file()
    # The same name from another folder.
    token = str(fleet.token_file("right"))
    fleet.start("other", "agent", "--folder", "folder-two", "--node-id", "one", "--join-token-file", token)
    wait_until(lambda: "does not have its secret" in fleet.said("other"), "the name is refused")


def test_a_killed_agent_and_a_restarted_master_cost_no_outcome(fleet: Fleet) -> None:
    fleet.start_agent("one")
    fleet.start_agent("two")
    # However long the commands between take: the job goes on until it is told to hurry.
    hurry, variables = fleet.folder / "hurry", "jobs.score.environment_variables"
    fleet.create("nightly", "--set", f"{variables}.PAUSE=2", "--set", f"{variables}.HURRY={hurry}")
    wait_until(lambda: fleet.done("nightly") >= 2, "some of the job")
    follower = fleet.start("follower", "job", "stream", "nightly")
    wait_until(lambda: "nightly" in fleet.said("follower"), "the job is followed")
    for name in ("two", "master"):
        fleet.processes[name].kill()
        fleet.processes[name].wait()
    wait_until(lambda: "No master answers" in fleet.said("follower"), "the follower waits")
    fleet.start_master()
    hurry.touch()
    step = fleet.check_done("nightly")
    assert set(step["failed_attempts"]) <= {"node_lost"}
    assert fleet.processes["one"].poll() is None, "it outlived its master"
    assert follower.wait(240) == 0
    assert fleet.said("follower").count("No master answers") == 1, "told once, whoever notices first"


def test_what_a_restarted_master_has_not_heard_of_a_node_is_not_told(fleet: Fleet) -> None:
    fleet.start_agent("one")
    wait_until(lambda: fleet.node("one")["workers"] is not None, "a heartbeat")
    for name in ("one", "master"):
        fleet.processes[name].kill()
        fleet.processes[name].wait()
    fleet.start_master()
    one = fleet.node("one")
    figures = ("workers", "cpu_percent", "memory_used_bytes", "disk_free_bytes", "silent_s")
    assert [one[figure] for figure in figures] == [None] * 5
    listed = fleet.run("node", "list")
    check_words(listed.stdout, [" -/2 ", f" - of {one['cpu_count']} "])
    assert "0%" not in listed.stdout


def test_create_list_show_logs_download_cancel(fleet: Fleet) -> None:
    fleet.start_agent("one")
    fleet.create("nightly")
    fleet.check_done("nightly")
    listed = fleet.run("job", "list")
    assert listed.returncode == 0
    assert "nightly" in listed.stdout
    assert "completed" in listed.stdout
    fetched = fleet.run("job", "download", "nightly", "--to", "fetched")
    assert fetched.returncode == 0, fetched.stderr
    assert (fleet.folder / "fetched" / "result" / "out.txt").read_text() == EXPECTED
    fleet.create("waiting", "--set", f"jobs.score.environment_variables.GATE={fleet.folder / 'gate'}")
    wait_until(lambda: fleet.job("waiting")["steps"][0]["mini_batches"]["leased"] > 0, "it runs")
    cancelled = fleet.run("job", "cancel", "waiting", "--wait")
    assert cancelled.returncode == 0, cancelled.stderr
    assert "waiting is cancelled" in cancelled.stdout
    followed = fleet.run("job", "stream", "waiting")
    assert followed.returncode == 4
    check_words(followed.stdout, [f"of {FILES} items 0 ok, 0 failed, {FILES} cancelled"])
    assert fleet.output.read_text() == EXPECTED, "of the first job"


def test_what_a_fleet_refuses(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each at once, with the right exit code and words, and nobody else is disturbed."""
    fleet.start_agent("one")
    outside = tmp_path_factory.mktemp("outside")
    (outside / "file").write_text("")
    refused: list[tuple[list[str], int, list[str]]] = [
        (
            ["master", "--state", "other-state", "--listen", fleet.address],
            2,
            [fleet.address, "cannot be used", "--listen"],
        ),
        (["master", "--state", str(fleet.state), "--listen", "127.0.0.1:0"], 2, ["Another master", "--state DIR"]),
        (["master", "--state", "job.yml"], 2, ["job.yml", "is a file", "--state DIR"]),
        (["master", "--state", "s", "--listen", "nonsense"], 2, ["nonsense", "HOST:PORT"]),
        (["master", "--state", "s", "--datastore", "a=/no/such"], 2, ["a=/no/such", "folder that exists"]),
        (["master", "--state", "s", "--join-token-file", "none"], 2, ["none", "no such file"]),
        (fleet.agent("two", "wrong"), 2, ["not carry a join token", "--join-token-file FILE"]),
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
        done = fleet.run(*arguments)
        assert done.returncode == code, (arguments, done.stdout + done.stderr)
        assert "Traceback" not in done.stderr
        missing = [word for word in words if word not in " ".join(done.stderr.split())]
        assert not missing, (arguments, done.stderr)
    assert fleet.node("one")["state"] == "ready"
    assert fleet.run("job", "list", "--format", "json").stdout.strip() == "[]"
