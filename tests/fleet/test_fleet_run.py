"""A fleet for real: a master, a program, and agents as processes of this machine, killed and adopted."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cluster_commands import EXPECTED, FILES
from embedded_run import check_words, wait_until
from fleet_of_processes import FleetOfProcesses
from private_processes import as_user, assert_private
from windrow.fleet.provider import State


def gated(site: FleetOfProcesses, name: str) -> Path:
    """Submit a job whose mini-batches wait for a file; returns the file."""
    gate = site.folder / f"gate-{name}"
    site.create(name, "--set", f"jobs.score.environment_variables.GATE={gate}")
    return gate


def test_from_no_agent_to_some_and_back_to_none(site: FleetOfProcesses) -> None:
    site.start_fleet()
    assert site.live() == [] and site.table()["wanted"] == 0
    gate = gated(site, "nightly")
    # Nobody knows how long a mini-batch takes: one agent is to show it.
    wait_until(lambda: [one.is_busy for one in site.live()] == [True], "one agent has joined and works")
    (probe,) = site.live()
    assert (probe.state, probe.node_id) == ("started", probe.name)
    wait_until(lambda: site.live()[0].engine_id == site.alive()[0].engine_id, "what the engine calls it")
    listed = site.run("fleet", "list")
    check_words(listed.stdout, ["site", "local", "process", "0-3"])
    gate.touch()
    site.check_done("nightly")
    wait_until(lambda: site.live() == [] and not site.alive(), "the agents have left")
    ended = site.allocations()
    assert {one.state for one in ended} == {"completed"}
    # An agent that has left leaves nothing of its job behind, and is charged to nobody.
    step = site.job("nightly")["steps"][0]
    assert (step["failed_attempts"], step["retries"]) == ({}, 0)
    shown = site.run("fleet", "show", "site")
    check_words(shown.stdout, ["site", probe.name, "completed", *(one.engine_id for one in site.seen())])


def test_the_pool_of_a_fleet_is_one_of_the_cluster_before_it_has_agents(site: FleetOfProcesses) -> None:
    site.write(pool="Standard_NC6s_v3")
    site.start_fleet()
    with site.client() as client:
        assert client.pools() == {"Standard_NC6s_v3"}


def test_a_killed_program_is_followed_by_one_that_adopts_its_agents(site: FleetOfProcesses) -> None:
    first = site.start_fleet()
    gate = gated(site, "nightly")
    wait_until(lambda: any(one.is_busy for one in site.live()), "an agent works")
    first.kill()
    first.wait()
    before = {one.name for one in site.live()}
    site.start_fleet("fleet-2")
    wait_until(lambda: site.table()["busy"] == 1, "the second program has them")
    gate.touch()
    site.check_done("nightly")
    wait_until(lambda: site.live() == [] and not site.alive(), "the agents have left")
    assert before <= {one.name for one in site.allocations()}
    # Each was asked for once: the machine has had no other processes than the master has allocations.
    assert sorted(one.name for one in site.seen()) == sorted(one.name for one in site.allocations())


def test_a_killed_agent_costs_no_outcome_and_another_takes_its_place(site: FleetOfProcesses) -> None:
    site.start_fleet()
    gate = gated(site, "nightly")
    wait_until(lambda: any(one.is_busy for one in site.live()), "an agent works")
    (victim,) = site.live()
    (pid,) = site.agent_pids()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: victim.name not in {one.name for one in site.live()}, "its end is known")
    (killed,) = site.allocations(lambda one: one.name == victim.name)
    assert (killed.state, killed.has_ended) == ("failed", True)
    first, *log = killed.reason.splitlines()
    assert first == "Its process was ended by SIGKILL." and log
    # The table has a line for each allocation, and what its agent wrote last comes below.
    table, _, last = site.run("fleet", "show", "site").stdout.partition(f"Last lines of the agent in {victim.name}:")
    assert first in table and log[0] not in table and log[0] in last
    gate.touch()
    wait_until(lambda: site.job("nightly")["state"] == "completed", "another agent finishes")
    assert site.output.read_text() == EXPECTED
    assert site.job("nightly")["steps"][0]["items"]["ok"] == FILES


def test_an_orderly_end_leaves_agents_as_they_are(site: FleetOfProcesses) -> None:
    program = site.start_fleet()
    gate = gated(site, "nightly")
    wait_until(lambda: any(one.is_busy for one in site.live()), "an agent works")
    program.terminate()
    assert program.wait(120) == 0
    assert "its agents stay as they are" in site.said("fleet")
    gate.touch()
    wait_until(lambda: site.job("nightly")["state"] == "completed", "the agent finishes")
    assert site.output.read_text() == EXPECTED
    # It says that it leaves, without a program to hear of it.
    wait_until(lambda: site.live() == [] and not site.alive(), "the agent has left")
    assert {one.state for one in site.allocations()} == {"completed"}


def test_the_newer_program_has_the_fleet_and_the_older_ends_for_good(site: FleetOfProcesses) -> None:
    first = site.start_fleet()
    site.start_fleet("fleet-2")
    assert first.wait(120) == 6
    assert "Another program has taken over the fleet site" in site.said("fleet")


def test_a_paused_fleet_asks_for_nothing_until_it_is_resumed(site: FleetOfProcesses) -> None:
    site.start_fleet()
    paused = site.run("fleet", "pause", "site")
    assert (paused.returncode, paused.stdout) == (
        0,
        "Fleet site is paused: it asks for no more agents. To go on: windrow fleet resume site\n",
    )
    site.create("nightly")
    wait_until(lambda: site.table()["wanted"] == 1, "an agent is wanted")
    wait_until(lambda: site.table()["reason"].startswith("Paused"), "and why there is none")
    assert site.allocations() == []
    assert site.run("fleet", "resume", "site").returncode == 0
    wait_until(lambda: site.job("nightly")["state"] == "completed", "the job has agents")
    assert site.output.read_text() == EXPECTED


def test_bounds_that_someone_sets_hold_instead_of_those_of_the_file(site: FleetOfProcesses) -> None:
    site.start_fleet()
    scaled = site.run("fleet", "scale", "site", "local", "--min", "2", "--max", "2")
    assert (scaled.returncode, scaled.stdout) == (0, "Group local of fleet site: 2 to 2 agents.\n")
    wait_until(lambda: site.group().alive == 2, "two agents stay without work")
    assert all(one.name.rpartition("-")[2].startswith("s") for one in site.live())
    scaled = site.run("fleet", "scale", "site", "local", "--max", "file", "--min", "file")
    assert scaled.stdout == "Group local of fleet site: 0 to 3 agents.\n"
    group = site.group()
    assert (group.min_set, group.max_set) == (None, None)
    refused = site.run("fleet", "scale", "site", "local", "--min", "9")
    assert refused.returncode == 2 and "more than the 3" in refused.stderr
    unknown = site.run("fleet", "scale", "site", "remote", "--max", "1")
    assert unknown.returncode == 2 and "no group remote" in unknown.stderr


def test_a_fleet_in_use_is_not_forgotten(site: FleetOfProcesses) -> None:
    program = site.start_fleet()
    refused = site.run("fleet", "delete", "site")
    assert refused.returncode == 2 and "is run by" in refused.stderr
    program.terminate()
    program.wait(120)
    wait_until(lambda: site.run("fleet", "delete", "site").returncode == 0, "it is forgotten")
    assert site.fleet() is None


def test_a_dry_run_shows_what_would_be_submitted_and_takes_nothing(site: FleetOfProcesses) -> None:
    program = site.start_fleet()
    site.run("fleet", "pause", "site")
    site.create("nightly")
    wait_until(lambda: site.table()["wanted"] == 1, "an agent is wanted")
    shown = site.run("fleet", "run", "fleet.yml", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    check_words(shown.stdout, ["Group local would ask process for 0 agents now; it has asked for 0. Paused"])
    check_words(shown.stdout, [f"--master {site.address} --join-token-file", "--allocation site-local-"])
    assert site.allocations() == []
    assert program.poll() is None and site.fleet() is not None
    wait_until(lambda: (site.fleet() or pytest.fail("gone")).silent_s is not None, "the program still has the fleet")
    assert program.poll() is None


def test_a_master_that_is_away_is_told_once_and_gets_agents_when_it_is_back(site: FleetOfProcesses) -> None:
    site.start_fleet()
    site.processes["master"].kill()
    site.processes["master"].wait()
    wait_until(lambda: "no master answers" in site.said("fleet"), "it is told")
    # Another try has failed since.
    time.sleep(0.1)
    site.start_master()
    site.create("nightly")
    wait_until(lambda: site.job("nightly")["state"] == "completed", "the job has agents")
    assert site.output.read_text() == EXPECTED
    assert site.said("fleet").count("no master answers") == 1


ENGINE = """\
#!/bin/sh
case $1 in
  submit) [ -e allow ] || { echo "sbatch: error: invalid partition specified: gpu7" >&2; exit 1; }
    echo '{"id": "17"}' ;;
  list) ;;
  *) echo '{"cancelled": false}' ;;
