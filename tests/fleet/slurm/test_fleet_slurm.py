"""What becomes of allocations on a real Slurm: whatever it does to them is told, in its own words."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from slurm_cluster import CPUS, MEMORY_MB, NODES, SlurmCluster, wait_for
from slurm_group import PREFIX, STAYS, TELLS, Group
from windrow.fleet.provider import AgentCommand, Refused, Seen, Shape, State, Unreachable
from windrow.fleet.providers.slurm import slurm_provider

NOBODY = 65534


@pytest.fixture
def group(cluster: SlurmCluster, tmp_path: Path) -> Group:
    return Group(cluster, tmp_path)


def test_an_agent_is_told_before_its_time_is_over_and_then_is_expired(group: Group) -> None:
    name = group.submit(TELLS, lifetime_s=60.0)
    group.wait_for_line(name, "told")
    assert group.must_see(name).state is State.STARTED
    assert group.wait(name, State.EXPIRED).reason == "TIMEOUT (TimeLimit)"


def test_whoever_cancels_a_running_job_cancels_its_allocation(group: Group) -> None:
    name = group.submit(TELLS)
    seen = group.wait(name, State.STARTED)
    group.wait_for_line(name, "begun")
    group.cluster.run("scancel", seen.engine_id)
    group.wait_for_line(name, "told")
    assert group.wait(name, State.CANCELLED).reason.startswith("CANCELLED")
    # A second one would end an agent at once.
    assert (group.logs / f"{name}.log").read_text().splitlines().count("told") == 1


def test_whoever_cancels_a_waiting_job_cancels_its_allocation(group: Group) -> None:
    _fill(group.cluster)
    name = group.submit()
    group.cluster.run("scancel", group.must_see(name).engine_id)
    assert group.wait(name, State.CANCELLED).reason.startswith("CANCELLED")


def test_a_job_is_not_requeued_unless_the_file_says_so(group: Group) -> None:
    name = group.submit()
    number = group.wait(name, State.STARTED).engine_id
    assert group.cluster.tried("scontrol", "requeue", number).returncode != 0
    assert group.must_see(name).state is State.STARTED


def test_a_requeued_job_is_queued_again_and_starts_again_as_the_same_allocation(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    group = Group(cluster, tmp_path, extra_args=("--requeue",))
    name = group.submit(TELLS)
    number = group.wait(name, State.STARTED).engine_id
    group.wait_for_line(name, "begun")
    cluster.run("scontrol", "requeue", number)
    group.wait_for_line(name, "told")
    queued = group.wait(name, State.QUEUED)
    assert queued.engine_id == number
    assert group.wait(name, State.STARTED).engine_id == number
    log = group.logs / f"{name}.log"
    wait_for("it has begun twice", lambda: log.read_text().splitlines().count("begun") == 2)


def test_a_job_that_gives_way_to_a_more_urgent_one_is_preempted(group: Group) -> None:
    names = [group.submit(TELLS, shape=Shape(CPUS)) for _ in NODES]
    for name in names:
        group.wait(name, State.STARTED)
        group.wait_for_line(name, "begun")
    group.cluster.sbatch("sleep 3600", "--partition=urgent", f"--cpus-per-task={CPUS}")
    wait_for("one is preempted", lambda: any(seen.state is State.PREEMPTED for seen in group.provider.allocations()))
    seen = next(seen for seen in group.provider.allocations() if seen.state is State.PREEMPTED)
    assert seen.reason.startswith("PREEMPTED")
    group.wait_for_line(seen.name, "told")
    others = [group.must_see(name).state for name in names if name != seen.name]
    assert others == [State.STARTED] * (len(NODES) - 1)


def test_a_drained_node_keeps_its_agent_and_gets_no_other(group: Group) -> None:
    running = group.submit()
    group.wait(running, State.STARTED)
    group.cluster.run("scontrol", "update", f"nodename={','.join(NODES)}", "state=drain", "reason=disk")
    waiting = group.submit()
    wait_for("Slurm says why it waits", lambda: group.must_see(waiting).reason not in ("", "Priority"))
    assert group.must_see(waiting).state is State.QUEUED
    assert "Reason=" in group.provider.why(group.must_see(waiting))
    assert group.must_see(running).state is State.STARTED
    group.cluster.run("scontrol", "update", f"nodename={','.join(NODES)}", "state=resume")
    group.wait(waiting, State.STARTED)


def test_an_allocation_on_a_node_that_is_lost_has_failed(group: Group) -> None:
    name = group.submit()
    group.wait(name, State.STARTED)
    (node,) = (node for node in NODES if name in group.cluster.run("squeue", "-h", "-w", node, "-o", "%j").split())
    group.cluster.kill_node(node)
    seen = group.wait(name, State.FAILED)
    assert seen.reason.startswith("NODE_FAIL")
    assert "NODE_FAIL" in group.provider.why(seen)


def test_allocations_outlive_a_controller_that_dies_and_come_back_with_it(group: Group) -> None:
    _fill(group.cluster, but=2)
    running, waiting = group.submit(), group.submit(shape=Shape(CPUS))
    before = {running: group.wait(running, State.STARTED).engine_id, waiting: group.must_see(waiting).engine_id}
    # The controller writes down what it has taken some seconds later.
    state = group.cluster.folder / "state" / "job_state"
    wait_for("the controller has written them down", lambda: state.exists() and waiting.encode() in state.read_bytes())
    group.cluster.kill_controller()
    with pytest.raises(Unreachable, match="Unable to contact slurm controller"):
        group.provider.allocations()
    with pytest.raises(Unreachable):
        group.submit()
    with pytest.raises(Unreachable):
        group.provider.cancel(Seen(waiting, before[waiting], State.QUEUED), only_queued=True)
    group.cluster.start_controller()
    for provider in (group.provider, group.new_provider()):
        assert {seen.name: seen.engine_id for seen in provider.allocations()} == before
    assert group.must_see(running).state is State.STARTED
    assert group.must_see(waiting).state is State.QUEUED


def test_what_was_submitted_while_the_controller_was_silent_is_found_under_its_name(group: Group) -> None:
    group.cluster.signal_controller(signal.SIGSTOP)
    request = group.request()
    with pytest.raises(Unreachable):
        group.provider.submit(request)
    with pytest.raises(Unreachable):
        group.provider.allocations()
    group.cluster.signal_controller(signal.SIGCONT)
    wait_for("it is there after all", lambda: group.seen(request.name) is not None)
    assert [seen.name for seen in group.new_provider().allocations()] == [request.name]


def test_a_command_that_does_not_end_is_given_up(
    cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Once Slurm has as many jobs as it may, sbatch tries again for minutes.
    monkeypatch.setattr(slurm_provider, "SUBMIT_LIMIT_S", 3)
    cluster.kill_controller()
    cluster.extra_lines.append("MaxJobCount=2")
    cluster.write_configuration()
    cluster.start_controller()
    group = Group(cluster, tmp_path)
    first = group.submit()
    with pytest.raises(Unreachable, match=r"sbatch did not end within 3 s: .*(queue full|unable to accept job)"):
        for _ in range(3):
            group.submit()
    assert group.must_see(first)


@pytest.mark.parametrize(
    ("settings", "given", "words"),
    [
        ({"partition": "nowhere"}, {}, "invalid partition specified: nowhere.*Invalid partition name specified"),
        ({"partition": "closed"}, {}, "Required partition not available"),
        ({}, {"shape": Shape(CPUS, 2 * MEMORY_MB * 1024**2)}, "Requested node configuration is not available"),
        ({}, {"shape": Shape(1, gpus=1)}, "Invalid generic resource"),
        ({"constraint": "no-such-feature"}, {}, "Invalid feature specification"),
    ],
)
def test_what_slurm_does_not_take_is_refused_in_its_own_words(
    cluster: SlurmCluster, tmp_path: Path, settings: dict[str, str], given: dict[str, object], words: str
) -> None:
    group = Group(cluster, tmp_path, **settings)
    with pytest.raises(Refused, match=words):
        group.submit(**given)
    # Some that it cannot ever start, it keeps as jobs that have failed.
    assert all(seen.state is State.FAILED for seen in group.provider.allocations())


def test_limits_of_submissions_are_refused_in_slurms_own_words(
    accounting_cluster: SlurmCluster, tmp_path: Path
) -> None:
    accounting_cluster.run("sacctmgr", "-i", "add", "qos", "few")
    accounting_cluster.run("sacctmgr", "-i", "modify", "qos", "few", "set", "MaxSubmitJobsPerUser=1")
    accounting_cluster.run("sacctmgr", "-i", "modify", "account", "science", "set", "qos+=few", "MaxSubmitJobs=2")
    group = Group(accounting_cluster, tmp_path, qos="few", account="science")
    wait_for("the controller knows the QOS", lambda: _is_taken(group))
    with pytest.raises(Refused, match=r"QOSMaxSubmitJobPerUserLimit.*Job violates accounting/QOS policy"):
        group.submit()
    group.settings = group.settings._replace(qos="")
    group.provider = group.new_provider()
    group.submit()
    with pytest.raises(Refused, match=r"AssocMaxSubmitJobLimit.*Job violates accounting/QOS policy"):
        group.submit()


def test_accounting_tells_how_an_allocation_ended_that_squeue_no_longer_knows(
    accounting_cluster: SlurmCluster, tmp_path: Path
) -> None:
    accounting_cluster.kill_controller()
    accounting_cluster.extra_lines.append("MinJobAge=2")
    accounting_cluster.write_configuration()
    accounting_cluster.start_controller()
    group = Group(accounting_cluster, tmp_path, account="science")
    failed, left = group.submit(("sh", "-c", "exit 3")), group.submit(("true",))
    ended = {failed: State.FAILED, left: State.COMPLETED}
    seen = {name: group.wait(name, state) for name, state in ended.items()}
    wait_for("squeue has forgotten them", lambda: accounting_cluster.run("squeue", "-h", "--states=all") == "")
    assert {one.name: one for one in group.provider.allocations()} == seen
    group.provider = group.new_provider()
    assert {one.name: one.state for one in group.provider.allocations()} == ended
    again = group.must_see(failed)
    assert again == seen[failed]._replace(reason="FAILED (exit code 3:0)")
    assert "exit code 3:0" in group.provider.why(again)


def test_arrays_and_the_jobs_of_others_are_never_taken_for_allocations(group: Group) -> None:
    name = group.submit()
    cluster = group.cluster
    array = cluster.sbatch("sleep 3600", "--array=1-2", f"--job-name={PREFIX}x77")
    foreign = []
    # Others do not reach programs that were unpacked below the home of root.
    if os.getuid() == 0 and cluster.programs.root == Path("/"):
        foreign.append(cluster.sbatch("sleep 3600", f"--job-name={PREFIX}x78", user=NOBODY))
    for other in ("x79 with blanks", "X80", "x81|RUNNING", "x82-" + "a" * 40):
        foreign.append(cluster.sbatch("sleep 3600", f"--job-name={PREFIX}{other}"))
    for provider in (group.provider, group.new_provider()):
        assert [seen.name for seen in provider.allocations()] == [name]
    assert set(cluster.job_state(array).split()) <= {"PENDING", "RUNNING"}
    assert all(cluster.job_state(number) in ("PENDING", "RUNNING") for number in foreign)


@pytest.mark.parametrize("trial", range(4))
def test_what_only_waits_is_cancelled_and_what_starts_meanwhile_is_left(
    group: Group, tmp_path: Path, trial: int
) -> None:
    blocks = _fill(group.cluster)
    begun = tmp_path / "begun"
    name = group.submit(("sh", "-c", f"touch {begun}; exec sleep 3600"), shape=Shape(CPUS))
    seen = group.must_see(name)
    group.cluster.run("scancel", blocks[trial % len(NODES)])
    wait_for("the node is free", lambda: group.cluster.run("squeue", "-h", "-j", blocks[trial % len(NODES)]) == "")
    if group.provider.cancel(seen, only_queued=True):
        group.wait(name, State.CANCELLED)
        assert not begun.exists()
    else:
        group.wait(name, State.STARTED)
        wait_for("it runs", begun.exists)


@pytest.mark.parametrize("only_queued", [True, False])
def test_a_number_that_slurm_has_given_again_is_not_cancelled(group: Group, *, only_queued: bool) -> None:
    _fill(group.cluster)
    name = group.submit()
    seen = group.must_see(name)
    assert not group.provider.cancel(seen._replace(name=f"{PREFIX}x-before"), only_queued=only_queued)
    assert group.cluster.job_state(seen.engine_id) == "PENDING"
    assert group.provider.cancel(seen, only_queued=only_queued)
    group.wait(name, State.CANCELLED)


def test_a_cancellation_that_was_cut_off_is_finished_by_whoever_looks_next(group: Group) -> None:
    _fill(group.cluster)
    name = group.submit()
    number = group.must_see(name).engine_id
    group.cluster.run("scontrol", "update", f"JobId={number}", "StartTime=now+300days")
    group.provider = group.new_provider()
    group.wait(name, State.CANCELLED)


def test_variables_that_hide_jobs_from_squeue_hide_no_allocations(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = group.submit()
    for variable, value in {
        "SQUEUE_PARTITION": "urgent",
        "SQUEUE_NAMES": "other",
        "SQUEUE_FORMAT": "%i",
        "SLURM_JOB_ID": "1",
        "SLURM_CLUSTERS": "elsewhere",
        "SBATCH_ARRAY_INX": "1-3",
        "SCANCEL_STATE": "SUSPENDED",
    }.items():
        monkeypatch.setenv(variable, value)
    second = group.submit()
    assert {seen.name for seen in group.provider.allocations()} == {name, second}
    assert group.provider.cancel(group.wait(name, State.STARTED), only_queued=False)
    group.wait(name, State.CANCELLED)


def test_the_agent_has_what_it_is_given_and_nothing_of_where_the_fleet_runs(
    cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDROW_TOKEN", "the-secret-of-the-fleet")
    group = Group(cluster, tmp_path / "100% sure", setup=("export FROM_SETUP='it is'",))
    request = group.request(("sh", "-c", 'env; echo "arguments: $0 $1"', "a b", "c'd"))
    request = request._replace(agent=AgentCommand(request.agent.arguments, {"GIVEN": "x 'y'\nz"}))
    group.provider.submit(request)
    group.wait(request.name, State.COMPLETED)
    printed = (group.logs / f"{request.name}.log").read_text()
    assert "FROM_SETUP=it is\n" in printed
    assert "GIVEN=x 'y'\nz\n" in printed
    assert "arguments: a b c'd\n" in printed
    assert "the-secret-of-the-fleet" not in printed
    assert group.logs.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("ends", ["by itself", "by scancel"])
def test_the_folder_of_an_agent_goes_with_it_and_its_exit_code_is_that_of_the_job(
    group: Group, tmp_path: Path, ends: str
) -> None:
    folder = tmp_path / "of the agent"
    stays = "trap 'exit 3' TERM; while :; do sleep 0.1; done" if ends == "by scancel" else "exit 3"
    command = AgentCommand(("sh", "-c", f'mkdir "{folder}"; echo made; {stays}'), {}, str(folder))
    request = group.request()._replace(agent=command)
    group.provider.submit(request)
    group.wait_for_line(request.name, "made")
    if ends == "by scancel":
        group.cluster.run("scancel", group.must_see(request.name).engine_id)
        group.wait(request.name, State.CANCELLED)
    else:
        assert "ExitCode=3:0" in group.provider.why(group.wait(request.name, State.FAILED))
    assert not folder.exists()


def test_why_an_agent_failed_is_told_with_the_end_of_its_log(group: Group) -> None:
    name = group.submit(("sh", "-c", "echo no master answers at m:1; exit 4"))
    seen = group.wait(name, State.FAILED)
    assert seen.reason == "FAILED (NonZeroExitCode)"
    why = group.provider.why(seen)
    assert "ExitCode=4:0" in why
    assert why.endswith("no master answers at m:1")


def test_what_an_allocation_takes_is_what_its_shape_says(group: Group) -> None:
    name = group.submit(STAYS, shape=Shape(2.5, 1_500_000_000), lifetime_s=61.0)
    told = group.cluster.run("scontrol", "-o", "show", "job", group.must_see(name).engine_id)
    assert "NumNodes=1" in told and "CPUs/Task=3" in told and "MinMemoryNode=1431M" in told
    assert "TimeLimit=00:02:00" in told and "Requeue=0" in told


def test_without_slurms_commands_nobody_answers(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(Unreachable, match="squeue cannot be run: No such file"):
        group.provider.allocations()


def _fill(cluster: SlurmCluster, but: int = 0) -> list[str]:
    """Take all processors, but so many of one node; return the numbers of the jobs that do."""
    taken = zip((CPUS - but, CPUS, CPUS), NODES, strict=True)
    numbers = [cluster.sbatch("sleep 3600", f"--cpus-per-task={cpus}", f"--nodelist={node}") for cpus, node in taken]
    wait_for("the nodes are taken", lambda: all(cluster.job_state(number) == "RUNNING" for number in numbers))
    return numbers


def _is_taken(group: Group) -> bool:
    try:
        group.submit()
    except Refused as error:
        assert "qos" in str(error).lower() or "account" in str(error).lower()
        return False
    return True