esac
"""


def test_an_engine_that_refuses_pauses_its_group_and_its_own_words_are_shown(site: FleetOfProcesses) -> None:
    engine = site.folder / "engine"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    (site.folder / "fleet.yml").write_text(
        "name: site\ngroups:\n  local:\n    {provider: command, slots: 2, max: 3, submissions_per_minute: 1000,\n"
        "     command: {submit: [./engine, submit], list: [./engine, list], cancel: [./engine, cancel]}}\n"
    )
    site.start_fleet()
    site.create("nightly")
    wait_until(lambda: "it tries again after" in site.table()["reason"], "the group is paused")
    group = site.table()
    words = "sbatch: error: invalid partition specified: gpu7"
    assert group["reason"].startswith(f"{words} (10 submissions in a row failed;")
    assert group["failures"] == 10 and group["retry_time"]
    refused = site.allocations(lambda one: one.state == "failed")
    assert len(refused) == 10
    assert {one.reason for one in refused} == {words}
    listed = site.run("fleet", "list")
    assert words in listed.stdout
    # The next program waits, too, and says why from its first word on.
    site.processes["fleet"].kill()
    site.processes["fleet"].wait()
    site.start_fleet("fleet-2")
    first = site.group()
    assert first.retry_time is not None
    assert first.reason.startswith(f"{words} (10 submissions in a row failed;")
    assert len(site.allocations()) == 10
    (site.folder / "allow").touch()
    assert site.run("fleet", "resume", "site").returncode == 0
    wait_until(lambda: any(one.engine_id == "17" for one in site.allocations()), "it tries at once")


def test_a_program_without_a_master_says_so_and_ends_when_asked(tmp_path: Path) -> None:
    (tmp_path / "fleet.yml").write_text("name: s\ngroups: {g: {provider: process, slots: 1, max: 1}}\n")
    from embedded_run import WINDROW

    environment = {**os.environ, "WINDROW_MASTER": "127.0.0.1:1"}
    with (tmp_path / "log").open("wb") as log:
        program = subprocess.Popen(
            [*as_user(), WINDROW, "fleet", "run", "fleet.yml"], cwd=tmp_path, env=environment, stdout=log, stderr=log
        )
    try:
        wait_until(lambda: b"no master answers" in (tmp_path / "log").read_bytes(), "it says so")
        assert_private(program.pid)
        program.terminate()
        assert program.wait(120) == 0
    finally:
        program.kill()
        program.wait()


def test_states_of_processes_are_those_of_allocations(site: FleetOfProcesses) -> None:
    site.write(least=1)
    site.start_fleet()
    wait_until(lambda: site.group().alive == 1, "an agent stays")
    (seen,) = site.seen()
    assert seen.state is State.STARTED
    told = (State.STARTED.value, seen.engine_id, "")
    wait_until(lambda: [(one.state, one.engine_id, one.reason) for one in site.live()] == [told], "what it is")
